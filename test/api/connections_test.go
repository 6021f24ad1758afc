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

// rawConn is a connection to which a test writes bytes.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

// dial connects and sends the text.
func dial(t *testing.T, s *harness.Server, text string, args ...any) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, text, args...)
	return &rawConn{conn, bufio.NewReader(conn)}
}

// status reads the beginning of a response.
func (w *rawConn) status(t *testing.T) int {
	t.Helper()
	res, err := http.ReadResponse(w.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res.StatusCode
}

// closed reports whether the server has closed the connection without a
// response.
func (w *rawConn) closed() bool {
	_, err := w.in.ReadByte()
	return err == io.EOF || err != nil && strings.Contains(err.Error(), "reset")
}

const healthRequest = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

func TestUnauthenticatedConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.UnauthenticatedConnections = 2
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)

	idle := dial(t, s, "")
	half := dial(t, s, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", key)
	if !dial(t, s, "").closed() {
		t.Fatal("a third connection is accepted")
	}
	idle.Close()
	// A response without a valid key changes nothing.
	var public *rawConn
	s.Eventually(t, func() bool { // until the server notices
		public = dial(t, s, healthRequest)
		res, err := http.ReadResponse(public.in, nil)
		if err != nil {
			return false
		}
		_, err = io.Copy(io.Discard, res.Body)
		return err == nil && res.StatusCode == 200
	})
	fmt.Fprint(public, "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer tp_test_nonsense\r\n\r\n")
	if got := public.status(t); got != 401 {
		t.Fatalf("a wrong key got %d, want 401", got)
	}
	if !dial(t, s, "").closed() {
		t.Fatal("a third connection is accepted after a rejected key")
	}
	public.Close()
	half.Close()

	// Neither a stream whose request is complete nor an idle connection counts.
	const body = `{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"[[sim:length=5]] [[sim:chunk_delay=60s]]"}]}`
	for i := range 6 {
		s.Eventually(t, func() bool { // until the server notices the two closed connections
			stream := dial(t, s, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", key, len(body), body)
			res, err := http.ReadResponse(stream.in, nil)
			return err == nil && res.StatusCode == 200
		})
		kept := dial(t, s, "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\n\r\n{}", key)
		if got := kept.status(t); got != 200 {
			t.Fatalf("request %d on a connection of its own got %d, want 200", i+1, got)
		}
	}
	dial(t, s, "")
	dial(t, s, "")
	if !dial(t, s, "").closed() {
		t.Error("a third unauthenticated connection is accepted beside authenticated ones")
	}
}

func TestConnectionsOfTrustedProxiesAreUnlimited(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.UnauthenticatedConnections = 1
	cfg.TrustedProxies = prefixes(t, "127.0.0.0/8")
	s := harness.Start(t, cfg, harness.NewClock())
	for range 5 {
		if got := dial(t, s, healthRequest).status(t); got != 200 {
			t.Errorf("got %d, want 200", got)
		}
	}
}

func TestRateLimitCountsEverySpellingAndConnection(t *testing.T) {
	t.Parallel()
	cfg := harness.Config(t, "sqlite")
	cfg.Limits.TestRequestsPerMinute = 6
	cfg.TrustedProxies = prefixes(t, "127.0.0.0/8")
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
	const body = `{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`
	passed := 0
	for i := range 24 {
		scheme := []string{"Authorization: Bearer ", "authorization: bearer ", "AUTHORIZATION: BEARER  "}[i%3]
		proto := []string{"HTTP/1.1", "HTTP/1.0"}[i%2]
		conn := dial(t, s, "POST /v1/chat/completions %s\r\nHost: x\r\n%s%s\r\nX-Forwarded-For: 2001:db8:%x::1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			proto, scheme, key, i, len(body), body)
		switch got := conn.status(t); got {
		case 200:
			passed++
		case 429:
		default:
			t.Errorf("request %d got %d", i+1, got)
		}
	}
	if passed != 6 {
		t.Errorf("%d of 24 requests passed, want 6", passed)
	}
}
