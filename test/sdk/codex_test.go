//go:build clients

package sdk_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

// codexModel is Codex's default model.
const codexModel = "gpt-6.1-sol"

// The patches that the model applies, one after the other.
const (
	addPatch    = "*** Begin Patch\n*** Add File: notes.txt\n+first\n*** End Patch\n"
	updatePatch = "*** Begin Patch\n*** Update File: notes.txt\n@@\n-first\n+second \"line\"\n*** End Patch\n"
	patched     = "second \"line\"\n"
)

// codex runs the program in a new repository and returns its directory. Only the address, the key and the
// sandbox, which a container may not have, differ from the defaults.
func codex(t *testing.T, s *harness.Server, key string, args ...string) (repository string) {
	t.Helper()
	repository, out, err := runCodex(t, s.URL, key, args...)
	if err != nil || !strings.Contains(out, "All done.") {
		t.Errorf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(repository, "notes.txt"))
	if err != nil || string(text) != patched {
		t.Errorf("got %q, %v, want %q\n%s", text, err, patched, out)
	}
	return repository
}

func runCodex(t *testing.T, url, key string, args ...string) (repository, output string, err error) {
	t.Helper()
	modules, err := npm.Install("@openai/codex")
	if err != nil {
		t.Fatal(err)
	}
	repository, home := t.TempDir(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", repository).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(fmt.Sprintf("openai_base_url = %q\n", url+"/v1")), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{filepath.Join(modules, "@openai", "codex", "bin", "codex.js"), "exec", "--sandbox", "danger-full-access"}, args...)
	cmd := exec.CommandContext(t.Context(), "node", args...)
	cmd.Dir = repository
	cmd.Env = append(os.Environ(), "CODEX_HOME="+home, "CODEX_API_KEY="+key, "OPENAI_API_KEY=", "OPENAI_BASE_URL=")
	out, err := cmd.CombinedOutput()
	return repository, string(out), err
}

func quoted(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// codexServer has Codex's default model, at a provider that can't be reached.
func codexServer(t *testing.T) *harness.Server {
	t.Helper()
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "openai", Type: config.OpenAI, BaseURL: "http://127.0.0.1:1/v1", APIKey: "x", Weight: 1, Models: []config.ProviderModel{
		{ID: codexModel, Kind: "chat", ContextWindow: 400_000, Capabilities: []string{"tools"}, Price: &config.ModelPrice{Input: "1", Output: "8"}}}}}
	return harness.Start(t, cfg, harness.NewClock())
}

// TestCodexEditsAFileWithATestKey scripts the simulator: a patch, a command, another patch.
func TestCodexEditsAFileWithATestKey(t *testing.T) {
	t.Parallel()
	s := codexServer(t)
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	input := func(text string) string { return quoted(t, map[string]string{"input": text}) }
	t.Run("custom tools", func(t *testing.T) {
		codex(t, s, key, "-m", "gpt-5.5", "Edit the notes. [[sim:script=tool:apply_patch"+input(addPatch)+";tool:exec_command"+quoted(t, map[string]string{"cmd": "cat notes.txt"})+
			";tool:apply_patch"+input(updatePatch)+";text:All done.]]")
	})
	t.Run("default model", func(t *testing.T) {
		run := func(patch string) string {
			return "tool:functions__exec" + input("text(await tools.apply_patch("+quoted(t, patch)+"))") + ";"
		}
		codex(t, s, key, "Edit the notes. [[sim:script="+run(addPatch)+run(updatePatch)+"text:All done.]]")
	})
}

// codexEvents is the stream of a provider with the Responses API.
func codexEvents(t *testing.T, n int, item map[string]any) string {
	t.Helper()
	event := func(kind string, fields map[string]any) string {
		fields["type"] = kind
		return "event: " + kind + "\ndata: " + quoted(t, fields) + "\n\n"
	}
	id := fmt.Sprintf("resp_%d", n)
	return event("response.created", map[string]any{"sequence_number": 0, "response": map[string]any{"id": id, "object": "response", "status": "in_progress", "output": []any{}}}) +
		event("response.output_item.added", map[string]any{"sequence_number": 1, "output_index": 0, "item": item}) +
		event("response.output_item.done", map[string]any{"sequence_number": 2, "output_index": 0, "item": item}) +
		event("response.completed", map[string]any{"sequence_number": 3, "response": map[string]any{"id": id, "object": "response", "status": "completed", "output": []any{item},
			"usage": map[string]any{"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050, "input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens_details": map[string]any{"reasoning_tokens": 10}}}})
}

// TestCodexEditsAFileWithALiveKey passes the requests through to a provider with the Responses API. The
// charge and the log are exact.
func TestCodexEditsAFileWithALiveKey(t *testing.T) {
	t.Parallel()
	provider := upstreams.NewOpenAI(t, upstreamKey)
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "openai", Type: config.OpenAI, BaseURL: config.Address(provider.BaseURL()), APIKey: upstreamKey, Weight: 1, ResponsesAPI: new(true), Models: []config.ProviderModel{
		{ID: "gpt-5.5", Kind: "chat", ContextWindow: 400_000, Price: &config.ModelPrice{Input: "1", Output: "8"}}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	budget := credits.Micro(1_000_000_000)
	w := s.Workspace(t, "acme")
	key, id := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "codex", Scopes: []string{"*"}, MonthlyBudget: &budget})
	patch := func(n int, text string) map[string]any {
		return map[string]any{"id": fmt.Sprintf("ctc_%d", n), "type": "custom_tool_call", "status": "completed", "call_id": fmt.Sprintf("call_%d", n), "name": "apply_patch", "input": text}
	}
	for n, item := range []map[string]any{patch(1, addPatch), patch(2, updatePatch),
		{"id": "msg_3", "type": "message", "role": "assistant", "status": "completed", "content": []any{map[string]any{"type": "output_text", "text": "All done.", "annotations": []any{}}}}} {
		provider.Queue(upstreams.OpenAIReply{Body: codexEvents(t, n, item)})
	}
	codex(t, s, key, "-m", "gpt-5.5", "Edit the notes.")
	const each = 1000*1_000 + 50*8_000 // microcredits
	if got := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys/" + id, Key: key}).Want(t, 200, ""); got.At("spent_this_month") != float64(3*each)/1e6 {
		t.Errorf("got %v, want %v", got.At("spent_this_month"), float64(3*each)/1e6)
	}
	log := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=100&model=gpt-5.5", Key: key}).Want(t, 200, "")
	if n := len(log.At("data").([]any)); n != 3 {
		t.Errorf("got %d log entries, want 3: %s", n, log.Body)
	}
	upgrades := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=100&status=101", Key: key}).Want(t, 200, "")
	if n := len(upgrades.At("data").([]any)); n != 1 {
		t.Errorf("got %d WebSockets, want 1: %s", n, upgrades.Body)
	}
	for _, r := range provider.Requests() {
		if r.Path != "/responses" || !strings.Contains(string(r.Body), `"type":"custom"`) || !strings.Contains(string(r.Body), `"type":"web_search"`) {
			t.Errorf("got provider request %s %.200s", r.Path, r.Body)
		}
	}
}
