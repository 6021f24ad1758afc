package app

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/api"
	"turnpike/internal/budget"
	"turnpike/internal/config"
	"turnpike/internal/connlimit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/operators"
	"turnpike/internal/people"
	"turnpike/internal/retention"
)

// rejoinInterval is how long an evicted node waits between attempts to join.
const rejoinInterval = time.Second

// errEvicted ends requests of an evicted node, and is returned for others until
// it has rejoined.
var errEvicted = &fault.Error{Code: fault.Overloaded, Message: "This node was evicted from the cluster and is restarting. Retry the request.", RetryAfter: time.Second}

// site holds everything that stays the same while the process runs.
type site struct {
	cfg     config.Config
	version string
	address string // of the listener

	reloading *reloading
	tls       *servedTLS
}

// URL returns the public address of the server.
func (s *site) URL() string { return s.cfg.BaseURL(s.address) }

// ListenURL returns the address of the server itself, behind its proxies.
func (s *site) ListenURL() string { return s.cfg.ListenURL(s.address) }

// instance is one membership of this process in the cluster, with everything
// that belongs to its node ID: the database connections, leases, queues and
// background work. It ends with the process, or when other nodes evict it. Then
// the process drops it whole and starts another.
type instance struct {
	site
	components
	now          func() time.Time
	store        *Store
	files        *files.Store
	handler      http.Handler
	api          *api.Server
	settings     atomic.Pointer[settings] // that a reload replaces
	reloaded     chan struct{}            // receives after a reload
	stored       []*operators.Stored      // in the settings; guarded by reloading
	stopWatching func()                   // ends live pages and streams of runs
	keeper       *retention.Keeper
	registry     http.Handler   // of the metrics
	metrics      *metricsServer // nil without a listener
	telemetry    *telemetry

	memory         *budget.Pool    // of requests and background work
	requests       context.Context // canceled to end all requests
	cancelRequests context.CancelCauseFunc
	active         atomic.Int64 // requests
	ended          atomic.Bool  // rejects requests

	definitionsChanged chan struct{} // receives when stored definitions may have changed

	stopWork context.CancelFunc // ends the background work
	work     sync.WaitGroup
	evicted  chan struct{} // closed when other nodes have evicted this one
	hold     *hold         // nil unless the database was restored and not resumed
}

// startInstance opens the database, joins the cluster and starts every component.
func startInstance(ctx context.Context, at site, now func() time.Time) (_ *instance, err error) {
	i := &instance{site: at, now: now, evicted: make(chan struct{}), reloaded: make(chan struct{}, 1), definitionsChanged: make(chan struct{}, 1)}
	i.memory = budget.New(requestMemory(i.cfg.Limits))
	ctx = i.memory.With(ctx)
	i.requests, i.cancelRequests = context.WithCancelCause(i.memory.With(context.Background()))
	defer func() {
		if err != nil {
			i.release()
		}
	}()
	if i.store, err = OpenStore(ctx, i.cfg); err != nil {
		return nil, err
	}
	i.store.DB.FailFast()
	if i.cfg.ReplicaURL != "" {
		if err := i.store.DB.UseReplica(ctx, string(i.cfg.ReplicaURL), i.cfg.ReplicaMaxLag); err != nil {
			return nil, err
		}
	}
	if err := CheckUnmoved(ctx, i.cfg, i.store.DB); err != nil {
		return nil, err
	}
	if i.hold, err = readHold(ctx, i.store.DB); err != nil {
		return nil, err
	}
	i.people = people.New(i.store.DB, i.store.Ring, people.Options{Now: now})
	if err := i.build(ctx); err != nil {
		return nil, err
	}
	return i, nil
}

// serve handles a request, unless the instance has ended.
func (i *instance) serve(w http.ResponseWriter, r *http.Request) bool {
	i.active.Add(1)
	defer i.active.Add(-1)
	if i.ended.Load() {
		return false
	}
	if i.hold.rejects(r.URL.Path) {
		i.serveError(w, r, errHeld)
		return true
	}
	i.handler.ServeHTTP(w, r)
	return true
}

