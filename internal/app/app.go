package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/config"
	"turnpike/internal/connlimit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/safehttp"
)

const (
	// headerTimeout and idleTimeout close connections of silent clients. Bodies and
	// responses have their own timeouts in the handlers.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// closeTimeout is how long canceled requests may take to report the error.
	closeTimeout = time.Second
	// settleTimeout is how long canceled model requests may take to settle.
	// They wait up to two seconds for their usage.
	settleTimeout = 4 * time.Second
)

// errStopping ends requests that are still running when the shutdown timeout expires.
var errStopping = &fault.Error{Code: fault.Overloaded, Message: "The server is stopping. Retry the request.", RetryAfter: time.Second}

// App is a running server: the listener, and the instance that serves requests.
type App struct {
	site
	now      func() time.Time
	ln       net.Listener
	server   *http.Server
	plain    *plainServer             // nil without ACME's HTTP-01 challenges
	control  *http.Server             // nil without a socket
	instance atomic.Pointer[instance] // nil while the node rejoins
	unlock   func()

	connections *connlimit.Limiter

	stopRejoining context.CancelFunc
	rejoining     sync.WaitGroup
	closing       sync.Once
	closeErr      error
	served        chan error

	// FirstRun is set if this start created the first workspace.
	FirstRun *FirstRun
	// NeedsOwner is set if there was no owner at the start.
	NeedsOwner bool
}

// Start opens the database, starts every component and listens. Connections wait
// until Serve accepts them. Close stops the server.
func Start(ctx context.Context, cfg config.Config, version string, now func() time.Time) (_ *App, err error) {
	a := &App{site: site{cfg: cfg, version: version, reloading: &reloading{latest: cfg}, tls: &servedTLS{}}, now: now, served: make(chan error, 1), unlock: func() {}, stopRejoining: func() {}}
	defer func() {
		if err != nil {
			a.release()
		}
	}()
	if cfg.DatabaseURL == "" {
		if err := createDataDirectory(cfg.Data); err != nil {
			return nil, err
		}
		unlock, err := lockData(cfg.Data)
		if err != nil {
			return nil, err
		}
		a.unlock = unlock
	}
	// The first workspace is created last, so that a failed start can be
	// repeated and still shows the key.
	if err := a.listen(); err != nil {
		return nil, err
	}
	first, err := startInstance(ctx, a.site, now)
	if err != nil {
		return nil, err
	}
	a.instance.Store(first)
	if a.FirstRun, err = firstRun(ctx, first.store, first.people, cfg.SetupToken, now); err != nil {
		return nil, err
	}
	if cfg.SetupToken != "" {
		if err := applySetupToken(ctx, first.store, first.people, cfg.SetupToken); err != nil {
			return nil, err
		}
	}
	a.NeedsOwner, err = first.people.NeedsSetup(ctx, first.store.DB)
	return a, err
}

func (a *App) listen() (err error) {
	if err := a.tls.load(a.cfg.TLS); err != nil {
		return err
	}
	if a.ln, err = net.Listen("tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.connections = connlimit.New(a.cfg.Limits.UnauthenticatedConnections, a.cfg.TrustedProxies)
	a.ln = a.connections.Listener(a.ln)
	a.address = a.ln.Addr().String()
	if a.cfg.TLS.Mode() != config.TLSOff {
		a.ln = tls.NewListener(a.ln, a.tlsConfig())
	}
	return a.listenPlain()
}

// Serve starts to accept connections. It returns immediately.
func (a *App) Serve() {
	// Twice the API's own limit, so that most oversized headers get the API's
	// error instead of net/http's plain one.
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ConnContext: a.connContext,
		MaxHeaderBytes: 2 * int(a.cfg.Limits.HeaderBytes), ErrorLog: newServerLog(slog.Default())}
	a.server.RegisterOnShutdown(func() {
		if i := a.instance.Load(); i != nil {
			i.stopWatching()
		}
	})
	ctx, stop := context.WithCancel(context.Background())
	a.stopRejoining = stop
	a.rejoining.Go(func() { a.rejoinWhenEvicted(ctx) })
	go func() { a.served <- a.server.Serve(a.ln) }()
	a.plain.serve(a.servePlain)
}

// RunRetention purges expired rows now. The server also does so every minute.
func (a *App) RunRetention(ctx context.Context) error { return a.instance.Load().keeper.RunOnce(ctx) }

// RetentionPasses returns how often expired rows were purged since the node joined.
func (a *App) RetentionPasses() int64 { return a.instance.Load().keeper.Passes() }

// Publish publishes events.
func (a *App) Publish(ctx context.Context, from events.Origin, data ...events.Payload) error {
	i := a.instance.Load()
	return i.store.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := i.events.PublishAll(ctx, tx, from, data...)
		return err
	})
}

// MetricsURL returns the URL of the metrics, or an empty string if they are off.
func (a *App) MetricsURL() string {
	if i := a.instance.Load(); i != nil && i.metrics != nil {
		return i.metrics.url()
	}
	return ""
}

// CallsInFlight returns the number of model calls in progress.
func (a *App) CallsInFlight() int64 {
	if i := a.instance.Load(); i != nil {
		return i.gateway.InFlight()
	}
	return 0
}

// Wait returns when the listener fails, or nil after Close.
func (a *App) Wait() error {
	err := <-a.served
	a.served <- err
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Close stops accepting requests, waits for those in progress within the configured
// time, flushes pending writes and releases everything. It is idempotent.
func (a *App) Close() error {
	a.closing.Do(func() {
		a.stopRejoining()
		a.rejoining.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout)
		defer cancel()
		if a.server != nil {
			if err := a.server.Shutdown(ctx); err != nil {
				a.closeErr = fmt.Errorf("requests were still running after %s and were canceled", a.cfg.ShutdownTimeout)
				if i := a.instance.Load(); i != nil {
					i.cancelRequests(errStopping)
				}
				ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
				defer cancel()
				_ = a.server.Shutdown(ctx)
				_ = a.server.Close()
				a.awaitCalls()
			}
		}
		a.release()
	})
	return a.closeErr
}

// awaitCalls waits until canceled model calls are settled. Unsettled ones are
// charged their whole reservation.
func (a *App) awaitCalls() {
	waitUntil(func() bool { return a.CallsInFlight() == 0 }, settleTimeout)
}

func waitUntil(done func() bool, timeout time.Duration) {
	for end := time.Now().Add(timeout); !done() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *App) release() {
	if a.control != nil {
		_ = a.control.Close()
	}
	a.plain.close()
	if a.ln != nil {
		_ = a.ln.Close() // a server that ran has already closed it
	}
	if i := a.instance.Swap(nil); i != nil {
		i.release()
	}
	a.unlock()
}

// serverLog receives the log of net/http's server. Most lines are about clients
// that disconnect, so they are logged as debug.
type serverLog struct{ to *slog.Logger }

func newServerLog(to *slog.Logger) *log.Logger { return log.New(serverLog{to}, "", 0) }

// Write logs one line.
func (s serverLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "Accept error") && strings.Contains(text, "too many open files") {
		text, _, _ = strings.Cut(text, "; retrying") // the delay differs, and would defeat deduplication
		s.to.Warn("failed to accept connections: out of file descriptors; "+safehttp.MoreDescriptors, "error", text)
	} else {
		s.to.Debug(text)
	}
	return len(line), nil
}
