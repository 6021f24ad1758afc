package api

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/fault"
)

// watchInterval is how often the credentials of streams and sockets are checked. They end within a second.
const watchInterval = 500 * time.Millisecond

// watcher ends streams and sockets whose credential is revoked, expires or loses its rights.
type watcher struct {
	mu      sync.Mutex
	calls   map[*Call]string // and their projects
	running bool
}

// WriteHeader starts the response. One without a length is a stream.
func (c *Call) WriteHeader(status int) {
	if c.W.Header().Get("Content-Length") == "" {
		c.watchCredential()
	}
	c.Exchange.WriteHeader(status)
}

// watchCredential cancels the request with the reason when its credential is no longer valid.
func (c *Call) watchCredential() {
	if c.Principal == nil || c.watched {
		return
	}
	c.watched = true
	w := &c.s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calls == nil {
		w.calls = map[*Call]string{}
	}
	w.calls[c] = c.Project
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watcher) remove(c *Call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, c)
}

// run checks all credentials until there are none.
func (w *watcher) run() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for range tick.C {
		w.mu.Lock()
		calls := maps.Clone(w.calls)
		w.running = len(calls) > 0
		w.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		for c, project := range calls {
			c.endIfRevoked(project)
		}
	}
}

// endIfRevoked cancels the request if its credential isn't valid. An outage of the database proves nothing.
func (c *Call) endIfRevoked(project string) {
	ctx, cancel := context.WithTimeout(c.Context(), watchInterval)
	defer cancel()
	if _, err := c.currentPrincipal(ctx, project); err != nil {
		if f, ok := fault.As(err); ok && fault.FamilyOf(f.Code).Status < http.StatusInternalServerError {
			c.cancel(f)
		}
	}
}

// currentPrincipal authenticates the request again, and checks what may have changed since it began.
func (c *Call) currentPrincipal(ctx context.Context, project string) (*access.Principal, error) {
	bearer, _, err := credential(c.R)
	if err != nil {
		return nil, err
	}
	p, err := c.s.Auth.Authenticate(ctx, bearer, c.IP.String())
	if err != nil {
		return nil, err
	}
	if !p.AllowsIP(c.IP) {
		return nil, ipNotAllowed(c.IP)
	}
	if p.Project != "" && p.Project != project {
		return nil, fault.New(fault.ProjectNotAllowed, "This key is now pinned to project %q.", p.Project)
	}
	return p, p.Require(c.route.Scope)
}
