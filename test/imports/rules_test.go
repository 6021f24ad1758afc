// Package imports defines which package may import which, and checks it.
package imports

import (
	"fmt"
	"slices"
	"strings"
)

// layers is the tree from top to bottom. A package may import lower layers, and
// otherwise only what the tables below allow. A package in a subdirectory
// (providers/openai, db/migrations) belongs to its parent.
var layers = []layer{
	{"program", list("turnpike")},
	{"commands", list("cli")},
	{"wiring", list("app")},
	{"faces", list("api dashboard tunnel")},
	{"engines", list("gateway providers media background agents batches webhooks notifications leaks federation lanes mail retention backup certificates archive logsinks")},
	{"records", list("accounts endusers idempotency conversations access people limits spend catalog events audit files apifiles operators modelroutes contentlog")},
	{"settings", list("config")},
	{"upper ground", list("nodes visibility openai web docsite")},
	{"middle ground", list("db budget safehttp jsonbody keyring addrlimit connlimit logsearch")},
	{"lower ground", list("ids fault credits fsync audio clientip safeschema watch minisign parquet")},
	{"public", list("webhook docs")},
}

// sameLayer lists the allowed imports within a layer.
var sameLayer = []grant{
	{from: list("agents background"), to: list("gateway")},
	{from: list("batches media"), to: list("gateway providers")},
	{from: list("gateway"), to: list("providers")},
	{from: members("engines"), to: list("lanes mail retention notifications")},
	{from: list("leaks"), to: list("webhooks")}, // whose secrets leak, too
	{from: members("records"), to: list("accounts events audit")},
	{from: list("spend"), to: list("catalog access endusers")}, // access has the budgets of keys
	{from: list("access accounts"), to: list("catalog")},
	{from: list("apifiles"), to: list("files")},
	{from: list("people"), to: list("access")},       // access defines what a role may do
	{from: list("operators"), to: list("access")},    // and the format of secrets
	{from: list("endusers"), to: list("contentlog")}, // which has the content of their requests
	{from: list("docsite"), to: list("web")},
	{from: list("safehttp"), to: list("budget")},
	{from: list("api"), to: list("tunnel")}, // its route passes the connection on
}

// restricted forbids imports that the layers allow, or that must not be allowed later.
// Each entry has its reason.
var restricted = []restriction{
	{to: "config", onlyFrom: list("cli app"), why: "everything else takes its settings by its constructor"},
	{to: "cli", onlyFrom: list("turnpike"), why: "the command line is the top"},
	{to: "access", neverFrom: list("limits"), why: "limits takes ids, not Principals"},
	{to: "api", neverFrom: list("dashboard"), why: "both call records and engines with a Principal"},
	{to: "leaks", neverFrom: list("gateway"), why: "a leak is reported through api"},
}

// testOnly reports whether a package is only for tests: packages named like dbtest, and
// the fakes of other services. Product code must not import them.
func testOnly(importPath string) bool {
	return isFake(importPath) || strings.HasPrefix(importPath, "turnpike/internal/") && strings.HasSuffix(importPath, "test")
}

// isFake reports whether a package is in test/fakes, which every test may import.
func isFake(importPath string) bool { return strings.HasPrefix(importPath, "turnpike/test/fakes/") }

type layer struct {
	name     string
	packages []string
}

type grant struct{ from, to []string }

type restriction struct {
	to        string
	onlyFrom  []string // if set, only these may import it
	neverFrom []string
	why       string
}

// pkg is a package as go list describes it. External test packages (package x_test) may
// import anything, so XTestImports is left out.
type pkg struct {
	ImportPath  string
	Imports     []string
	TestImports []string
}

// check returns a message for each forbidden import and each unknown package.
func check(packages []pkg) []string {
	var problems []string
	for _, p := range packages {
		from, kind := place(p.ImportPath)
		switch kind {
		case outside, free:
			continue
		case unknown:
			problems = append(problems, fmt.Sprintf(
				"%s has no place: add %q to a layer in test/imports/rules_test.go, and to the tree in docs/architecture.md", p.ImportPath, from))
			continue
		}
		for _, to := range p.Imports {
			if testOnly(to) && !testOnly(p.ImportPath) {
				problems = append(problems, fmt.Sprintf("%s imports %s, which is for tests only", p.ImportPath, to))
			} else if why := forbidden(from, to); why != "" {
				problems = append(problems, fmt.Sprintf("%s imports %s: %s", p.ImportPath, to, why))
			}
		}
		for _, to := range p.TestImports {
			if why := forbidden(from, to); why != "" {
				problems = append(problems, fmt.Sprintf("a test inside %s imports %s: %s; move it to package %s_test if it must",
					p.ImportPath, to, why, from))
			}
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// forbidden returns why a package may not import another, or "".
func forbidden(from, importPath string) string {
	to, kind := place(importPath)
	switch {
	case kind == outside, kind == unknown, isFake(importPath): // unknown packages are reported separately
		return ""
	case kind == free:
		return "nothing depends on the tests' own tree"
	case from == to:
		return ""
	}
	for _, r := range restricted {
		if r.to == to && (slices.Contains(r.neverFrom, from) || r.onlyFrom != nil && !slices.Contains(r.onlyFrom, from)) {
			return r.why
		}
	}
	upper, lower := level(from), level(to)
	if upper < lower {
		return ""
	}
	for _, g := range sameLayer {
		if slices.Contains(g.from, from) && slices.Contains(g.to, to) {
			return ""
		}
	}
	if upper == lower {
		return fmt.Sprintf("both are %s, and no exception is listed", layers[upper].name)
	}
	return fmt.Sprintf("%s is above (%s over %s)", to, layers[lower].name, layers[upper].name)
}

type kind int

const (
	outside kind = iota // another module or the standard library
	free                // under test/
	unknown
	placed
)

// place returns the table entry that a package belongs to.
func place(importPath string) (string, kind) {
	if importPath == "turnpike" {
		return importPath, placed
	}
	rest, ours := strings.CutPrefix(importPath, "turnpike/")
	if !ours {
		return "", outside
	}
	top, _, _ := strings.Cut(rest, "/")
	if top == "test" {
		return "", free
	}
	inner, internal := strings.CutPrefix(rest, "internal/")
	name, _, _ := strings.Cut(inner, "/")
	// Only webhook and docs are public. An internal package of that name would be a
	// different one.
	if level(name) < 0 || internal == (name == "webhook" || name == "docs") {
		return name, unknown
	}
	return name, placed
}

// level returns the index of a package's layer, or -1.
func level(name string) int {
	return slices.IndexFunc(layers, func(l layer) bool { return slices.Contains(l.packages, name) })
}

func members(name string) []string {
	i := slices.IndexFunc(layers, func(l layer) bool { return l.name == name })
	return layers[i].packages
}

func list(names string) []string { return strings.Fields(names) }
