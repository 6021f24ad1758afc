//go:build upgrade

package chaos

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// balancer is a load balancer in front of the nodes. Like nginx by default, it uses
// a new connection for each request. It retries only requests that no node has
// processed: those that could not connect, and those with the status 503.
type balancer struct {
	server *httptest.Server
	client *http.Transport

	mu      sync.Mutex
	nodes   []string // addresses that get new requests
	turn    int
	retried map[string]int // requests by reason
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{retried: map[string]int{}, client: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	b.server = httptest.NewServer(b)
	t.Cleanup(func() {
		b.server.CloseClientConnections()
		b.server.Close()
	})
	return b
}

// add sends new requests to a node too.
func (b *balancer) add(url string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes, url)
}

// drain sends no new requests to a node. Those in progress continue.
func (b *balancer) drain(url string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = slices.DeleteFunc(b.nodes, func(n string) bool { return n == url })
}

func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	return b.nodes[b.turn%len(b.nodes)]
}

func (b *balancer) retry(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retried[reason]++
}

// balancerTimeout is how long the balancer retries.
const balancerTimeout = 10 * time.Second

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	give := time.Now().Add(balancerTimeout)
	for {
		res, err := b.send(r, b.pick(), body)
		reason := ""
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			reason = "no connection"
		case err != nil:
			panic(http.ErrAbortHandler) // a node may have processed it
		case res.StatusCode == http.StatusServiceUnavailable:
			reason = "503"
		}
		if reason == "" || time.Now().After(give) {
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			forward(w, res)
			return
		}
		b.retry(reason)
		if res != nil {
			_ = res.Body.Close()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-r.Context().Done():
			return
		}
	}
}

func (b *balancer) send(r *http.Request, node string, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, node+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	return b.client.RoundTrip(out)
}

// forward copies a response piece by piece, and breaks the client's connection if it
// is incomplete.
func forward(w http.ResponseWriter, res *http.Response) {
	defer res.Body.Close()
	for name, values := range res.Header {
		if name != "Connection" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(res.StatusCode)
	piece := make([]byte, 4096)
	for {
		n, err := res.Body.Read(piece)
		_, writeErr := w.Write(piece[:n])
		if err == io.EOF {
			return
		}
		if err != nil || writeErr != nil {
			panic(http.ErrAbortHandler)
		}
		_ = http.NewResponseController(w).Flush() // fails only if the client has disconnected
	}
}
