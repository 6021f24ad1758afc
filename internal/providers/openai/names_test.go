package openai

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnpike/internal/jsonbody"
	"turnpike/internal/providers"
)

// bodyFiles change request bodies. The rest of the package reads responses.
var bodyFiles = map[string][]jsonbody.Names{
	"request.go": {providers.ChatNames, providers.ChatNames["stream_options"]},
	"images.go":  {providers.ImageNames, providers.ChatNames},
	"speech.go":  {providers.SpeechNames},
}

// TestChangedFieldsAreRegistered finds the names in the source, as an object
// has them in strings: o.set("model", …), o.drop(other), case "mask".
func TestChangedFieldsAreRegistered(t *testing.T) {
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
				t.Errorf("%s sets %q. If it changes request bodies, list it in bodyFiles.", file, name)
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

// changed returns the strings that a file passes to the methods of an object,
// compares a member's name with, or declares as the name of a limit.
func changed(source *ast.File) (names []string) {
	add := func(list ...ast.Expr) {
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
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"set", "setString", "drop", "has", "get"}, f.Sel.Name) {
				add(n.Args[0])
			}
		case *ast.SwitchStmt:
			if namesMember(n.Tag) || namesMember(n.Init) {
				for _, c := range n.Body.List {
					add(c.(*ast.CaseClause).List...)
				}
			}
		case *ast.BinaryExpr:
			if namesMember(n.X) {
				add(n.Y)
			}
		case *ast.ValueSpec:
			for i, name := range n.Names {
				switch name.Name {
				case "maxTokens", "maxCompletionTokens", "nPredict":
					add(n.Values[i])
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