// abandon ends an evicted instance. It cancels all requests with the cause,
// gives them a moment to report it, and releases everything.
func (i *instance) abandon(cause error) {
	i.ended.Store(true)
	i.cancelRequests(cause)
	i.stopWork() // closes the tunnels, whose requests are among the active ones
	waitUntil(func() bool { return i.active.Load() == 0 }, closeTimeout)
	i.release()
}

func (i *instance) release() {
	if i.metrics != nil {
		_ = i.metrics.Close()
	}
	if i.stopWork != nil {
		i.stopWork()
		i.store.DB.GiveUpParked()
	}
	i.work.Wait()
	if i.files != nil {
		_ = i.files.Close()
	}
	for _, g := range []*db.Group{i.stores, i.group} {
		if g != nil {
			g.Stop()
		}
	}
	if i.node != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		// If this fails, another node recovers the charges and the leases.
		if i.settler != nil {
			i.settler.CatchUp(ctx)
		}
		if i.leases != nil {
			_ = i.leases.ReleaseUnused(ctx, "")
		}
		_ = i.node.Leave(ctx)
		cancel()
	}
	if i.telemetry != nil && i.telemetry.otel != nil {
		i.telemetry.otel.close(context.Background())
	}
	if i.store != nil {
		i.store.Close()
	}
}

type instanceKey struct{}

// connContext binds a connection to the current instance: the requests of the
// connection are canceled with those of the instance. It is for
// http.Server.ConnContext.
func (a *App) connContext(ctx context.Context, c net.Conn) context.Context {
	if i := a.instance.Load(); i != nil {
		ctx = context.WithValue(i.requests, instanceKey{}, i)
	}
	return connlimit.ConnContext(ctx, c)
}

// ServeHTTP passes requests to the instance of their connection.
func (a *App) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if i, ok := r.Context().Value(instanceKey{}).(*instance); ok && i.serve(w, r) {
		return
	}
	w.Header().Set("Connection", "close") // the next one is bound to the next instance
	a.serveEvicted(w, r)
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
		a.server.SetKeepAlivesEnabled(false) // closes the connections of this instance
		i.abandon(errEvicted)
		next := a.rejoin(ctx)
		if next == nil {
			return
		}
		a.instance.Store(next)
		a.server.SetKeepAlivesEnabled(true)
		slog.Info("node rejoined", "node", next.node.ID)
	}
}

// rejoin starts the next instance and retries until it succeeds. It returns nil
// when ctx ends.
func (a *App) rejoin(ctx context.Context) *instance {
	for {
		at := a.site
		at.cfg = a.reloading.config()
		next, err := startInstance(ctx, at, a.now)
		if err == nil {
			return next
		}
		if ctx.Err() != nil {
			return nil
		}
		slog.Log(ctx, db.LogLevel(err), "failed to rejoin; retrying", "retry_in", rejoinInterval, "error", err)
		select {
		case <-time.After(rejoinInterval):
		case <-ctx.Done():
			return nil
		}
	}
}

// serveEvicted handles requests while there is no instance: the process is alive
// but not ready.
func (s *site) serveEvicted(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && r.URL.Path == "/healthz" {
		setHeaders(w.Header())
		_, _ = w.Write([]byte(`{"status":"ok"}`))
		return
	}
	s.serveError(w, r, errEvicted)
}

// serveError sends an error without the help of the API.
func (s *site) serveError(w http.ResponseWriter, r *http.Request, f *fault.Error) {
	h := w.Header()
	id := setHeaders(h)
	h.Set("Retry-After", strconv.FormatInt(int64(f.RetryAfter.Seconds()), 10))
	h.Set("Retry-After-Ms", strconv.FormatInt(f.RetryAfter.Milliseconds(), 10))
	w.WriteHeader(fault.FamilyOf(f.Code).Status)
	_, _ = w.Write(api.ErrorJSONFor(r, f, id, s.URL()))
}

func setHeaders(h http.Header) (id string) {
	id = ids.New(ids.Request)
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Request-Id", id)
	return id
}
