//go:build clients

package sdk_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

// codingAgent is a program of an npm package that edits files.
type codingAgent struct {
	name     string
	settings string // the content of a file, with the server's URL
	file     string
	command  []string
	prompt   string // the directory replaces DIR
	stdin    bool   // the prompt is the standard input
}

const (
	openCodeSettings = `{"provider": {
		"turnpike": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "%[1]s/v1", "apiKey": "{env:TURNPIKE_API_KEY}"}, "models": {"claude-sonnet-5": {}}},
		"anthropic": {"options": {"baseURL": "%[1]s/v1", "apiKey": "{env:TURNPIKE_API_KEY}"}}},
		"small_model": "turnpike/claude-sonnet-5"}`
	openCodePrompt = `Write a note. [[sim:script=tool:write{"filePath":"DIR/notes.txt","content":"first\n"};` +
		`tool:edit{"filePath":"DIR/notes.txt","oldString":"first","newString":"second"};text:All done.]]`
	qwenPrompt = `Write a note. [[sim:script=tool:write_file{"file_path":"DIR/notes.txt","content":"first\n"};` +
		`tool:edit{"file_path":"DIR/notes.txt","old_string":"first","new_string":"second"};text:All done.]]`
	continueSettings = `{"name": "Turnpike", "version": "1.0.0", "schema": "v1", "models": [{"name": "model", "provider": "openai", "model": "gpt-5.4",
		"apiBase": "%s/v1", "apiKey": "${{ secrets.TURNPIKE_API_KEY }}"}]}`
	continuePrompt = `Write a note. [[sim:script=tool:Write{"filepath":"notes.txt","content":"first\n"};tool:Read{"filepath":"DIR/notes.txt"};` +
		`tool:Write{"filepath":"notes.txt","content":"second\n"};text:All done.]]`
)

func TestCodingAgentsEditAFile(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]codingAgent{
		"opencode":                     {"opencode-ai", openCodeSettings, "opencode.json", []string{"opencode", "run", "--title", "Notes", "-m", "turnpike/claude-sonnet-5"}, openCodePrompt, true},
		"opencode in Anthropic format": {"opencode-ai", openCodeSettings, "opencode.json", []string{"opencode", "run", "--title", "Notes", "-m", "anthropic/claude-sonnet-4-5"}, openCodePrompt, true},
		"Continue":                     {"@continuedev/cli", continueSettings, "continue.yaml", []string{"cn", "--config", "continue.yaml", "--auto", "-p"}, continuePrompt, false},
		"Qwen Code":                    {"@qwen-code/qwen-code", "%s\n", "server.txt", []string{"qwen", "--auth-type", "openai", "--yolo", "-p"}, qwenPrompt, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			modules, err := npm.Install(p.name)
			if err != nil {
				t.Fatal(err)
			}
			s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
			home, repository := t.TempDir(), t.TempDir()
			if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", repository).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := os.WriteFile(filepath.Join(repository, p.file), []byte(fmt.Sprintf(p.settings, s.URL)), 0o600); err != nil {
				t.Fatal(err)
			}
			prompt := strings.ReplaceAll(p.prompt, "DIR", repository)
			cmd := exec.CommandContext(t.Context(), filepath.Join(modules, ".bin", p.command[0]), p.command[1:]...)
			if p.stdin {
				cmd.Stdin = strings.NewReader(prompt)
			} else {
				cmd.Args = append(cmd.Args, prompt)
			}
			if cmd.Env, err = npm.Environment(modules); err != nil {
				t.Fatal(err)
			}
			cmd.Env, cmd.Dir = append(cmd.Env, "PWD="+repository, "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "TURNPIKE_API_KEY="+key, "OPENCODE_DISABLE_MODELS_FETCH=1"), repository
			if name == "Qwen Code" { // it has no file for these settings
				cmd.Env = append(cmd.Env, "OPENAI_BASE_URL="+s.URL+"/v1", "OPENAI_API_KEY="+key, "OPENAI_MODEL=gpt-5.4")
			}
			out, err := cmd.CombinedOutput()
			text, readErr := os.ReadFile(filepath.Join(repository, "notes.txt"))
			if err != nil || readErr != nil || string(text) != "second\n" || !strings.Contains(string(out), "All done.") {
				t.Errorf("got %q, %v, %v\n%s", text, err, readErr, out)
			}
		})
	}
}
