package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// qualifiedName matches spend.Ledger, webhooks.fanOut and audit.Record.Start.
	qualifiedName = regexp.MustCompile(`\b([a-z]\w*)\.([A-Za-z][A-Za-z0-9]*)(?:\.(\w+))?\b`)
	// fileName matches webhooks/send.go.
	fileName = regexp.MustCompile(`\b\w+/\w+\.go\b`)
	// diagramName matches a function in a diagram's box: ["checkForm"], ["audit.Record.Start<br>(intent)"].
	diagramName = regexp.MustCompile(`\["(\w+)(?:"|<br>)`)
	// quotedName matches a mixed-case function or type in backticks: recoverInFlight,
	// Record.Start.
	quotedName = regexp.MustCompile("`(?:[A-Z]\\w*\\.)?(\\w*[a-z][A-Z]\\w*)`")
)

func TestArchitecturePageUsesNamesOfTheCode(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	declared, files := declarations(t)
	known := func(name string) bool {
		return slices.ContainsFunc(declared, func(d declaration) bool { return d.name == name })
	}
	in := func(pkg, name string) bool { return slices.Contains(declared, declaration{pkg, name}) }
	for _, m := range qualifiedName.FindAllStringSubmatch(string(page), -1) {
		if pkg := m[1]; m[2] == "go" || !slices.ContainsFunc(declared, func(d declaration) bool { return d.pkg == pkg }) {
			continue // a standard library package or a file
		}
		if !in(m[1], m[2]) || m[3] != "" && !in(m[1], m[3]) {
			t.Errorf("docs/architecture.md names %s, which the code doesn't declare", m[0])
		}
	}
	for _, m := range fileName.FindAllString(string(page), -1) {
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+m) }) {
			t.Errorf("docs/architecture.md names the file %s, which doesn't exist", m)
		}
	}
	for _, m := range slices.Concat(diagramName.FindAllStringSubmatch(string(page), -1), quotedName.FindAllStringSubmatch(string(page), -1)) {
		if !known(m[1]) {
			t.Errorf("docs/architecture.md names %s, which the code doesn't declare", m[1])
		}
	}
}

type declaration struct{ pkg, name string }

// declarations returns the names that the product declares, its tests and its files.
func declarations(t *testing.T) (declared []declaration, files []string) {
	visit := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, "_test.go") {
			for _, d := range f.Decls {
				if test, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(test.Name.Name, "Test") {
					declared = append(declared, declaration{f.Name.Name, test.Name.Name})
				}
			}
			return nil
		}
		files = append(files, filepath.ToSlash(path))
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				declared = append(declared, declaration{f.Name.Name, n.Name.Name})
			case *ast.TypeSpec:
				declared = append(declared, declaration{f.Name.Name, n.Name.Name})
			case *ast.ValueSpec:
				for _, name := range n.Names {
					declared = append(declared, declaration{f.Name.Name, name.Name})
				}
			case *ast.Field:
				for _, name := range n.Names {
					declared = append(declared, declaration{f.Name.Name, name.Name})
				}
			}
			return true
		})
		return nil
	}
	for _, root := range []string{"../../internal", "../../test/chaos"} {
		if err := filepath.WalkDir(root, visit); err != nil {
			t.Fatal(err)
		}
	}
	return declared, files
}
