package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/api"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/connlimit"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/idempotency"
	"turnpike/internal/lanes"
	"turnpike/internal/leaks"
	"turnpike/internal/limits"
	"turnpike/internal/mail"
	"turnpike/internal/media"
	"turnpike/internal/nodes"
	"turnpike/internal/people"
	"turnpike/internal/providers/simulator"
	"turnpike/internal/retention"
	"turnpike/internal/safehttp"
	"turnpike/internal/spend"
	"turnpike/internal/tunnel"
	"turnpike/internal/webhooks"
)

// Timeouts against clients that hold a connection and say nothing. Bodies and
// answers have their own, in the edge.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	recoverEvery  = 30 * time.Second
	// lastWords is for requests that are cut off, to say so.
	lastWords = time.Second
	// settleTimeout is for calls that were cut off, which may wait for two
	// seconds to hear what they have used.
	settleTimeout = 4 * time.Second
)

// errStopping is why a request was cut off that had not ended in time.
var errStopping = &fault.Error{Code: fault.Overloaded, Message: "the server is stopping; try again", RetryAfter: time.Second}

// App is a running server: the listener, and the instance that answers.
type App struct {
	site
	now      func() time.Time
	ln       net.Listener
	server   *http.Server
	instance atomic.Pointer[instance] // nil while the node rejoins
	unlock   func()

	stopRejoining context.CancelFunc
	rejoining     sync.WaitGroup
	closing       sync.Once
	closeErr      error
	served        chan error

	// FirstRun is set when this start made the database.
	FirstRun *FirstRun
}

// Start opens the store, starts every part and listens, so that callers wait
// in line until Serve lets them in. Close stops it. A nil now is the time of day.
func Start(ctx context.Context, cfg config.Config, version string, now func() time.Time) (_ *App, err error) {
	if now == nil {
		now = clock
	}
	a := &App{site: site{cfg: cfg, version: version}, now: now, served: make(chan error, 1), unlock: func() {}, stopRejoining: func() {}}
	defer func() {
		if err != nil {
			a.release()
		}
	}()
	if cfg.DatabaseURL == "" {
		if err := makeDataFolder(cfg.Data); err != nil {
			return nil, err
		}
		unlock, err := lockData(cfg.Data)
		if err != nil {
			return nil, err
		}
		a.unlock = unlock
	}
	// The first run's workspace is made last: a start that fails can be repeated,
	// and the key is still to be shown.
	if err := a.listen(); err != nil {
		return nil, err
	}
	first, err := startInstance(ctx, a.site, now)
	if err != nil {
		return nil, err
	}
	a.instance.Store(first)
	if a.FirstRun, err = firstRun(ctx, first.store, first.people, now); err != nil {
		return nil, err
	}
	return a, nil
}

