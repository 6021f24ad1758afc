package imports

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestImportsPointDownward(t *testing.T) {
	t.Parallel()
	for _, problem := range check(listPackages(t)) {
		t.Error(problem)
	}
}

// A table that allows everything would pass the test above as well.
func TestForbiddenImportsAreReported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to string
		want     string // part of the report; empty: allowed
	}{
		"downward":                     {"internal/api", "internal/access", ""},
		"down to the ground":           {"internal/cli", "internal/ids", ""},
		"the standard library":         {"internal/ids", "net/http", ""},
		"within a package's directory": {"internal/providers/openai", "internal/providers", ""},
		"upward":                       {"internal/access", "internal/api", "api is above"},
		"upward from a subfolder":      {"internal/providers/openai", "internal/app", "app is above"},
		"between faces":                {"internal/tunnel", "internal/api", "both are faces"},
		"between engines":              {"internal/webhooks", "internal/media", "both are engines"},
		"agents call models":           {"internal/agents", "internal/gateway", ""},
		"models do not call agents":    {"internal/gateway", "internal/agents", "both are engines"},
		"media to a provider":          {"internal/media", "internal/providers/espeak", ""},
		"an engine to the queue":       {"internal/webhooks", "internal/lanes", ""},
		"the queue to an engine":       {"internal/lanes", "internal/webhooks", "both are engines"},
		"a record to events":           {"internal/spend", "internal/events", ""},
		"spend reads prices":           {"internal/spend", "internal/catalog", ""},
		"prices do not read spend":     {"internal/catalog", "internal/spend", "both are records"},
		"limits take ids":              {"internal/limits", "internal/access", "not Principals"},
		"dashboard next to api":        {"internal/dashboard", "internal/api", "with a Principal"},
		"leaks from the gateway":       {"internal/gateway", "internal/leaks", "through api"},
		"leaks from api":               {"internal/api", "internal/leaks", ""},
		"settings for the wiring":      {"internal/app", "internal/config", ""},
		"settings for a face":          {"internal/api", "internal/config", "by its constructor"},
		"settings for a record":        {"internal/access", "internal/config", "by its constructor"},
		"settings on a record":         {"internal/config", "internal/access", "access is above"},
		"nodes on the database":        {"internal/nodes", "internal/db", ""},
		"the database on nodes":        {"internal/db", "internal/nodes", "nodes is above"},
		"the database on values":       {"internal/db", "internal/fault", ""},
		"values on each other":         {"internal/ids", "internal/fault", "both are lower ground"},
		"the public package in use":    {"internal/webhooks", "webhook", ""},
		"the public package on ours":   {"webhook", "internal/ids", "ids is above"},
		"main calls cli":               {"", "internal/cli", ""},
		"cli from below":               {"internal/app", "internal/cli", "the top"},
		"the tests' tree is free":      {"test/chaos", "internal/db/dbtest", ""},
		"the tests' tree is not used":  {"internal/db", "test/chaos", "tests' own tree"},
		"test help in shipped code":    {"internal/access", "internal/db/dbtest", "for tests only"},
		"test help in test help":       {"internal/access/accesstest", "internal/db/dbtest", ""},
		"a fake in shipped code":       {"internal/access", "test/fakes/upstreams", "for tests only"},
		"a package without a place":    {"internal/helpers", "fmt", "has no place"},
		"a second public package":      {"access", "fmt", "has no place"},
		"an internal webhook":          {"internal/webhook", "fmt", "has no place"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(check([]pkg{{ImportPath: full(c.from), Imports: []string{full(c.to)}}}), "\n")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("%s -> %s reported %q, want %q", c.from, c.to, got, c.want)
			}
		})
	}
}

func TestInternalTestsFollowTheTableButMayUseTestPackages(t *testing.T) {
	t.Parallel()
	got := check([]pkg{{
		ImportPath:  "turnpike/internal/access",
		TestImports: []string{"testing", "turnpike/internal/db/dbtest", "turnpike/test/fakes/upstreams", "turnpike/internal/api"},
	}})
	if len(got) != 1 || !strings.Contains(got[0], "imports turnpike/internal/api") {
		t.Errorf("reported %q, want the import of api alone", got)
	}
}

// full expands the short names above to import paths.
func full(name string) string {
	if name == "" {
		return "turnpike"
	}
	for _, ours := range []string{"internal/", "test/", "webhook", "access"} {
		if strings.HasPrefix(name, ours) {
			return "turnpike/" + name
		}
	}
	return name
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	watchSources(t)
	// -e: the compiler reports code that doesn't build.
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,TestImports", "turnpike/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list found no packages")
	}
	return packages
}

// watchSources stats every source file. go test caches a result until the files that
// the test itself read change, and it can't see the files that go list reads.
func watchSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // a temporary file that is gone
			return nil
		}
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".go" {
			_, _ = os.Stat(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
