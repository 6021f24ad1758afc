package openai

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// bodyFiles change callers' bodies. The rest of the package reads responses.
var bodyFiles = map[string][]jsonbody.Names{
	"request.go": {providers.ChatNames, providers.ChatNames["stream_options"]},
	"images.go":  {providers.ImageNames, providers.ChatNames},
	"speech.go":  {providers.SpeechNames},
}

// TestFieldsThatAreSetAreRegistered finds the names in the source, as an object
// has them in strings: o.set("model", …), o.drop(other), case "mask".
func TestFieldsThatAreSetAreRegistered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names, changesBodies := bodyFiles[file]
		for _, name := range changed(source) {
			if !changesBodies && name == "model" {
				t.Errorf("%s sets %q: if it changes callers' bodies, list it in bodyFiles", file, name)
			}
			if !changesBodies {
				continue
			}
			found++
			if !registered(name, names) {
				t.Errorf("%s changes %q, which isn't registered. Add it to internal/providers/names.go.", file, name)
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d names, want at least the 15 that are known", found)
	}
}

func registered(name string, lists []jsonbody.Names) bool {
	for _, names := range lists {
		if _, ok := names[name]; ok {
			return true
		}
	}
	return false
}

// changed are the strings that a file passes to the methods of an object,
// compares a member's name with, or declares as the name of a limit.
func changed(source *ast.File) (names []string) {
	take := func(list ...ast.Expr) {
		for _, e := range list {
			if s, ok := e.(*ast.BasicLit); ok && s.Kind == token.STRING {
				name, _ := strconv.Unquote(s.Value)
				names = append(names, name)
			}
		}
	}
	ast.Inspect(source, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				switch f.Sel.Name {
				case "set", "drop", "has", "get":
					take(n.Args[0])
				}
			case *ast.Ident:
				if f.Name == "setText" {
					take(n.Args[1])
				}
			}
		case *ast.SwitchStmt:
			if namesMember(n.Tag) || namesMember(n.Init) {
				for _, c := range n.Body.List {
					take(c.(*ast.CaseClause).List...)
				}
			}
		case *ast.BinaryExpr:
			if namesMember(n.X) {
				take(n.Y)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				switch name.Name {
				case "oldLimit", "newLimit", "llamaCPPs":
					take(n.Values[i])
				}
			}
		}
		return true
	})
	return names
}

// namesMember reports whether code reads the name of a member.
func namesMember(n ast.Node) (found bool) {
	if n == nil {
		return false
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "name" {
			found = true
		}
		return true
	})
	return found
}
