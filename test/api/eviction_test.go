package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestEvictedNodeRestartsInTheSameProcess(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, "sk-one")
	cfg := harness.Config(t, "postgres")
	cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(upstream.BaseURL()), APIKey: "sk-one", Weight: 1,
		Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "")}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)

	const event = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":{"content":"Yes, "},"finish_reason":null}]}` + "\n\n"
	upstream.Queue(upstreams.OpenAIReply{Body: event, Stall: len(event)})
	chat := func(stream string) harness.Request {
		return harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: key, Body: `{"model":"small","max_tokens":1000,` + stream + `"messages":[{"role":"user","content":"hi"}]}`}
	}
	open := s.Open(t, chat(`"stream":true,`))
	stream := bufio.NewReader(open.Body)
	if line, err := stream.ReadString('\n'); err != nil || !strings.Contains(line, "Yes") {
		t.Fatalf("%q, %v", line, err)
	}
	tunnel, _, err := websocket.Dial(t.Context(), s.URL+"/v1/tunnel", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tunnel.CloseNow()

	// Connections that aren't bound to the node would stay open forever.
	bound, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	defer context.AfterFunc(bound, func() { _ = open.Body.Close() })()

	evicted := nodeID(t, s.DB)
	err = s.DB.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM nodes WHERE id = $1", evicted)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	allowJoins := denyJoins(t, s.DB)
	if r := s.Do(t, chat("")); r.Status != http.StatusServiceUnavailable {
		t.Errorf("a call after the eviction: got %d, want 503\n%s", r.Status, r.Body)
	}
	if rest, err := io.ReadAll(stream); err != nil || !strings.Contains(string(rest), `"code":"overloaded"`) {
		t.Errorf("the stream ended with %q (%v), want an error event", rest, err)
	}
	for {
		if _, _, err = tunnel.Read(bound); err != nil {
			break
		}
	}
	if status := websocket.CloseStatus(err); status != websocket.StatusServiceRestart {
		t.Errorf("the tunnel ended with %v, want %v", err, websocket.StatusServiceRestart)
	}
	select {
	case <-upstream.Wait(1).Gone:
	case <-bound.Done():
		t.Error("the call to the provider was not canceled")
	}
	for _, path := range []string{"/readyz", "/v1/models"} {
		if r := s.Do(t, harness.Request{Method: "GET", Path: path, Key: key}).Want(t, 503, "overloaded"); r.Header.Get("Retry-After") == "" {
			t.Errorf("%s has no Retry-After", path)
		}
	}
	s.Do(t, harness.Request{Method: "GET", Path: "/healthz"}).Want(t, 200, "")

	allowJoins()
	s.Eventually(t, func() bool { return s.Do(t, harness.Request{Method: "GET", Path: "/readyz"}).Status == http.StatusOK })
	if id := nodeID(t, s.DB); id == evicted {
		t.Errorf("the node rejoined with its old ID %s", id)
	}
	s.Do(t, chat("")).Want(t, 200, "")
	var source string
	var reserved, charged int64
	err = s.DB.QueryRow(t.Context(), "SELECT usage_source, reserved, credits FROM requests WHERE id = $1 AND settled", open.Header.Get("X-Request-Id")).Scan(&source, &reserved, &charged)
	if err != nil || source != "recovered" || charged != reserved || reserved == 0 {
		t.Errorf("the stream is logged as %s, %d of %d credits (%v); want recovered, as reserved", source, charged, reserved, err)
	}
	var leases int
	if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM spend_leases WHERE node_id = $1", evicted).Scan(&leases); err != nil || leases != 0 {
		t.Errorf("the evicted node has %d leases (%v), want 0", leases, err)
	}
}

// nodeID returns the ID of the only node.
func nodeID(t *testing.T, d *db.DB) (id string) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT id FROM nodes").Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// denyJoins prevents nodes from joining until the returned function is called.
func denyJoins(t *testing.T, d *db.DB) (allow func()) {
	t.Helper()
	locked, unlock, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- d.Write(context.Background(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(), "LOCK TABLE nodes IN SHARE MODE"); err != nil {
				return err
			}
			close(locked)
			<-unlock
			return nil
		})
	}()
	select {
	case <-locked:
	case err := <-done:
		t.Fatal(err)
	}
	return func() {
		close(unlock)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
