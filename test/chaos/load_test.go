package chaos

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// load is a group of clients that send requests until it is stopped.
type load struct {
	mu       sync.Mutex
	outcomes []*outcome
	quit     chan struct{}
	workers  sync.WaitGroup
}

// startLoad starts the clients. Every fourth one streams, every eighth one creates
// tokens.
func startLoad(t *testing.T, url, key, mark string, clients int) *load {
	t.Helper()
	l := &load{quit: make(chan struct{})}
	for w := range clients {
		l.workers.Go(func() {
			c := newClient(url)
			defer c.close()
			for n := 0; ; n++ {
				select {
				case <-l.quit:
					return
				default:
				}
				mark := fmt.Sprintf("%s/%d/%d", mark, w, n)
				r := chat(mark, key, "Say something.", false)
				switch {
				case w%8 == 1:
					r = request{mark: mark, method: "POST", path: "/v1/scoped_tokens", key: key, body: `{"scopes":["models:read"]}`}
				case w%4 == 2:
					r = chat(mark, key, "Slowly. [[sim:length=10]] [[sim:chunk_delay=5ms]]", true)
				}
				o := c.do(r, nil)
				l.mu.Lock()
				l.outcomes = append(l.outcomes, o)
				l.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

// stop waits for the requests in progress and returns all outcomes. It is idempotent.
func (l *load) stop() []*outcome {
	l.mu.Lock()
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	l.mu.Unlock()
	l.workers.Wait()
	return l.outcomes
}

// since returns the completed requests that started after the given time.
func (l *load) since(begun time.Time) []*outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*outcome
	for _, o := range l.outcomes {
		if o.begun.After(begun) {
			out = append(out, o)
		}
	}
	return out
}

// succeeded counts the requests since the given time whose status is 200.
func (l *load) succeeded(since time.Time) int {
	return len(slices.DeleteFunc(l.since(since), func(o *outcome) bool { return !acknowledged(o) }))
}

// acknowledged reports whether the response has status 200.
func acknowledged(o *outcome) bool { return o.status == http.StatusOK }
