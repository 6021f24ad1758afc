package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
	"turnpike/internal/people"
	"turnpike/internal/retention"
	"turnpike/internal/spend"
	"turnpike/internal/webhooks"
)

// rejoinInterval is how long an evicted node waits between attempts to join.
const rejoinInterval = time.Second

// errEvicted is why requests of an evicted node end, and what clients are told
// until it has joined again.
var errEvicted = &fault.Error{Code: fault.Overloaded, Message: "This node was evicted from the cluster and is restarting. Retry the request.", RetryAfter: time.Second}

// site is what stays the same for as long as the process runs.
type site struct {
	cfg     config.Config
	version string
	address string // of the listener
}

// URL is the address at which the server can be reached.
func (s site) URL() string { return s.cfg.BaseURL(s.address) }

// Listens is where the server itself is found, behind whatever stands before it.
func (s site) Listens() string {
	own := s.cfg
	own.PublicURL = ""
	return own.BaseURL(s.address)
}

// instance is one membership of this process in the cluster, with everything
// that belongs to its node ID: the database connections, leases, queues and
// background work. It ends with the process, or when other nodes evict it. Then
// the process drops it whole and starts another.
type instance struct {
	site
	store        *Store
	node         *nodes.Node
	group        *db.Group
	log          *audit.Log
	ledger       *spend.Ledger
	leases       *spend.LeaseCache
	gateway      *gateway.Gateway
	files        *files.Store
	hooks        *webhooks.Service
	people       *people.People
	handler      http.Handler
	stopWatching func() // ends the pages that are kept up to date, and the streams of runs
	keeper       *retention.Keeper
	events       *events.Publisher
	metrics      *metricsServer
	telemetry    *telemetry

	requests       context.Context // ends all requests
	cancelRequests context.CancelCauseFunc
	active         atomic.Int64 // requests
	ended          atomic.Bool  // takes no more of them

	stopWork context.CancelFunc // ends the background work
	work     sync.WaitGroup
	evicted  chan struct{} // closed when other nodes have evicted this one
}

// startInstance opens the store, joins the cluster and starts every part.
func startInstance(ctx context.Context, at site, now func() time.Time) (_ *instance, err error) {
	i := &instance{site: at, evicted: make(chan struct{})}
	i.requests, i.cancelRequests = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			i.release()
		}
	}()
	if i.store, err = OpenStore(ctx, i.cfg); err != nil {
		return nil, err
	}
	if err := CheckForgotten(ctx, i.cfg, i.store.DB); err != nil {
		return nil, err
	}
	i.people = people.New(i.store.DB, i.store.Ring, people.Options{Now: now})
	if err := i.build(ctx, now); err != nil {
		return nil, err
	}
	return i, nil
}

// runNode stores heartbeats until the instance ends.
func (a *instance) runNode(ctx context.Context) {
	if err := a.node.Run(ctx); errors.Is(err, nodes.ErrEvicted) {
		close(a.evicted)
	}
}

// serve answers a request, unless the instance has ended.
func (a *instance) serve(w http.ResponseWriter, r *http.Request) bool {
	a.active.Add(1)
	defer a.active.Add(-1)
	if a.ended.Load() {
		return false
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(a.requests, func() { cancel(context.Cause(a.requests)) })()
	a.handler.ServeHTTP(w, r.WithContext(ctx))
	return true
}

// abandon ends an evicted instance: it cancels all requests with the cause, gives
// them a moment to report it, and releases everything.
func (a *instance) abandon(cause error) {
	a.ended.Store(true)
	a.cancelRequests(cause)
	a.stopWork() // closes the tunnels, whose requests are among the active ones
	for end := time.Now().Add(lastWords); a.active.Load() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	a.release()
}

func (a *instance) release() {
	if a.metrics != nil {
		a.metrics.close()
	}
	if a.stopWork != nil {
		a.stopWork()
	}
	a.work.Wait()
	if a.files != nil {
		_ = a.files.Close()
	}
	if a.group != nil {
		a.group.Stop()
	}
	if a.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		// Another node recovers what a missing goodbye leaves.
		if a.leases != nil {
			_ = a.leases.ReleaseUnused(ctx, "")
		}
		_ = a.node.Leave(ctx)
		cancel()
	}
	if a.telemetry != nil {
		a.telemetry.close(context.Background())
	}
	if a.store != nil {
		a.store.Close()
	}
}

// ServeHTTP has the current instance answer.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i := a.instance.Load(); i == nil || !i.serve(w, r) {
		serveEvicted(w, r)
	}
}

// rejoinWhenEvicted replaces the instance whenever it is evicted, until ctx ends.
func (a *App) rejoinWhenEvicted(ctx context.Context) {
	for {
		i := a.instance.Load()
		select {
		case <-i.evicted:
		case <-ctx.Done():
			return
		}
		slog.Warn("node was evicted and its leases reassigned; restarting", "node", i.node.ID)
		a.instance.Store(nil)
		i.abandon(errEvicted)
		next := a.rejoin(ctx)
		if next == nil {
			return
		}
		a.instance.Store(next)
		slog.Info("node rejoined", "node", next.node.ID)
	}
}

// rejoin starts the next instance, however often it takes. It returns nil when
// ctx ends.
func (a *App) rejoin(ctx context.Context) *instance {
	for {
		next, err := startInstance(ctx, a.site, a.now)
		if err == nil {
			return next
		}
		if ctx.Err() != nil {
			return nil
		}
		slog.Error("failed to rejoin; retrying", "retry_in", rejoinInterval, "error", err)
		select {
		case <-time.After(rejoinInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// serveEvicted answers while there is no instance: the process is alive and not
// ready.
func serveEvicted(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	id := ids.New(ids.Request)
	h.Set("X-Request-Id", id)
	if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
		_, _ = w.Write([]byte(`{"status":"ok"}`))
		return
	}
	family := fault.FamilyOf(errEvicted.Code)
	h.Set("Retry-After", strconv.Itoa(int(errEvicted.RetryAfter.Seconds())))
	h.Set("Retry-After-Ms", strconv.FormatInt(errEvicted.RetryAfter.Milliseconds(), 10))
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"code": errEvicted.Code, "type": family.Type,
		"message": errEvicted.Message, "param": nil, "request_id": id}}) // strings always marshal
	w.WriteHeader(family.Status)
	_, _ = w.Write(body)
}
