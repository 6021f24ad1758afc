// Command lint runs every static check of the project in one pass: the checks of
// go vet and of staticcheck, and the project's own rules.
//
//	go vet -vettool=bin/lint ./...
//
// Run separately, vet and staticcheck each type-check all dependencies: that
// took 5 of CI's minutes on two cores, one pass takes 1.5.
package main

import (
	"encoding/json"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/appends"
	"golang.org/x/tools/go/analysis/passes/assign"
	"golang.org/x/tools/go/analysis/passes/atomic"
	"golang.org/x/tools/go/analysis/passes/bools"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/composite"
	"golang.org/x/tools/go/analysis/passes/copylock"
	"golang.org/x/tools/go/analysis/passes/defers"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/errorsas"
	"golang.org/x/tools/go/analysis/passes/hostport"
	"golang.org/x/tools/go/analysis/passes/httpresponse"
	"golang.org/x/tools/go/analysis/passes/ifaceassert"
	"golang.org/x/tools/go/analysis/passes/loopclosure"
	"golang.org/x/tools/go/analysis/passes/lostcancel"
	"golang.org/x/tools/go/analysis/passes/nilfunc"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/sigchanyzer"
	"golang.org/x/tools/go/analysis/passes/slog"
	"golang.org/x/tools/go/analysis/passes/stdmethods"
	"golang.org/x/tools/go/analysis/passes/stdversion"
	"golang.org/x/tools/go/analysis/passes/stringintconv"
	"golang.org/x/tools/go/analysis/passes/structtag"
	"golang.org/x/tools/go/analysis/passes/testinggoroutine"
	"golang.org/x/tools/go/analysis/passes/tests"
	"golang.org/x/tools/go/analysis/passes/timeformat"
	"golang.org/x/tools/go/analysis/passes/unmarshal"
	"golang.org/x/tools/go/analysis/passes/unreachable"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/analysis/passes/unusedresult"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"

	"turnpike/test/lint/rules"
)

// vet is the list of go vet's own checks, without those for assembly and cgo.
var vet = []*analysis.Analyzer{
	appends.Analyzer, assign.Analyzer, atomic.Analyzer, bools.Analyzer, buildtag.Analyzer, composite.Analyzer,
	copylock.Analyzer, defers.Analyzer, directive.Analyzer, errorsas.Analyzer, hostport.Analyzer,
	httpresponse.Analyzer, ifaceassert.Analyzer, loopclosure.Analyzer, lostcancel.Analyzer, nilfunc.Analyzer,
	printf.Analyzer, shift.Analyzer, sigchanyzer.Analyzer, slog.Analyzer, stdmethods.Analyzer, stdversion.Analyzer,
	stringintconv.Analyzer, structtag.Analyzer, testinggoroutine.Analyzer, tests.Analyzer, timeformat.Analyzer,
	unmarshal.Analyzer, unreachable.Analyzer, unsafeptr.Analyzer, unusedresult.Analyzer, waitgroup.Analyzer,
}

func main() {
	if dependency(os.Args[len(os.Args)-1]) {
		unitchecker.Main(deprecated.Analyzer)
	}
	all := append([]*analysis.Analyzer{rules.Shadow, rules.Parameters, rules.Unused, rules.Reads}, vet...)
	for _, family := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers} {
		for _, a := range family {
			// The checks of style that staticcheck leaves off by default include
			// the form of comments, which .vale checks.
			if !a.Doc.NonDefault && !strings.HasPrefix(a.Analyzer.Name, "QF") {
				all = append(all, a.Analyzer)
			}
		}
	}
	unitchecker.Main(all...)
}

// dependency reports whether go vet asks only for facts about a package of another module. What is deprecated there
// is all we need: the other facts would cost CI more than two minutes, most of them for SQLite.
func dependency(file string) bool {
	if !strings.HasSuffix(file, ".cfg") {
		return false
	}
	var unit struct {
		ImportPath string
		VetxOnly   bool
	}
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &unit) != nil {
		return false // unitchecker reports it
	}
	return unit.VetxOnly && unit.ImportPath != "turnpike" && !strings.HasPrefix(unit.ImportPath, "turnpike/")
}
