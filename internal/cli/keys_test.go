//go:build unix

package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/spend"
)

func TestAlertThresholdsOfWorkspaceOnTheCommandLine(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	run := func(args ...string) (code int, out string) { return runMain(append(args, "--data", l.Data)...) }
	for _, args := range [][]string{{"create", "acme"}, {"update", "acme", "--alert-thresholds", "60,90", "--user-alert-thresholds", "70"}} {
		if code, out := run(append([]string{"workspaces"}, args...)...); code != 0 {
			t.Fatal(out)
		}
	}
	for _, bad := range []string{"x", "0", "90,90"} {
		for _, flag := range []string{"--alert-thresholds", "--user-alert-thresholds"} {
			if code, out := run("workspaces", "update", "acme", flag, bad); code == 0 || !strings.Contains(out, "threshold") {
				t.Errorf("%s %s: exit %d: %s", flag, bad, code, out)
			}
		}
	}
	if code, out := run("export", "--workspace", "acme"); code != 0 || !strings.Contains(out, "alert_thresholds: [60, 90]") {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestKeyControlsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	file := write(t, "turnpike.yaml", `providers: [{name: box, type: openai, base_url: "http://127.0.0.1:1/v1", local: true, models: [{id: m}]}]`)
	run := func(args ...string) (code int, out string) {
		return runMain(append(args, "--data", l.Data, "--config", file)...)
	}
	if code, out := run("workspaces", "create", "acme"); code != 0 {
		t.Fatal(out)
	}
	code, out := run("keys", "create", "--env", "test", "--workspace", "acme", "--allowed-models", "claude-*", "--allowed-providers", "box", "--alert-thresholds", "50,95",
		"--alert-email", "team@example.com", "--budget", "100", "--limits", `[{"models": ["claude-*"], "budget": 5, "window": "day"}]`, "--external-id", "team-7", "--metadata", "team=red,cost=7", "--allowed-tools", "docs__search", "--json")
	var k map[string]any
	if err := json.Unmarshal([]byte(out), &k); code != 0 || err != nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	show := func(k map[string]any) string {
		text, _ := json.Marshal([]any{k["allowed_models"], k["allowed_providers"], k["alert_thresholds"], k["alert_email"], len(k["limits"].([]any)), k["temporary_raise"] != nil, k["monthly_budget"], k["external_id"], k["metadata"], k["allowed_tools"]})
		return string(text)
	}
	if got, want := show(k), `[["claude-*"],["box"],[50,95],"team@example.com",1,false,100,"team-7",{"cost":"7","team":"red"},["docs__search"]]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	id := k["id"].(string)
	for want, args := range map[string][]string{
		"no model of this server": {"--allowed-models", "nonsense-*"},
		"Unknown provider":        {"--allowed-providers", "nobody"},
		"--limits":                {"--limits", "{"},
		"window is required":      {"--limits", `[{"budget": 5}]`},
		"--raise-for":             {"--temporary-raise", "500"},
		"not an email":            {"--alert-email", "nobody"},
	} {
		if code, out := run(append([]string{"keys", "update", id, "--name", "changed"}, args...)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d: %s; want a failure and %q", args, code, out, want)
		}
	}
	code, out = run("keys", "update", id, "--allowed-models", "", "--limits", "[]", "--temporary-raise", "500", "--raise-for", "48h", "--alert-thresholds", "", "--metadata", "", "--external-id", "", "--json")
	if err := json.Unmarshal([]byte(out), &k); code != 0 || err != nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	if got, want := show(k), `[null,["box"],null,"team@example.com",0,true,100,null,{},["docs__search"]]`; got != want || k["name"] != "command line" {
		t.Errorf("got %s of %v, want %s", got, k["name"], want)
	}
}

func TestBudgetBelowSpendingIsRefusedOnTheCommandLine(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	run := func(args ...string) (code int, out string) { return runMain(append(args, "--data", l.Data)...) }
	if code, out := run("workspaces", "create", "acme"); code != 0 {
		t.Fatal(out)
	}
	code, out := run("keys", "create", "--env", "live", "--workspace", "acme", "--name", "bot", "--json")
	var k struct{ ID string }
	if err := json.Unmarshal([]byte(out), &k); code != 0 || err != nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	s, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO spend (level, account_id, period, settled, leased) VALUES ('key', $1, $2, $3, 0)", k.ID, string(spend.PeriodOf(time.Now())), int64(2*credits.Credit))
		return err
	})
	s.Close()
	if err != nil {
		t.Fatal(err)
	}
	const refusal = "monthly_budget cannot be 1.5, because 2 credits are already spent. Set at least 2."
	if code, out := run("keys", "update", k.ID, "--budget", "1.5", "--name", "renamed"); code == 0 || !strings.Contains(out, refusal) {
		t.Errorf("exit %d: %s; want %s", code, out, refusal)
	}
	file := func(budget string) string {
		return write(t, "acme.yaml", "workspaces:\n  - name: acme\n    keys:\n      - name: bot\n        monthly_budget: "+budget+"\n")
	}
	if code, out := run("apply", "-f", file("1.5")); code == 0 || !strings.Contains(out, "acme.yaml:5: monthly_budget: "+refusal) {
		t.Errorf("exit %d: %s; want line 5 and %s", code, out, refusal)
	}
	if code, out := run("apply", "-f", file("2")); code != 0 || !strings.Contains(out, "monthly_budget: null -> 2") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := run("keys", "update", k.ID, "--budget", "0"); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
}

func TestListsNameRoutesOfTheWorkspaceOnTheCommandLine(t *testing.T) {
	t.Parallel()
	l := dataDirectory(t)
	config := write(t, "turnpike.yaml", `providers: [{name: box, type: openai, base_url: "http://127.0.0.1:1/v1", local: true, models: [{id: m}]}]`)
	run := func(args ...string) (code int, out string) {
		return runMain(append(args, "--data", l.Data, "--config", config)...)
	}
	// The routes come last in the file. Projects and keys can name them.
	file := func(routeOfKey string) string {
		return write(t, "acme.yaml", `
workspaces:
  - name: acme
    projects:
      - id: red
        allowed_models: [route/red-only, route/own]
    keys:
      - name: bot
        scopes: ["*"]
        allowed_models: [`+routeOfKey+`]
    routes:
      - {name: own, models: [m]}
      - {name: red-only, models: [m], project: red}
`)
	}
	secrets := filepath.Join(t.TempDir(), "secrets.json")
	// The key isn't in the project.
	if code, out := run("apply", "-f", file("route/red-only"), "--secrets-file", secrets); code == 0 || !strings.Contains(out, `acme.yaml:10: allowed_models: Unknown route "route/red-only"`) {
		t.Errorf("exit %d: %s", code, out)
	}
	for _, want := range []string{"5 changed.", "No changes."} {
		if code, out := run("apply", "-f", file("route/own"), "--secrets-file", secrets); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d: %s; want %s", code, out, want)
		}
	}
	create := func(args ...string) (int, string) {
		return run(append([]string{"keys", "create", "--env", "live", "--workspace", "acme", "--allowed-models", "route/red-only"}, args...)...)
	}
	if code, out := create(); code == 0 || !strings.Contains(out, "Unknown route") {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := create("--project", "red"); code != 0 {
		t.Errorf("exit %d: %s", code, out)
	}
}
