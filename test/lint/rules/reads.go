package rules

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

const (
	budgetPackage = "turnpike/internal/budget"
	// maxPrefix is how much of a source may be read without a budget.
	maxPrefix = 1 << 20
	// ownData begins a comment that says why bytes are Turnpike's own, on the line that reads them.
	ownData = "//budget:own "
)

// unbudgeted are the packages that read without a budget: it itself, and what runs at a client.
var unbudgeted = []string{budgetPackage, "turnpike/internal/cli", "turnpike/internal/tunnel", "turnpike/internal/db/dbtest"}

// readers are functions that keep what they read, or decompress it.
var readers = []string{"io.ReadAll", "net/http.MaxBytesReader", "(*bytes.Buffer).ReadFrom", "(*github.com/coder/websocket.Conn).Read", "github.com/coder/websocket/wsjson.Read",
	"encoding/json.NewDecoder", "github.com/go-json-experiment/json.UnmarshalRead", "compress/gzip.NewReader", "compress/zlib.NewReader", "compress/flate.NewReader",
	"compress/bzip2.NewReader", "github.com/klauspost/compress/zstd.NewReader"}

// decoders take much memory or CPU time for few bytes.
var decoders = []string{"image.Decode", "image/png.Decode", "image/jpeg.Decode", "image/gif.Decode", "image/gif.DecodeAll", "turnpike/internal/audio/duration.Measure"}

// clients send requests whose responses nothing limits.
var clients = []string{"net/http.Get", "net/http.Post", "net/http.PostForm", "net/http.Head"}

// Reads reports bytes from outside that are read or decoded without a budget.
var Reads = &analysis.Analyzer{
	Name: "reads",
	Doc:  "report reading without a budget",
	Run: func(pass *analysis.Pass) (any, error) {
		path := pass.Pkg.Path()
		if !strings.Contains(path, "internal/") || slices.ContainsFunc(unbudgeted, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") }) {
			return nil, nil
		}
		own := ownLines(pass)
		in := inspector.New(pass.Files)
		in.WithStack([]ast.Node{(*ast.CallExpr)(nil), (*ast.CompositeLit)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
			at := pass.Fset.Position(n.Pos())
			if push && !strings.HasSuffix(at.Filename, "_test.go") && !own[at.Filename][at.Line] {
				if problem := unbudgetedRead(pass, n, stack); problem != "" {
					pass.Reportf(n.Pos(), "%s; see package budget", problem)
				}
			}
			return true
		})
		return nil, nil
	},
}

// ownLines returns the lines of each file that read Turnpike's own data.
func ownLines(pass *analysis.Pass) map[string]map[int]bool {
	lines := map[string]map[int]bool{}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				if at := pass.Fset.Position(c.Pos()); strings.HasPrefix(c.Text, ownData) {
					if lines[at.Filename] == nil {
						lines[at.Filename] = map[int]bool{}
					}
					lines[at.Filename][at.Line] = true
				}
			}
		}
	}
	return lines
}

func unbudgetedRead(pass *analysis.Pass, n ast.Node, stack []ast.Node) string {
	if literal, ok := n.(*ast.CompositeLit); ok {
		if t := pass.TypesInfo.TypeOf(literal); t == nil || types.TypeString(t, nil) != "net/http.Client" || isBounded(pass, literal) {
			return ""
		}
		return "the Transport of an http.Client must be from package safehttp"
	}
	call := n.(*ast.CallExpr)
	switch name := calledFunction(pass, call); {
	case slices.Contains(readers, name) && !limitsItself(pass, call):
		return name + " without a budget"
	case slices.Contains(decoders, name) && !insideDecode(pass, stack):
		return name + " outside of Budget.Decode"
	case slices.Contains(clients, name):
		return name + " without a limit of the response"
	}
	return ""
}

func calledFunction(pass *analysis.Pass, call *ast.CallExpr) string {
	var id *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	default:
		return ""
	}
	if f, ok := pass.TypesInfo.Uses[id].(*types.Func); ok {
		return f.FullName()
	}
	return ""
}

// limitsItself reports whether what is read is in memory, counts toward a budget, or is a short prefix.
func limitsItself(pass *analysis.Pass, call *ast.CallExpr) bool {
	if len(call.Args) == 0 {
		return false
	}
	from, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr)
	if !ok {
		return false
	}
	switch calledFunction(pass, from) {
	case "bytes.NewReader", "bytes.NewBuffer", "strings.NewReader":
		return !strings.Contains(calledFunction(pass, call), "compress/")
	case "(*" + budgetPackage + ".Budget).ChargeJSON":
		return true
	case "(*" + budgetPackage + ".Budget).Charge":
		return !strings.Contains(calledFunction(pass, call), "json.")
	case "io.LimitReader":
		limit := pass.TypesInfo.Types[from.Args[1]].Value
		return limit != nil && constant.Compare(limit, token.LEQ, constant.MakeInt64(maxPrefix))
	}
	return false
}

func isBounded(pass *analysis.Pass, client *ast.CompositeLit) bool {
	for _, field := range client.Elts {
		if pair, ok := field.(*ast.KeyValueExpr); ok && pair.Key.(*ast.Ident).Name == "Transport" {
			call, ok := pair.Value.(*ast.CallExpr)
			return ok && calledFunction(pass, call) == "turnpike/internal/safehttp.Bounded"
		}
	}
	return false
}

func insideDecode(pass *analysis.Pass, stack []ast.Node) bool {
	return slices.ContainsFunc(stack, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		return ok && calledFunction(pass, call) == "(*"+budgetPackage+".Budget).Decode"
	})
}
