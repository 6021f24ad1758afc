package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestNumberOfJSONValuesInABodyIsBounded(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	list := func(value string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
	}
	for name, c := range map[string]struct{ path, body string }{
		"items":    {"/v1/responses", `{"model":"gpt-4o-mini","input":` + list("{}", 100_000) + `}`},
		"messages": {"/v1/chat/completions", `{"model":"gpt-4o-mini","messages":` + list("1", 100_000) + `}`},
		"models":   {"/v1/chat/completions", `{"models":` + list(`""`, 100_000) + `}`},
		"tools":    {"/v1/agents/runs", `{"model":"gpt-4o-mini","input":"x","tools":` + list("1", 100_000) + `}`},
		"tokens":   {"/v1/embeddings", `{"model":"text-embedding-3-small","input":` + list("1", 500_000) + `}`},
	} {
		r := s.Do(t, harness.Request{Method: "POST", Path: c.path, Key: key, Body: c.body}).Want(t, 400, "invalid_json")
		if message := r.Text("error.message"); !strings.Contains(message, "values") {
			t.Errorf("%s: %s", name, message)
		}
	}
	// OpenAI accepts at most 300,000 tokens in a request.
	tokens := `{"model":"text-embedding-3-small","input":` + list(list("1", 8000), 37) + `}`
	s.Do(t, harness.Request{Method: "POST", Path: "/v1/embeddings", Key: key, Body: tokens}).Want(t, 200, "")
}

// sendPart sends the first bytes of a request that announces 1 MiB.
func sendPart(t *testing.T, s *harness.Server, path, key string, sent int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	authorization := ""
	if key != "" {
		authorization = "Authorization: Bearer " + key + "\r\n"
	}
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, authorization, 1<<20, strings.Repeat(" ", sent))
	return conn
}

func TestSlowLargeBodiesLeaveMemoryForOthers(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.ModelBodyBytes, cfg.Limits.BodiesBytes = 1<<20, 16<<20
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	neighbor, _ := s.Key(t, s.Workspace(t, "beta"), accounts.Test)
	chat := func(key string, size int) *harness.Response {
		return s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key,
			Body: `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}],"x":"` + strings.Repeat("x", size) + `"}`})
	}
	var parts []net.Conn // one that arrived next to a complete body may have been rejected
	var r *harness.Response
	s.Eventually(t, func() bool {
		parts = append(parts, sendPart(t, s, "/v1/chat/completions", key, 700<<10))
		r = chat(key, 600<<10)
		return r.Status == 503
	})
	if r.Want(t, 503, "overloaded"); r.Header.Get("Retry-After") == "" {
		t.Error("nobody says when to come again")
	}
	chat(key, 1<<10).Want(t, 200, "") // small requests don't count
	chat(neighbor, 600<<10).Want(t, 200, "")
	for _, part := range parts {
		part.Close()
	}
	s.Eventually(t, func() bool { return chat(key, 600<<10).Status == 200 })
	for range 20 { // a finished request frees its memory
		chat(key, 600<<10).Want(t, 200, "")
	}
}

func TestLargestChunkedBodyIsAccepted(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.ModelBodyBytes, cfg.Limits.BodiesBytes = 1200<<10, 8<<20
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	body := `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}],"x":"` + strings.Repeat("x", 1100<<10) + `"}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/chat/completions", io.MultiReader(strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if answer, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		t.Errorf("%d, %.300s, %v", res.StatusCode, answer, err)
	}
}

func TestUnsignedLeakReportIsRejectedBeforeItsBody(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	conn := sendPart(t, s, "/leaks/github", "", 0)
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("got %d, want 403", res.StatusCode)
	}
}
