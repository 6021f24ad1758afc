package fault_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"turnpike/internal/fault"
)

const errorsDoc = "../../docs/reference/errors.md"

// TestDocsExplainEveryErrorCode compares docs/reference/errors.md with the codes in the
// source: of the API, of runs and jobs, of deliveries and of attempts at providers.
func TestDocsExplainEveryErrorCode(t *testing.T) {
	t.Parallel()
	sections := readSections(t)
	runs := runCodes(t)
	jobs := constants(t, "../media", regexp.MustCompile(`^code[A-Z]`))
	classes := append(returned(t, "../safehttp", "classify"), "status", "redirect")
	outcomes := append(constants(t, "../providers", regexp.MustCompile(`^Kind[A-Z]`)), constants(t, "../gateway", regexp.MustCompile(`^Attempt[A-Z]`))...)

	documented := slices.Collect(maps.Keys(sections.entries))
	compare(t, "codes with a heading", documented, slices.Concat(apiCodes(), runs, jobs))
	compare(t, "codes in the table of run errors", sections.rows["Run error codes"], runs)
	compare(t, "codes in the table of job errors", sections.rows["Job error codes"], jobs)
	compare(t, "delivery error classes", sections.rows["Delivery error classes"], classes)
	compare(t, "discard reasons", sections.rows["Discard reasons"], constants(t, "../webhooks", regexp.MustCompile(`^Discarded[A-Z]`)))
	compare(t, "attempt outcomes", sections.rows["Attempt outcomes"], outcomes)
}

func TestDocsGiveStatusAndRetriesOfEachCode(t *testing.T) {
	t.Parallel()
	sections := readSections(t)
	for code, family := range fault.Codes() {
		entry := sections.entries[string(code)]
		status := "- **Status:** `" + strconv.Itoa(family.Status) + "`, type `" + family.Type + "`\n"
		retryable := "no"
		if code.Retryable() {
			retryable = "yes"
		}
		for _, line := range []string{status, "- **Cause:** ", "- **Fix:** ", "- **Retryable:** " + retryable} {
			if !strings.Contains(entry, line) {
				t.Errorf("%s: the entry of %s lacks %q", errorsDoc, code, line)
			}
		}
	}
}

type docSections struct {
	entries map[string]string   // text below each heading of the third level
	rows    map[string][]string // codes in the first column of tables, by heading of the second level
}

func readSections(t *testing.T) docSections {
	t.Helper()
	doc, err := os.ReadFile(errorsDoc)
	if err != nil {
		t.Fatal(err)
	}
	s := docSections{entries: map[string]string{}, rows: map[string][]string{}}
	codes := regexp.MustCompile("`([a-z_]+)`")
	section, code := "", ""
	for line := range strings.Lines(string(doc)) {
		switch {
		case strings.HasPrefix(line, "## "):
			section, code = strings.TrimSpace(line[3:]), ""
		case strings.HasPrefix(line, "### "):
			code = strings.TrimSpace(line[4:])
			if _, twice := s.entries[code]; twice {
				t.Errorf("%s has two headings %s", errorsDoc, code)
			}
			s.entries[code] = ""
		case code != "":
			s.entries[code] += line
		case strings.HasPrefix(line, "| "):
			for _, m := range codes.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				s.rows[section] = append(s.rows[section], m[1])
			}
		}
	}
	return s
}

func apiCodes() (list []string) {
	for code := range fault.Codes() {
		list = append(list, string(code))
	}
	return list
}

// runCodes returns the codes of runs: literals that become the code of a run's error, and the
// API's codes that package agents passes on (string(fault.X), or a case above code = string(f.Code)).
func runCodes(t *testing.T) (list []string) {
	for _, file := range parse(t, "../agents") {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				switch name := functionName(n); {
				case name == "runError" && len(n.Args) > 0:
					list = append(list, codesIn(n.Args[0])...)
				case name == "retry" && len(n.Args) > 2:
					list = append(list, codesIn(n.Args[2])...)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if id, ok := left.(*ast.Ident); ok && id.Name == "code" && i < len(n.Rhs) {
						list = append(list, codesIn(n.Rhs[i])...)
					}
				}
			case *ast.CaseClause:
				if slices.ContainsFunc(n.Body, setsCode) {
					for _, e := range n.List {
						list = append(list, codesIn(e)...)
					}
				}
			}
			return true
		})
	}
	return list
}

// setsCode reports whether a statement sets code to string(f.Code).
func setsCode(s ast.Stmt) bool {
	assign, ok := s.(*ast.AssignStmt)
	if !ok {
		return false
	}
	id, ok := assign.Lhs[0].(*ast.Ident)
	return ok && id.Name == "code"
}

// codesIn returns the codes in an expression: literals, and constants of package fault.
func codesIn(e ast.Expr) (list []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil {
				list = append(list, s)
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "fault" {
				list = append(list, constantValues(nil, ".", regexp.MustCompile("^[A-Z]"))[n.Sel.Name])
			}
		}
		return true
	})
	return list
}

// constants returns the values of a package's string constants whose name matches.
func constants(t *testing.T, dir string, name *regexp.Regexp) []string {
	t.Helper()
	return slices.Collect(maps.Values(constantValues(t, dir, name)))
}

func constantValues(t *testing.T, dir string, name *regexp.Regexp) map[string]string {
	out := map[string]string{}
	for _, file := range parse(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, id := range spec.Names {
				if i >= len(spec.Values) || !name.MatchString(id.Name) {
					continue
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					out[id.Name], _ = strconv.Unquote(literal.Value)
				}
			}
			return true
		})
	}
	return out
}

// returned returns the literals in the first result of a function.
func returned(t *testing.T, dir, function string) (list []string) {
	t.Helper()
	for _, file := range parse(t, dir) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != function || f.Recv != nil {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok {
					list = append(list, codesIn(r.Results[0])...)
				}
				return true
			})
		}
	}
	return list
}

func functionName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

func parse(t *testing.T, dir string) (list []*ast.File) {
	files, err := fs.Glob(os.DirFS(dir), "*.go")
	if err == nil {
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			var file *ast.File
			if file, err = parser.ParseFile(token.NewFileSet(), dir+"/"+name, nil, 0); err != nil {
				break
			}
			list = append(list, file)
		}
	}
	if t != nil && (err != nil || len(list) == 0) {
		t.Fatalf("parse %s: %v, %d files", dir, err, len(list))
	}
	return list
}

// withoutDuplicates also drops the empty string, which isn't a code.
func withoutDuplicates(list []string) []string {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = withoutDuplicates(got), withoutDuplicates(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has these %s:\n%v\nand the code these:\n%v", errorsDoc, what, got, want)
	}
}
