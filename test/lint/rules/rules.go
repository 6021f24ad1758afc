// Package rules holds the project's own static checks.
package rules

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/unused"
)

// Shadow reports variables, constants, types and functions named like a builtin.
var Shadow = &analysis.Analyzer{
	Name: "shadowbuiltin",
	Doc:  "report identifiers that shadow a builtin",
	Run: func(pass *analysis.Pass) (any, error) {
		for id, object := range pass.TypesInfo.Defs {
			if object == nil || types.Universe.Lookup(id.Name) == nil {
				continue
			}
			switch o := object.(type) {
			case *types.Var:
				if o.IsField() {
					continue
				}
			case *types.Func:
				if o.Signature().Recv() != nil {
					continue
				}
			}
			pass.Reportf(id.Pos(), "%s shadows a builtin", id.Name)
		}
		return nil, nil
	},
}

// maxParameters is how many parameters a function may have.
const maxParameters = 5

// Parameters reports functions with too many parameters.
var Parameters = &analysis.Analyzer{
	Name: "parameters",
	Doc:  "report functions with too many parameters",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				if f, ok := n.(*ast.FuncType); ok && f.Params.NumFields() > maxParameters {
					pass.Reportf(f.Pos(), "%d parameters; use a struct for more than %d", f.Params.NumFields(), maxParameters)
				}
				return true
			})
		}
		return nil, nil
	},
}

// Unused reports unused code, which staticcheck finds and its own command reports.
var Unused = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report unused code",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		found := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused
		for _, file := range pass.Files {
			tokens := pass.Fset.File(file.Pos())
			for _, object := range found {
				if object.Position.Filename == tokens.Name() {
					pass.Reportf(tokens.LineStart(object.Position.Line), "%s %s is unused", object.Kind, object.Name)
				}
			}
		}
		return nil, nil
	},
}
