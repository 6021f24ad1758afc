//go:build unix

package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

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
		"--alert-email", "team@example.com", "--budget", "100", "--limits", `[{"models": ["claude-*"], "budget": 5, "window": "day"}]`, "--json")
	var k map[string]any
	if err := json.Unmarshal([]byte(out), &k); code != 0 || err != nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	show := func(k map[string]any) string {
		text, _ := json.Marshal([]any{k["allowed_models"], k["allowed_providers"], k["alert_thresholds"], k["alert_email"], len(k["limits"].([]any)), k["temporary_raise"] != nil, k["monthly_budget"]})
		return string(text)
	}
	if got, want := show(k), `[["claude-*"],["box"],[50,95],"team@example.com",1,false,100]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	id := k["id"].(string)
	for want, args := range map[string][]string{
		"no model or route":  {"--allowed-models", "nonsense-*"},
		"Unknown provider":   {"--allowed-providers", "nobody"},
		"--limits":           {"--limits", "{"},
		"window is required": {"--limits", `[{"budget": 5}]`},
		"--raise-for":        {"--temporary-raise", "500"},
		"not an email":       {"--alert-email", "nobody"},
	} {
		if code, out := run(append([]string{"keys", "update", id, "--name", "changed"}, args...)...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d: %s; want a failure and %q", args, code, out, want)
		}
	}
	code, out = run("keys", "update", id, "--allowed-models", "", "--limits", "[]", "--temporary-raise", "500", "--raise-for", "48h", "--alert-thresholds", "", "--json")
	if err := json.Unmarshal([]byte(out), &k); code != 0 || err != nil {
		t.Fatalf("exit %d: %s", code, out)
	}
	if got, want := show(k), `[null,["box"],null,"team@example.com",0,true,100]`; got != want || k["name"] != "command line" {
		t.Errorf("got %s of %v, want %s", got, k["name"], want)
	}
}
