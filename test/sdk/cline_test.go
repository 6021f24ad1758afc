//go:build clients

package sdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

// TestClineEditsAFile runs Cline with its OpenAI provider, which offers web search and image generation with
// every request.
func TestClineEditsAFile(t *testing.T) {
	t.Parallel()
	modules, err := npm.Install("cline")
	if err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	data, work := t.TempDir(), t.TempDir()
	cline := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", "cline"), append(args, "--data-dir", data, "-c", work)...)
		cmd.Env = append(os.Environ(), "HOME="+data)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	cline("auth", "-p", "openai-native", "-k", key, "-m", "gpt-5.5", "-b", s.URL+"/v1")
	run := func(command string) string {
		return "tool:run_commands" + quoted(t, map[string]any{"commands": []string{command}}) + ";"
	}
	out := cline("-P", "openai-native", "--json", "Edit the notes. [[sim:script="+run("echo first > notes.txt")+run("echo second >> notes.txt")+"text:All done.]]")
	if text, err := os.ReadFile(filepath.Join(work, "notes.txt")); err != nil || string(text) != "first\nsecond\n" || !strings.Contains(out, "All done.") {
		t.Errorf("got %q, %v\n%s", text, err, out)
	}
}