// build makes the parts in the order of the layers and starts their work.
func (a *instance) build(ctx context.Context, now func() time.Time) (err error) {
	d, ring := a.store.DB, a.store.Ring
	if err := preparePartitions(ctx, d, now()); err != nil {
		// The default partition takes what has none of its own.
		slog.Warn("could not make the next partitions; it is tried again", "error", err)
	}
	if a.node, err = nodes.Join(ctx, d, now); err != nil {
		return err
	}
	a.group = db.NewGroup(d)
	a.events = events.NewPublisher(now)
	a.ledger = spend.NewLedger(d)
	settler := spend.NewSettler(a.ledger, a.events, now)
	a.log = audit.NewLog(a.group, a.node, settler.Settle)
	if err := a.recoverOnce(ctx); err != nil {
		// What one dead node left must not keep all others from serving.
		slog.Error("failed to recover requests of evicted nodes, whose credits stay reserved; retrying", "retry_in", recoverEvery, "error", err)
	}
	a.leases = a.ledger.LeaseCache(a.node)
	limiter := limits.New(d, a.node.ID, now)
	if a.telemetry, err = newTelemetry(ctx, a.version); err != nil {
		return err
	}
	used := access.NewLastUsed(d)
	auth, err := access.NewAuthenticator(d, ring, used, now)
	if err != nil {
		return err
	}
	if d.Engine() == "sqlite" {
		// The lock on the data folder says that whoever had lanes is gone.
		if err := lanes.ClearOwners(ctx, d); err != nil {
			return err
		}
	}
	outbox, err := a.newOutbox(now)
	if err != nil {
		return err
	}
	if err := a.openFiles(ctx, now); err != nil {
		return err
	}
	hooks := webhooks.New(webhooks.Options{DB: d, Group: a.group, Ring: ring, Publisher: a.events, Outbox: outbox, Node: a.node.ID,
		Guard:    safehttp.New(safehttp.Policy{AllowCIDRs: a.cfg.Webhooks.AllowCIDRs, AllowHTTP: a.cfg.Webhooks.AllowHTTP}),
		Schedule: a.cfg.Webhooks.RetrySchedule, Timeout: a.cfg.Webhooks.Timeout, PerEndpoint: a.cfg.Webhooks.PerEndpoint,
		Slots: a.cfg.Webhooks.Concurrency, Version: a.version, Link: a.fileURL, Now: now})
	a.hooks = hooks
	tunnels := tunnel.NewHub(d, hooks)
	hooks.AddSender(webhooks.Tunnel, tunnels)
	if err := a.disconnectEvicted(ctx); err != nil {
		return err
	}
	keys, tokens := access.NewKeys(ring, now), access.NewTokens(ring, now)
	keys.Max, tokens.Max = int64(a.cfg.Limits.Keys), int64(a.cfg.Limits.ScopedTokens)
	remembered := idempotency.New(ring, now)
	remembered.Max = int64(a.cfg.Limits.IdempotencyRecords)
	refused := audit.NewRefused(d, int64(a.cfg.Limits.RefusedKeys), now)
	throttled := audit.NewThrottled(d, now)
	directory := accounts.NewDirectory(d, now)
	directory.NewPerDay = int64(a.cfg.Limits.NewProjectsPerDay)

	models, err := LoadCatalog(a.cfg)
	if err != nil {
		return err
	}
	a.gateway = gateway.New(gateway.Options{Catalog: models, Simulator: simulator.New(simulator.Options{}), Upstreams: upstreams(a.cfg), Routes: routes(a.cfg),
		Ledger: a.leases, Budgets: directory.Budgets, Limiter: limiter, Rates: rates(a.cfg.Limits), DefaultMaxOutput: int64(a.cfg.Gateway.DefaultMaxOutput),
		Strict: a.cfg.Audit.Strict, Now: now, Observe: a.telemetry.observe})
	jobs := media.New(media.Options{DB: d, Files: a.files, Gateway: a.gateway, Settler: settler, Publisher: a.events, Node: a.node.ID,
		PerLane: a.cfg.Media.PerWorkspace, Slots: a.cfg.Media.Concurrency, Deadline: a.cfg.Media.Deadline, PollEvery: a.cfg.Media.PollInterval, Now: now})

	runs := agents.New(agents.Options{DB: d, Ring: ring, Gateway: a.gateway, Log: a.log, Publisher: a.events, Node: a.node.ID,
		Guard:   safehttp.New(safehttp.Policy{AllowCIDRs: a.cfg.Agents.AllowCIDRs, AllowHTTP: a.cfg.Agents.AllowHTTP}),
		PerLane: a.cfg.Agents.PerWorkspace, Slots: a.cfg.Agents.Concurrency,
		Requests: &tools.RequestLimits{Limiter: limiter, PerWorkspace: int64(a.cfg.Agents.RequestsPerMinute), PerHost: int64(a.cfg.Agents.HostRequestsPerMinute),
			UnlimitedHosts: a.cfg.Agents.UnlimitedHosts, Now: now},
		CallsPerStep: a.cfg.Agents.ToolCallsPerStep, CallsPerRun: int64(a.cfg.Agents.ToolCallsPerRun),
		TestTools: accounts.ToolMode(a.cfg.Agents.TestToolsDefault), ToolResult: simulator.ToolResult, Version: a.version, Now: now})

	leaked := leaks.New(leaks.Options{DB: d, Keys: keys, Tokens: tokens, Publisher: a.events, Outbox: outbox, Now: now,
		GitHubKeysURL: a.cfg.Leaks.GitHubKeysURL, GitLabToken: string(a.cfg.Leaks.GitLabToken), ReportsPerMinute: int64(a.cfg.Leaks.ReportPerMinute)})

	pages, err := dashboard.New(dashboard.Options{DB: d, Ring: ring, People: a.people, Keys: keys, Tokens: tokens, Webhooks: hooks, Media: jobs,
		Agents: runs, Leaks: leaked, Files: a.files, Outbox: outbox, SignIn: a.signIn(), PublicURL: a.URL(), ListenURL: a.Listens(), TrustedProxies: a.cfg.TrustedProxies, Facts: a.facts(), Now: now})
	if err != nil {
		return err
	}
	edge := api.New(api.Deps{
		DB: d, Auth: auth, Keys: keys, Tokens: tokens, Projects: directory, Log: a.log, Refused: refused, Throttled: throttled, Limiter: limiter, Webhooks: hooks, Tunnels: tunnels, Files: a.files, Media: jobs, Agents: runs, Leaks: leaked,
		Gateway: a.gateway, Idempotency: remembered, Now: now, TrustedProxies: a.cfg.TrustedProxies, AllowedOrigins: a.cfg.AllowedOrigins,
		Limits: edgeLimits(a.cfg.Limits), Rates: edgeRates(a.cfg.Limits),
	})
	public, err := url.Parse(a.URL())
	if err != nil {
		return err
	}
	a.handler = &faces{pages: pages, api: edge, public: public}
	a.stopWatching = func() {
		pages.StopWatching()
		edge.StopWatching()
	}

	d.OnSignal(people.SignalSetUp, func(person string) {
		if person != "" { // else it is not known what has happened
			a.deleteFirstRun()
		}
	})
	workCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stopWork = stop
	a.keeper = &retention.Keeper{DB: d, Before: func(ctx context.Context) error {
		err := preparePartitions(ctx, d, now())
		before, failed := hooks.DropBefore(ctx)
		err = errors.Join(err, failed)
		for _, p := range []db.Partitioned{webhooks.Attempts, webhooks.Deliveries, events.Table} {
			err = errors.Join(err, p.Drop(ctx, d, before)) // nothing is before the zero time
		}
		return errors.Join(err, audit.Requests.Drop(ctx, d, a.logWindow(now)), a.deleteClaimedFirstRun(ctx))
	}, Purges: append(hooks.Purges(), []retention.Purge{
		{Name: "expired token hashes", Run: tokens.PurgeHashes},
		{Name: "scoped tokens", Run: tokens.Purge},
		{Name: "retired secrets", Run: keys.PurgeSecrets},
		{Name: "idempotency keys", Run: remembered.Purge},
		{Name: "requests", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return audit.Purge(ctx, tx, a.logWindow(now), n)
		}},
		{Name: "admin actions", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return audit.PurgeActions(ctx, tx, a.logWindow(now), n)
		}},
		{Name: "refused keys", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return audit.PurgeRefused(ctx, tx, a.logWindow(now), n)
		}},
		{Name: "throttled requests", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return audit.PurgeThrottled(ctx, tx, a.logWindow(now), n)
		}},
		{Name: "leak reports", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return leaks.Purge(ctx, tx, a.logWindow(now), n)
		}},
		{Name: "usage by the minute", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return spend.PurgeUsage(ctx, tx, now().Add(-spend.MinutesKept), n)
		}},
		{Name: "shares of limits", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return limits.Purge(ctx, tx, now(), n)
		}},
		{Name: "counts of what expires", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return accounts.PurgeCounts(ctx, tx, now(), n)
		}},
		{Name: "mails", Run: func(ctx context.Context, tx *db.Tx, n int64) (int64, error) {
			return mail.Purge(ctx, tx, hooks.RowsBefore(), n)
		}},
		{Name: "sessions and links", Run: a.people.Purge},
		{Name: "media jobs", Run: jobs.Purge},
		{Name: "agent runs", Run: runs.Purge},
		{Name: "files", Run: a.files.Purge},
	}...)}
	if a.metrics, err = startMetrics(a.cfg.MetricsListen, hooks, a.telemetry, callsInFlight(a.gateway)); err != nil {
		return err
	}
	for _, run := range []func(context.Context){a.runNode, used.Run, refused.Run, throttled.Run, a.keeper.Run, a.recoverEvictedNodes, outbox.Run, hooks.Run, tunnels.Run, jobs.Run, runs.Run, limiter.Run, leaked.Run,
		func(ctx context.Context) { a.leases.Run(ctx, d) }} {
		a.work.Go(func() { run(workCtx) })
	}
	return nil
}

