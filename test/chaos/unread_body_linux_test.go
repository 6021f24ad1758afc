package chaos

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// unreadRequests announce a body and never send it. No handler wants the body
// of the first group. The second group has handlers that read it.
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

func TestUnsentBodiesDoNotHoldConnections(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"capped":                 nil,
		"by the deadlines alone": {"--limits-unauthenticated-connections", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			if !full {
				t.Parallel()
			}
			attack := attackSize{connections: 1500, requests: unreadRequests}
			if full {
				attack = attackSize{connections: 5000, requests: append(unreadRequests, slowRequests...)}
			}
			raiseFileLimit(t, uint64(attack.connections)+1000)
			s := serve(t, program.Place{Folder: t.TempDir()}, args...)
			attack.run(t, strings.TrimPrefix(s.URL, "http://"))
		})
	}
}

// attackSize is how many connections are held, and by which requests.
type attackSize struct {
	connections int
	requests    []string
}

// goneWithin is how long a connection may be held. The longest deadline is the
// 20 seconds of limits.body_timeout. The rest is for a busy machine.
const goneWithin = time.Minute

func (a attackSize) run(t *testing.T, address string) {
	t.Helper()
	begun := time.Now()
	var held sync.WaitGroup
	var mu sync.Mutex
	ends := map[string]int{}
	for i := range a.connections {
		conn, err := net.Dial("tcp", address) // from 127.0.0.1
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetReadDeadline(time.Now().Add(goneWithin))
		held.Go(func() {
			_, _ = io.WriteString(conn, a.requests[i%len(a.requests)]) // fails if the cap closed it
			_, err := io.Copy(io.Discard, conn)
			end := "closed"
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				end = fmt.Sprintf("held: %.40q", a.requests[i%len(a.requests)])
			}
			mu.Lock()
			ends[end]++
			mu.Unlock()
		})
	}
	opened := time.Since(begun)

	answered := 0
	for range 100 {
		if err := probe(address, "127.0.0.2"); err != nil {
			t.Log(err)
			continue
		}
		answered++
	}
	if answered != 100 {
		t.Errorf("another client got %d of 100 answers from /healthz, want all", answered)
	}
	held.Wait()
	t.Logf("opened %d connections in %v; the last one ended after %v", a.connections, opened, time.Since(begun))
	if ends["closed"] != a.connections {
		t.Errorf("connections ended as %v, want all %d closed", ends, a.connections)
	}
	if err := probe(address, "127.0.0.1"); err != nil {
		t.Errorf("the address is still refused after its connections are gone: %v", err)
	}
}

// probe asks for /healthz on a new connection from the local address.
func probe(address, from string) error {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: callTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: callTimeout}
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

// raiseFileLimit lets this process have n more descriptors than usual. The
// server has the same limit as it.
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
