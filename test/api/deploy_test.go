package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"turnpike/test/harness"
)

const (
	rulesFile     = "../../deploy/prometheus/turnpike.rules.yml"
	ruleTestsFile = "../../deploy/prometheus/turnpike.rules.test.yml"
	dashboardsDir = "../../deploy/grafana/dashboards"
	grafanaConfig = "../../deploy/grafana/provisioning/*/*.yml"
	runbooksPage  = "/docs/operations/runbooks"
)

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alertRules(t *testing.T) (out []alertRule) {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []alertRule }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) == 0 {
		t.Fatal("no rules")
	}
	return out
}

// dashboardQueries returns the queries of each dashboard, by file and panel.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(dashboardsDir + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	out, ids := map[string]string{}, map[string]string{}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title string
			Templating struct {
				List []struct {
					Name  string
					Query any
				}
			}
			Panels []struct {
				ID      int
				Title   string
				Type    string
				Targets []struct{ Expr, RefID string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.UID == "" || d.Title == "" || ids[d.UID] != "" {
			t.Errorf("%s: uid %q and title %q: want both, and the uid once", name, d.UID, d.Title)
		}
		ids[d.UID] = name
		panels := map[int]bool{}
		for _, p := range d.Panels {
			if panels[p.ID] {
				t.Errorf("%s: two panels with ID %d", name, p.ID)
			}
			panels[p.ID] = true
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: panel %q has no query", name, p.Title)
			}
			for _, q := range p.Targets {
				out[fmt.Sprintf("%s: %s %s", filepath.Base(name), p.Title, q.RefID)] = q.Expr
			}
		}
		for _, v := range d.Templating.List {
			if q, ok := v.Query.(map[string]any); ok {
				out[fmt.Sprintf("%s: variable %s", filepath.Base(name), v.Name)] = fmt.Sprint(q["query"])
			}
		}
	}
	return out
}

var (
	metricName = regexp.MustCompile(`\b(?:turnpike|process|go)_[a-z_]+\b(?:\{[^}]*\})?`)
	labelName  = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`)
)

// checkQuery reports metrics and labels that no series has. Prometheus adds the labels job and instance.
func checkQuery(t *testing.T, where, query string, series map[string]map[string]bool) {
	t.Helper()
	for _, use := range metricName.FindAllString(query, -1) {
		name, selector, _ := strings.Cut(use, "{")
		labels, ok := series[name]
		if !ok {
			t.Errorf("%s: the server has no metric %s", where, name)
		}
		for _, m := range labelName.FindAllStringSubmatch(selector, -1) {
			if m[1] != "job" && m[1] != "instance" && !labels[m[1]] {
				t.Errorf("%s: %s has no label %s", where, name, m[1])
			}
		}
	}
}

func TestDashboardsAndAlertsUseExistingMetrics(t *testing.T) {
	m := newGateway(t, "sqlite", watched)
	m.callAll(t)
	series := map[string]map[string]bool{}
	secure := harness.Config(t, "sqlite") // for the metrics of certificates
	secure.MetricsListen = "127.0.0.1:0"
	secure.TLS.ACME.Domains, secure.TLS.ACME.Directory, secure.TLS.ACME.HTTPListen = []string{"turnpike.example.com"}, "https://127.0.0.1:1/dir", "off"
	for _, line := range append(scrapeText(t, m.Server), scrapeText(t, harness.Start(t, secure, harness.NewClock()))...) {
		s, _, _ := strings.Cut(line, " ")
		name, labels, _ := strings.Cut(s, "{")
		if series[name] == nil {
			series[name] = map[string]bool{}
		}
		for _, l := range regexp.MustCompile(`([a-z_]+)="`).FindAllStringSubmatch(labels, -1) {
			series[name][l[1]] = true
		}
	}
	queries := dashboardQueries(t)
	for _, r := range alertRules(t) {
		queries["alert "+r.Alert] = r.Expr
	}
	for _, where := range slices.Sorted(maps.Keys(queries)) {
		checkQuery(t, where, queries[where], series)
	}
}

func TestEveryAlertHasARunbookAndATest(t *testing.T) {
	t.Parallel()
	tests, err := os.ReadFile(ruleTestsFile)
	if err != nil {
		t.Fatal(err)
	}
	page := string(harness.Shared("sqlite").Do(t, harness.Request{Method: "GET", Path: runbooksPage}).Want(t, 200, "").Body)
	sections := 0
	for _, r := range alertRules(t) {
		_, anchor, found := strings.Cut(r.Annotations["runbook_url"], runbooksPage+"#")
		if !found || anchor != strings.ToLower(r.Alert) || !strings.Contains(page, `id="`+anchor+`"`) {
			t.Errorf("%s: runbook_url %q has no section in the docs", r.Alert, r.Annotations["runbook_url"])
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: got severity %q", r.Alert, s)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		if !strings.Contains(string(tests), "alertname=\""+r.Alert+"\"") {
			t.Errorf("%s has no test in %s", r.Alert, ruleTestsFile)
		}
		sections++
	}
	source, err := os.ReadFile("../../docs/operations/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n## "); n != sections {
		t.Errorf("got %d runbook sections for %d alerts", n, sections)
	}
}

func TestGrafanaProvisioningIsValidYAML(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(grafanaConfig)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			APIVersion  int `yaml:"apiVersion"`
			Providers   []map[string]any
			Datasources []map[string]any
		}
		if err := yaml.Unmarshal(text, &file); err != nil || file.APIVersion != 1 || len(file.Providers)+len(file.Datasources) != 1 {
			t.Errorf("%s: got %+v, %v", name, file, err)
		}
	}
}

// TestAlertRules runs promtool, which setup.sh installs with the argument prometheus.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("promtool is not installed; run: scripts/setup.sh prometheus")
		}
		t.Skip("promtool is not installed; run: scripts/setup.sh prometheus")
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", ruleTestsFile}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
