package chaos

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// unreadRequests announce a body and never send it. The first group has handlers that
// ignore the body, the second has handlers that read it.
var (
	unreadRequests = []string{
		"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"GET /docs HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"GET /files/nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"GET /dashboard/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n",
		"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
		"DELETE /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n",
	}
	slowRequests = []string{
		"POST /dashboard/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\n",
		"POST /leaks/report HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
	}
)

// TestUnsentBodiesDoNotHoldConnections attacks from 127.0.0.1. Clients with other
// loopback addresses are not affected.
func TestUnsentBodiesDoNotHoldConnections(t *testing.T) {
	longOnly(t, "web.TestUnreadBodyGetsAResponseAndClosesItsConnection")
	t.Parallel()
	for name, c := range map[string]struct {
		args   []string
		capped bool
	}{
		"capped":                 {nil, true},
		"by the deadlines alone": {[]string{"--limits-unauthenticated-connections", "0"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := attack{connections: 1500, requests: unreadRequests, capped: c.capped}
			if full {
				a.connections, a.requests = 5000, append(slices.Clone(unreadRequests), slowRequests...)
			} else {
				t.Parallel()
			}
			raiseFileLimit(t, uint64(a.connections)+1000)
			at := program.Place{Dir: t.TempDir()}
			s := serve(t, at, c.args...)
			a.address = strings.TrimPrefix(s.URL, "http://")
			stream := a.stream(t, newKey(t, at))
			a.run(t)
			if text := <-stream; !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("the stream of another client ended with %.200q, want [DONE]", text[max(0, len(text)-200):])
			}
		})
	}
}

// attack is a set of connections from 127.0.0.1 that announce bodies.
type attack struct {
	address     string
	connections int
	requests    []string
	capped      bool
}

// goneWithin limits how long a connection may stay open. The longest deadline is
// limits.body_timeout, 20 seconds. The rest is for a busy machine.
const goneWithin = time.Minute

func (a attack) run(t *testing.T) {
	t.Helper()
	begun := time.Now()
	var held sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range a.connections {
		conn, err := net.Dial("tcp", a.address)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(goneWithin))
		held.Go(func() {
			request := a.requests[i%len(a.requests)]
			_, _ = io.WriteString(conn, request) // fails if the connection limit closed it
			n, err := io.Copy(io.Discard, conn)
			end := "answered"
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				end = fmt.Sprintf("held: %.40q", request)
			} else if n == 0 {
				end = "closed by the cap"
			}
			mu.Lock()
			ends[end]++
			mu.Unlock()
		})
	}
	opened := time.Since(begun)

	answered := 0
	for range 100 {
		if err := probe(a.address, "127.0.0.2"); err != nil {
			t.Log(err)
			continue
		}
		answered++
	}
	if answered != 100 {
		t.Errorf("another client got %d of 100 responses from /healthz, want all", answered)
	}
	held.Wait()
	t.Logf("opened %d connections in %v, the last one ended after %v: %v", a.connections, opened, time.Since(begun), ends)
	if gone := ends["answered"] + ends["closed by the cap"]; gone != a.connections || a.capped != (ends["closed by the cap"] > 0) {
		t.Errorf("connections ended as %v, want all %d gone, some of them by the connection limit: %t", ends, a.connections, a.capped)
	}
	if err := probe(a.address, "127.0.0.1"); err != nil {
		t.Errorf("the address is still rejected after its connections are gone: %v", err)
	}
}

// stream starts a chat from 127.0.0.3 that takes longer than any body deadline, and
// returns its response.
func (a attack) stream(t *testing.T, key string) <-chan string {
	t.Helper()
	tokens := 30
	if full {
		tokens = 100
	}
	body := fmt.Sprintf(`{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"[[sim:length=%d]] [[sim:chunk_delay=300ms]]"}]}`, tokens)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.address+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := transportFrom("127.0.0.3").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 1)
	go func() {
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body) // an error shows as missing text
		out <- string(text)
	}()
	return out
}

func transportFrom(address string) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: callTimeout}
	return &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
}

// probe requests /healthz on a new connection from the local address.
func probe(address, from string) error {
	client := &http.Client{Transport: transportFrom(from), Timeout: callTimeout}
	res, err := client.Get("http://" + address + "/healthz")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("/healthz answered %s", res.Status)
	}
	return nil
}

// raiseFileLimit raises the file descriptor limit of this process by n. The server
// inherits it.
func raiseFileLimit(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= 2*n {
		return
	}
	limit.Cur, limit.Max = 2*n, max(limit.Max, 2*n)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Skipf("cannot have %d open files: %v", 2*n, err)
	}
}
