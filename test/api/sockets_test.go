package api_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/test/harness"
)

func (c *client) dialSocket(t *testing.T, key string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), c.URL+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(1 << 30)
	return conn
}

// announcement is a message that only announces its input.
func announcement(previous, text string) map[string]any {
	out := map[string]any{"type": "response.create", "model": "gpt-4o-mini", "store": false, "generate": false, "input": text}
	if previous != "" {
		out["previous_response_id"] = previous
	}
	return out
}

// Messages with generate: false were not authenticated, not limited and not in the log (N2).
func TestEveryMessageOfASocketIsARequest(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.TestRequestsPerMinute = 3
	c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Test)
	conn := c.dialSocket(t, c.key)
	for range 3 {
		_, r := socketMessages(t, conn, announcement("", "one"))
		if r.Text("type") != "response.completed" {
			t.Fatalf("got %s", r.Body)
		}
		e := settled(t, c.Server, c.key, "req_"+strings.TrimPrefix(r.Text("response.id"), "resp_"))
		if e.Text("path") != "/v1/responses" || e.Text("method") != "POST" || count(e, "status") != 200 {
			t.Errorf("got log entry %s", e.Body)
		}
	}
	if _, r := socketMessages(t, conn, announcement("", "four")); r.Text("error.code") != "rate_limit_exceeded" {
		t.Errorf("beyond the limit: got %s", r.Body)
	}
}

// Clients such as Codex connect again after every error whose status isn't 400 (F5).
func TestFinalErrorsOfASocketHaveTheStatus400(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
	key, _ := s.KeyOf(t, &access.Key{Tenant: s.Workspace(t, "acme").In(accounts.Test), Name: "narrow", Scopes: []string{"responses:create"}, Allowed: catalog.Allowed{Models: []string{"gpt-4o"}}})
	c := &client{Server: s, key: key}
	conn := c.dialSocket(t, key)
	for model, code := range map[string]string{"gpt-4o-mini": "model_not_allowed", "": "missing_parameter"} {
		message := announcement("", "hi")
		message["model"] = model
		delete(message, "generate")
		if _, r := socketMessages(t, conn, message); r.Text("type") != "error" || count(r, "status") != 400 || r.Text("error.code") != code {
			t.Errorf("got %s, want the status 400 and the code %s", r.Body, code)
		}
	}
}

// The items of each message were added to those before without a bound (N2).
func TestSocketKeepsNoMoreThanABody(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.ModelBodyBytes = 1 << 20
	c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Test)
	conn := c.dialSocket(t, c.key)
	previous, text := "", strings.Repeat("x", 300<<10)
	for n := range 10 {
		_, r := socketMessages(t, conn, announcement(previous, text))
		if previous = r.Text("response.id"); previous == "" {
			if n != 3 || r.Text("error.code") != "request_too_large" {
				t.Errorf("message %d: got %s", n+1, r.Body)
			}
			return
		}
	}
	t.Error("ten messages of 300 KiB continue each other, with a limit of 1 MiB")
}

// Unfinished messages took memory that nothing counted (N2).
func TestUnfinishedMessagesCountAsBodies(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.ModelBodyBytes, cfg.Limits.BodiesBytes = 2<<20, 4<<20 // of which a workspace may use a half
	c := newClient(t, harness.Start(t, cfg, harness.NewClock()), accounts.Test)
	part := make([]byte, 1<<20)
	ended := make(chan websocket.StatusCode, 4)
	for range 4 {
		conn := c.dialSocket(t, c.key)
		w, err := conn.Writer(t.Context(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = w.Write(part) // the server may close the connection meanwhile
		}()
		go func() {
			for {
				if _, _, err := conn.Read(context.WithoutCancel(t.Context())); err != nil {
					ended <- websocket.CloseStatus(err)
					return
				}
			}
		}()
	}
	if got := <-ended; got != websocket.StatusTryAgainLater {
		t.Errorf("a socket without memory for its message closed with %d, want %d", got, websocket.StatusTryAgainLater)
	}
	// Other workspaces have memory left.
	other := newClient(t, c.Server, accounts.Test)
	if _, r := socketMessages(t, other.dialSocket(t, other.key), announcement("", string(make([]byte, 100<<10)))); r.Text("type") != "error" && r.Text("type") != "response.completed" {
		t.Errorf("another workspace: got %s", r.Body)
	}
}

// Open streams outlived a revoked key and an expired token (N11).
func TestStreamsAndSocketsEndWithTheirCredential(t *testing.T) {
	t.Parallel()
	c := newClient(t, harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock()), accounts.Test)
	const endless = "[[sim:length=200]] [[sim:chunk_delay=5s]]"
	open := func(key string) *http.Response {
		r := c.Open(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: map[string]any{
			"model": "gpt-4o-mini", "stream": true, "messages": []map[string]string{{"role": "user", "content": endless}}}})
		if r.StatusCode != 200 {
			t.Fatalf("got status %d", r.StatusCode)
		}
		return r
	}
	revoked, revokedID := c.Key(t, c.workspace, accounts.Test)
	token := c.Do(t, harness.Request{Method: "POST", Path: "/v1/scoped_tokens", Key: c.key, Body: map[string]any{"scopes": []string{"chat.completions:create"}, "expires_in": 60}}).Want(t, 200, "").Text("value")
	ofKey, ofToken, socket := open(revoked), open(token), c.dialSocket(t, revoked)
	c.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + revokedID, Key: c.key}).Want(t, 200, "")
	c.Clock.Turn(2 * time.Minute)
	for name, r := range map[string]*http.Response{"revoked key": ofKey, "expired token": ofToken} {
		text, err := io.ReadAll(r.Body)
		if err != nil || !strings.Contains(string(text), `"authentication_error"`) {
			t.Errorf("%s: the stream ended with %v, %s", name, err, text)
		}
		e := settled(t, c.Server, c.key, r.Header.Get("X-Request-Id"))
		if e.Text("error_code") != "authentication_error" {
			t.Errorf("%s: got log entry %s", name, e.Body)
		}
	}
	_, data, err := socket.Read(t.Context())
	if err != nil || !strings.Contains(string(data), `"authentication_error"`) {
		t.Errorf("the socket got %v, %s", err, data)
	}
	if _, _, err = socket.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		t.Errorf("the socket closed with %v, want %d", err, websocket.StatusPolicyViolation)
	}
}
