//go:build clients

package sdk_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/harness"
)

// suite are openai-go's tests of the endpoints that Turnpike has. The other tests of that module are about endpoints that
// Turnpike doesn't have, or about the client itself.
const suite = "^Test(Audio(Speech|Transcription|Translation)New|Batch(New|Get|List|Cancel)|ChatCompletion(New|Get|Update|List|Delete|Message)|CompletionNew|EmbeddingNew|" +
	"File(New|Get|List|Delete|Content)|Image(New|Edit|Generate)|Model(Get|List|Delete)|Video(New|Get|List|Delete|Download|Edit|Extend|Remix)|Usage$|" +
	"InputItem|InputToken|Response(New|Get|Delete|Cancel|Compact)|Conversation(New|Get|Update|Delete)|Item(New|Get|List|Delete))"

// TestOpenAIGoSuite runs the tests of openai-go, which are written for a mock of OpenAI's API, against Turnpike. Those in
// testdata/openai-go.txt fail, for the reason that it has.
func TestOpenAIGoSuite(t *testing.T) {
	t.Parallel()
	known := knownFailures(t, "testdata/openai-go.txt")
	cfg := harness.Config(t, "sqlite")
	// The tests use models that the built-in table doesn't have yet.
	price := &config.ModelPrice{Input: "1", Output: "8"}
	cfg.Providers = []config.Provider{{Name: "openai", Type: config.OpenAI, BaseURL: "http://127.0.0.1:1/v1", APIKey: "x", Weight: 1, Models: []config.ProviderModel{
		{ID: "gpt-6-astra", Kind: "chat", ContextWindow: 400_000, Capabilities: []string{"tools"}, Price: price}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	s.Clock.Run(t)
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	to, err := url.Parse(s.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	objects := suiteObjects{t, s, key}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Path = objects.replace(r.Out.Method, r.Out.URL.Path)
		// Lists are requested with values that only a mock accepts.
		query := r.Out.URL.Query()
		for name, value := range map[string]string{"limit": "0", "after": "after", "purpose": "purpose"} {
			if query.Get(name) == value {
				query.Del(name)
			}
		}
		r.Out.URL.RawQuery = query.Encode()
		r.SetURL(to)
		r.Out.Header.Set("Authorization", "Bearer "+key)
	}})
	t.Cleanup(proxy.Close)
	const module = "github.com/openai/openai-go/v3"
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-json", "-run", suite, module, module+"/responses", module+"/conversations")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "TEST_API_BASE_URL="+proxy.URL)
	out, err := cmd.Output()
	if len(out) == 0 {
		t.Fatal(err)
	}
	passed, failed, printed := 0, 0, map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e struct{ Action, Test, Output string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Bytes())
		}
		printed[e.Test] += e.Output
		if e.Test == "" || strings.Contains(e.Test, "/") {
			continue
		}
		switch reason := known[e.Test]; {
		case e.Action == "fail" && reason == "":
			t.Errorf("%s", printed[e.Test])
		case e.Action == "pass" && reason != "":
			t.Errorf("%s passes now: delete it from the known failures", e.Test)
		case e.Action == "fail":
			failed++
		case e.Action == "pass":
			passed++
		}
	}
	t.Logf("%d tests passed, and %d failed as expected", passed, failed)
	if passed < 20 || failed != len(known) {
		t.Errorf("%d tests passed and %d failed as expected, want at least 20, and %d\n%s", passed, failed, len(known), printed[""])
	}
}

// knownFailures reads a file with lines of the form NAME: REASON.
func knownFailures(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, reason, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(line, "#") {
			known[name] = reason
		}
	}
	return known
}

// suiteObjects creates an object for each request of the suite that has a fixed ID.
type suiteObjects struct {
	*testing.T
	server *harness.Server
	key    string
}

// replace returns a path with the ID of a new object in place of the suite's.
func (o suiteObjects) replace(method, path string) string {
	for _, id := range []string{"response_id", "resp_677efb5139a88190b512bc3fef8e535d"} {
		if strings.Contains(path, id) {
			background := strings.HasSuffix(path, "/cancel")
			return strings.Replace(path, id, o.create("/v1/responses", map[string]any{"model": "gpt-4o-mini", "input": "Hi. [[sim:delay=1s]]", "background": background})["id"].(string), 1)
		}
	}
	switch {
	case strings.Contains(path, "conv_123"):
		c := o.create("/v1/conversations", map[string]any{"items": []any{map[string]any{"type": "message", "role": "user", "content": "Hi."}}})
		if strings.Contains(path, "msg_abc") {
			items := o.server.Do(o.T, harness.Request{Method: "GET", Path: "/v1/conversations/" + c["id"].(string) + "/items", Key: o.key})
			path = strings.Replace(path, "msg_abc", items.Text("data.0.id"), 1)
		}
		return strings.Replace(path, "conv_123", c["id"].(string), 1)
	case strings.Contains(path, "file_id"):
		return strings.Replace(path, "file_id", o.upload(), 1)
	case strings.Contains(path, "batch_id"):
		b := o.create("/v1/batches", map[string]any{"input_file_id": o.upload(), "endpoint": "/v1/chat/completions", "completion_window": "24h"})
		return strings.Replace(path, "batch_id", b["id"].(string), 1)
	case strings.Contains(path, "video_123"):
		id := o.create("/v1/videos", map[string]any{"prompt": "A road", "seconds": "4"})["id"].(string)
		if method != http.MethodPost {
			o.server.Eventually(o.T, func() bool {
				return o.server.Do(o.T, harness.Request{Method: "GET", Path: "/v1/videos/" + id, Key: o.key}).Text("status") == "completed"
			})
		}
		return strings.Replace(path, "video_123", id, 1)
	}
	return path
}

func (o suiteObjects) create(path string, body map[string]any) (object map[string]any) {
	r := o.server.Do(o.T, harness.Request{Method: "POST", Path: path, Key: o.key, Body: body})
	if err := json.Unmarshal(r.Body, &object); err != nil || object["id"] == nil {
		o.Errorf("POST %s returned %s", path, r.Body)
		return map[string]any{"id": "none"}
	}
	return object
}

// upload uploads a file for a batch and returns its ID.
func (o suiteObjects) upload() string {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "in.jsonl")
	if err == nil {
		_, err = io.WriteString(part, `{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"model":"gpt-4o-mini","messages":[{"role":"user","content":"Hi. [[sim:delay=2s]]"}]}}`+"\n")
	}
	if err != nil || w.WriteField("purpose", "batch") != nil || w.Close() != nil {
		o.Errorf("write a form: %v", err)
	}
	req, err := http.NewRequestWithContext(o.Context(), "POST", o.server.URL+"/v1/files", &form)
	if err != nil {
		o.Error(err)
		return "none"
	}
	req.Header.Set("Content-Type", w.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+o.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.Error(err)
		return "none"
	}
	defer res.Body.Close()
	var file struct{ ID string }
	if err := json.NewDecoder(res.Body).Decode(&file); err != nil || file.ID == "" {
		o.Errorf("upload a file: %s, %v", res.Status, err)
	}
	return file.ID
}
