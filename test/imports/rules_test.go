// Package imports holds the table of who may import whom, and checks it.
package imports

import (
	"fmt"
	"slices"
	"strings"
)

// layers is the tree from top to bottom. A package may import what stands in a
// lower layer, and beyond that only what the tables below grant. A package
// inside another's folder (providers/openai, db/migrations) belongs to it.
var layers = []layer{
	{"program", list("turnpike")},
	{"commands", list("cli")},
	{"wiring", list("app")},
	{"faces", list("api dashboard tunnel")},
	{"engines", list("gateway providers media agents webhooks leaks lanes mail retention")},
	{"records", list("accounts idempotency access people limits spend catalog events audit files")},
	{"settings", list("config")},
	{"upper ground", list("nodes visibility openai")},
	{"middle ground", list("db safehttp jsonbody keyring visitors connlimit")},
	{"lower ground", list("ids fault credits durable audio clientip assets")},
	{"public", list("webhook")},
}

// beside lists the imports between neighbours of one layer.
var beside = []grant{
	{from: list("agents"), to: list("gateway")},
	{from: list("media"), to: list("gateway providers")},
	{from: list("gateway"), to: list("providers")},
	{from: members("engines"), to: list("lanes mail retention")},
	{from: members("records"), to: list("accounts events audit")},
	{from: list("spend"), to: list("catalog")},
	{from: list("people"), to: list("access")}, // what a role may do stands there
	{from: list("api"), to: list("tunnel")},    // its route hands the connection over
}

// restricted takes back what the layers alone would allow, or says once more,
// with the reason, what must not be granted later.
var restricted = []restriction{
	{to: "config", onlyFrom: list("cli app"), why: "everything else takes its settings by its constructor"},
	{to: "cli", onlyFrom: list("turnpike"), why: "the command line is the top"},
	{to: "access", neverFrom: list("limits"), why: "limits takes ids, not Principals"},
	{to: "api", neverFrom: list("dashboard"), why: "both call records and engines with a Principal"},
	{to: "leaks", neverFrom: list("gateway"), why: "a leak is reported through api"},
}

// testOnly reports whether a package serves tests only: those named like dbtest
// and the fakes of other services. No code that ships imports them.
func testOnly(importPath string) bool {
	return isFake(importPath) || strings.HasPrefix(importPath, "turnpike/internal/") && strings.HasSuffix(importPath, "test")
}

// isFake reports whether a package is one of test/fakes, which every test may import.
func isFake(importPath string) bool { return strings.HasPrefix(importPath, "turnpike/test/fakes/") }

type layer struct {
	name     string
	packages []string
}

type grant struct{ from, to []string }

type restriction struct {
	to        string
	onlyFrom  []string // if set, the only ones that may
	neverFrom []string
	why       string
}

// pkg is what the check needs to know of a package; the JSON is go list's.
// External test packages (package x_test) may import what they like, so
// XTestImports is left out.
type pkg struct {
	ImportPath  string
	Imports     []string
	TestImports []string
}

// check returns one sentence for each import that the tables forbid and for
// each package they do not know.
func check(packages []pkg) []string {
	var problems []string
	for _, p := range packages {
		from, kind := place(p.ImportPath)
		switch kind {
		case outside, free:
			continue
		case unknown:
			problems = append(problems, fmt.Sprintf(
				"%s has no place: add %q to a layer in test/imports/rules_test.go, and to the tree in the README", p.ImportPath, from))
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

// forbidden says why a package of the module may not import another, or nothing.
func forbidden(from, importPath string) string {
	to, kind := place(importPath)
	switch {
	case kind == outside, kind == unknown, isFake(importPath): // an unknown one is reported by itself
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
	for _, g := range beside {
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
	outside kind = iota // another module, or the standard library
	free                // under test/
	unknown
	placed
)

// place names the entry of the tables that a package belongs to.
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
	// Only webhook is public; an internal package of that name would be another.
	if level(name) < 0 || internal == (name == "webhook") {
		return name, unknown
	}
	return name, placed
}

// level is the index of a package's layer, or -1.
func level(name string) int {
	return slices.IndexFunc(layers, func(l layer) bool { return slices.Contains(l.packages, name) })
}

func members(name string) []string {
	i := slices.IndexFunc(layers, func(l layer) bool { return l.name == name })
	return layers[i].packages
}

func list(names string) []string { return strings.Fields(names) }