// edgeLimits are the configuration's for one request. A workspace alone has half
// of the room for bodies, in which the largest one must find its place.
func edgeLimits(l config.Limits) api.Limits {
	return api.Limits{Body: int64(l.BodyBytes), ModelBody: int64(l.ModelBodyBytes), Header: int64(l.HeaderBytes),
		JSONDepth: l.JSONDepth, JSONValues: l.JSONValues, BodyPatience: l.BodyTimeout,
		Bodies: int64(max(l.BodiesBytes, 2*l.BodyBytes, 2*l.ModelBodyBytes))}
}

// edgeRates are the configured rate limits of requests.
func edgeRates(l config.Limits) api.Rates {
	return api.Rates{
		Key:               api.RequestRates{Reads: int64(l.ReadsPerMinute), Writes: int64(l.WritesPerMinute)},
		Workspace:         api.RequestRates{Reads: int64(l.WorkspaceReadsPerMinute), Writes: int64(l.WorkspaceWritesPerMinute)},
		LiveModelRequests: int64(l.LiveRequestsPerMinute), TestModelRequests: int64(l.TestRequests()),
		WorkspaceModelRequests: int64(l.WorkspaceModelRequestsPerMinute),
	}
}

// newOutbox makes the way out for mail; without a mail server it is the log.
func (a *instance) newOutbox(now func() time.Time) (*mail.Outbox, error) {
	var smtp *mail.SMTP
	if a.cfg.SMTP.URL != "" {
		var err error
		if smtp, err = mail.NewSMTP(string(a.cfg.SMTP.URL), a.cfg.Mail.From); err != nil {
			return nil, err
		}
	}
	return mail.New(a.store.DB, a.store.Ring, smtp, mail.Options{PublicURL: a.URL(), Now: now}), nil
}

