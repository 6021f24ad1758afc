package tunnel_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"turnpike/internal/events"
)

// rawClient is a client that sends arbitrary frames.
type rawClient struct {
	t  *testing.T
	ws *websocket.Conn
	id string // of its endpoint
}

func (c *tenant) rawClient(t *testing.T) *rawClient {
	t.Helper()
	ws, res, err := websocket.Dial(t.Context(), c.URL+"/v1/tunnel", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + c.key}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	if !strings.HasPrefix(res.Header.Get("X-Request-Id"), "req_") {
		t.Errorf("the upgrade has the headers %v", res.Header)
	}
	k := &rawClient{t: t, ws: ws}
	k.id = k.receive("hello")["endpoint"].(string)
	return k
}

// receive reads the next frame and checks its type.
func (k *rawClient) receive(typ string) map[string]any {
	k.t.Helper()
	_, b, err := k.ws.Read(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	var f map[string]any
	if err := json.Unmarshal(b, &f); err != nil || f["type"] != typ {
		k.t.Fatalf("got frame %s (%v), want type %s", b, err, typ)
	}
	return f[typ].(map[string]any)
}

func (k *rawClient) send(v any) {
	k.t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.ws.Write(k.t.Context(), websocket.MessageText, b); err != nil {
		k.t.Fatal(err)
	}
}

// closed waits for the server to end the connection.
func (k *rawClient) closed() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), timeout)
	defer cancel()
	if _, _, err := k.ws.Read(ctx); err == nil || ctx.Err() != nil {
		k.t.Errorf("the connection is still open (%v)", err)
	}
}

// A client can only report results of deliveries that it was sent.
func reportsOfAnUntrustedClientAreBounded(t *testing.T, c *tenant) {
	k := c.rawClient(t)
	for _, answer := range []struct {
		says  map[string]any
		class string
		text  string
	}{
		{map[string]any{}, "other", "gave no reason"},
		{map[string]any{"status": 99999, "class": "success", "error": strings.Repeat("x", 5000)}, "other", strings.Repeat("x", 500)},
		{map[string]any{"status": -200, "class": "dns", "error": "nul \x00 and \xff", "timings": map[string]any{"dns_us": -5, "connect_us": int64(1) << 62, "address": "\x00"}}, "dns", "nul"},
		{map[string]any{"status": 500, "class": "dns", "error": "both", "header": [][2]string{{"A\x00", "b\x00"}, {"", ""}}, "body": strings.Repeat("AAAA", 5600)}, "status", "500"},
		{map[string]any{"status": 302, "header": nil, "body": nil}, "redirect", ""},
	} {
		c.publish(t, events.AgentRunCompleted, 1)
		d := k.receive("delivery")
		id, attempt := d["id"].(string), d["attempt"]
		other := strings.Replace(id, "dlv_0", "dlv_1", 1)
		k.send(map[string]any{"type": "result", "result": map[string]any{"id": other, "attempt": attempt, "status": 200}})
		k.send(map[string]any{"type": "result", "result": map[string]any{"id": id, "attempt": 7, "status": 200}})
		k.send(map[string]any{"type": "result"})
		k.send(map[string]any{"type": "hello", "hello": map[string]any{"endpoint": id}})
		k.send(map[string]any{"type": "from a later version", "more": 1})
		answer.says["id"], answer.says["attempt"] = id, attempt
		k.send(map[string]any{"type": "result", "result": answer.says})
		k.send(map[string]any{"type": "result", "result": map[string]any{"id": id, "attempt": attempt, "status": 200}}) // too late
		eventually(t, func() bool { return c.get(t, "/v1/deliveries/"+id).Text("status") == "retrying" })
		got := c.get(t, "/v1/deliveries/"+id)
		if got.At("attempt_count") != float64(1) || got.Text("attempts.0.error.class") != answer.class || !strings.Contains(got.Text("attempts.0.error.message"), answer.text) {
			t.Errorf("report %v: got %s", answer.says, got.Body)
		}
	}
	if _, ok := c.deliveries(t, k.id)["succeeded"]; ok {
		t.Error("an invalid report succeeded")
	}
}

func invalidFrameEndsTheConnection(t *testing.T, c *tenant) {
	for name, say := range map[string]func(k *rawClient) error{
		"no JSON": func(k *rawClient) error { return k.ws.Write(t.Context(), websocket.MessageText, []byte("{")) },
		"binary":  func(k *rawClient) error { return k.ws.Write(t.Context(), websocket.MessageBinary, []byte("{}")) },
		"too large": func(k *rawClient) error {
			return k.ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"`+strings.Repeat("x", 1<<20)+`"}`))
		},
	} {
		k := c.rawClient(t)
		if err := say(k); err != nil && name != "too large" {
			t.Error(err)
		}
		k.closed()
	}
	local := newReceiver(t, respond(200))
	c.listen(t, local.URL, nil)
	c.publish(t, events.AgentRunCompleted, 1)
	local.wait(t, 1)
}