// partitioned are the big tables.
var partitioned = []db.Partitioned{audit.Requests, events.Table, webhooks.Deliveries, webhooks.Attempts}

// preparePartitions makes the next months' of every big table.
func preparePartitions(ctx context.Context, d *db.DB, now time.Time) (err error) {
	for _, p := range partitioned {
		err = errors.Join(err, p.Prepare(ctx, d, now))
	}
	return err
}

// logWindow is the moment before which the request log is let go.
func (a *instance) logWindow(now func() time.Time) time.Time {
	return now().AddDate(0, 0, -a.cfg.Audit.RetentionDays)
}

// recoverEvictedNodes evicts nodes that died, and recovers what they left.
func (a *instance) recoverEvictedNodes(ctx context.Context) {
	tick := time.NewTicker(recoverEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := errors.Join(a.recoverOnce(ctx), a.disconnectEvicted(ctx)); err != nil && ctx.Err() == nil {
				slog.Error("failed to recover from evicted nodes; retrying", "retry_in", recoverEvery, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// recoverOnce charges the open requests of evicted nodes before it releases their
// leases, which pay for them. A node whose requests can't be charged keeps its
// own leases and affects no other.
func (a *instance) recoverOnce(ctx context.Context) error {
	_, evictErr := a.node.EvictStale(ctx)
	_, recoverErr := a.log.Recover(ctx, a.store.DB)
	return errors.Join(evictErr, recoverErr, a.ledger.CloseEvicted(ctx))
}

// disconnectEvicted marks the tunnels of evicted nodes as disconnected.
func (a *instance) disconnectEvicted(ctx context.Context) error {
	members, err := nodes.Members(ctx, a.store.DB)
	if err != nil {
		return err
	}
	return a.hooks.DisconnectDead(ctx, members)
}

func (a *App) listen() (err error) {
	var shown *certificate
	if a.cfg.TLS.Cert != "" {
		if shown, err = loadCertificate(a.cfg.TLS.Cert, a.cfg.TLS.Key); err != nil {
			return err
		}
	}
	if a.ln, err = net.Listen("tcp", a.cfg.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.ln = connlimit.New(a.cfg.Limits.UnauthenticatedConnections, a.cfg.TrustedProxies).Listener(a.ln)
	a.address = a.ln.Addr().String()
	if shown != nil {
		a.ln = tls.NewListener(a.ln, &tls.Config{GetCertificate: shown.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	}
	return nil
}

// Serve begins to answer. It returns immediately.
func (a *App) Serve() {
	// Room beyond our own limit, so that headers which are only somewhat too
	// large get our answer and not the server library's bare one.
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ConnContext: connlimit.ConnContext,
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
}

// RunRetention lets go now what is due to go. The server does it by itself.
func (a *App) RunRetention(ctx context.Context) error { return a.instance.Load().keeper.RunOnce(ctx) }

// RetentionPasses is how often it has, since the node joined.
func (a *App) RetentionPasses() int64 { return a.instance.Load().keeper.Passes() }

// Publish makes something happen, as the parts of the server do.
func (a *App) Publish(ctx context.Context, from events.Origin, data ...events.Payload) error {
	i := a.instance.Load()
	return i.store.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := i.events.PublishAll(ctx, tx, from, data...)
		return err
	})
}

// MetricsURL is where metrics are, or empty.
func (a *App) MetricsURL() string {
	if i := a.instance.Load(); i != nil && i.metrics != nil {
		return i.metrics.url()
	}
	return ""
}

// CallsInFlight is how many model calls are in progress.
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

// Close stops taking requests, finishes those in flight within the configured
// time, writes what is still to be written, and releases everything. It is
// idempotent and waits.
func (a *App) Close() error {
	a.closing.Do(func() {
		a.stopRejoining()
		a.rejoining.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout)
		defer cancel()
		if a.server != nil {
			if err := a.server.Shutdown(ctx); err != nil {
				a.closeErr = fmt.Errorf("requests were still running after %s and were cut off", a.cfg.ShutdownTimeout)
				if i := a.instance.Load(); i != nil {
					i.cancelRequests(errStopping)
				}
				ctx, cancel := context.WithTimeout(context.Background(), lastWords)
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

// awaitCalls waits until the model calls that were cut off are settled: those
// that are not are charged with all that was set aside for them.
func (a *App) awaitCalls() {
	for end := time.Now().Add(settleTimeout); a.CallsInFlight() > 0 && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

func (a *App) release() {
	if a.ln != nil {
		_ = a.ln.Close() // a server that ran has closed it already
	}
	if i := a.instance.Swap(nil); i != nil {
		i.release()
	}
	a.unlock()
}
