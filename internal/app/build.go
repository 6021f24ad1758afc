package app

import (
	"context"
	"log/slog"
	"net/url"
	"path/filepath"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/api"
	"turnpike/internal/apifiles"
	"turnpike/internal/archive"
	"turnpike/internal/audit"
	"turnpike/internal/background"
	"turnpike/internal/batches"
	"turnpike/internal/certificates"
	"turnpike/internal/config"
	"turnpike/internal/contentlog"
	"turnpike/internal/conversations"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/federation"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/idempotency"
	"turnpike/internal/lanes"
	"turnpike/internal/leaks"
	"turnpike/internal/limits"
	"turnpike/internal/logsinks"
	"turnpike/internal/mail"
	"turnpike/internal/media"
	"turnpike/internal/modelroutes"
	"turnpike/internal/nodes"
	"turnpike/internal/notifications"
	"turnpike/internal/operators"
	"turnpike/internal/people"
	"turnpike/internal/providers/simulator"
	"turnpike/internal/safehttp"
	"turnpike/internal/spend"
	"turnpike/internal/tunnel"
	"turnpike/internal/webhooks"
)

// components are the records and engines that an instance connects.
type components struct {
	node        *nodes.Node
	group       *db.Group
	stores      *db.Group // of conversations
	events      *events.Publisher
	ledger      *spend.Ledger
	leases      *spend.LeaseCache
	settler     *spend.Settler
	log         *audit.Log
	refused     *audit.Refused
	throttled   *audit.Throttled
	limiter     *limits.Limiter
	people      *people.People
	lastUsed    *access.LastUsed
	auth        *access.Authenticator
	keys        *access.Keys
	tokens      *access.Tokens
	directory   *accounts.Directory
	endUsers    *endusers.Directory
	idempotency *idempotency.Store

	conversations *conversations.Store
	contents      *contentlog.Store
	archive       *archive.Archive // nil without one
	logSinks      logsinks.List
	apiFiles      *apifiles.Store
	outbox        *mail.Outbox
	notifications *notifications.Service
	hooks         *webhooks.Service
	tunnels       *tunnel.Hub
	gateway       *gateway.Gateway
	media         *media.Service
	background    *background.Service
	batches       *batches.Service
	agents        *agents.Service
	toolServers   *toolservers.Service
	routes        *modelroutes.Service
	leaks         *leaks.Service
	federation    *federation.Service
	certificates  *certificates.Manager // nil without ACME
	definitions   operators.Definitions
}

// build creates the components from the lowest layer to the highest and starts
// their background work.
func (i *instance) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		i.join, i.buildSettings, i.buildRecords, i.buildWebhooks, i.buildEngines, i.buildHandler, i.buildRetention, i.buildCertificates, i.startMetrics,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	i.startWork(ctx)
	return nil
}

// join makes this process a node of the cluster, and recovers requests and
// leases of evicted nodes.
func (i *instance) join(ctx context.Context) (err error) {
	d := i.store.DB
	if err := preparePartitions(ctx, d, i.now(), partitionedTables(i.cfg.Audit)); err != nil {
		slog.Warn("failed to create partitions; rows go to the default ones; retrying", "error", err)
	}
	if d.Engine() == "sqlite" {
		// The lock on the data directory proves that the lanes' owners are gone.
		if err := lanes.ClearOwners(ctx, d); err != nil {
			return err
		}
	}
	if i.node, err = nodes.Join(ctx, d, i.now); err != nil {
		return err
	}
	i.group = db.NewGroup(d).Named("requests")
	i.events = events.NewPublisher(i.now)
	i.ledger = spend.NewLedger(d)
	i.settler = spend.NewSettler(i.ledger, i.events, i.now).Journal(i.node.ID)
	i.log = audit.NewLog(i.group, i.node, i.settler.Settle)
	i.settler.FlushWith(i.log)
	if err := i.recoverOnce(ctx); err != nil {
		// One dead node must not keep the others from serving.
		slog.Log(ctx, db.LogLevel(err), "failed to recover requests of evicted nodes, whose credits stay reserved; retrying", "retry_in", recoverInterval, "error", err)
	}
	if err := i.log.StartFeed(ctx, d); err != nil {
		return err
	}
	i.leases = i.ledger.LeaseCache(i.node).PostWith(i.settler)
	i.limiter = limits.New(d, i.node.ID, i.now)
	return nil
}

func (i *instance) buildSettings(ctx context.Context) error {
	d := i.store.DB
	i.definitions = operators.Definitions{Ring: i.store.Ring, Now: i.now}
	d.OnSignal(operators.SignalDefinitions, func(string) {
		select {
		case i.definitionsChanged <- struct{}{}:
		default: // not yet received
		}
	})
	var err error
	if i.stored, err = i.definitions.All(ctx, d); err != nil {
		return err
	}
	first, err := i.prepare(i.cfg, i.stored)
	if err != nil {
		return err
	}
	i.settings.Store(first)
	i.node.SetConfigHash(first.hash)
	return i.node.Heartbeat(ctx)
}

func (i *instance) buildRecords(ctx context.Context) (err error) {
	d, ring := i.store.DB, i.store.Ring
	i.lastUsed = access.NewLastUsed(d)
	if i.auth, err = access.NewAuthenticator(d, ring, i.lastUsed, i.now); err != nil {
		return err
	}
	i.keys, i.tokens = access.NewKeys(ring, i.now), access.NewTokens(ring, i.now)
	i.idempotency = idempotency.New(ring, i.now)
	i.stores = db.NewGroup(d).Named("conversations")
	i.conversations = conversations.New(d, i.stores, ring, i.now)
	i.contents = contentlog.New(i.group, ring, i.now)
	i.refused = audit.NewRefused(d, int64(i.cfg.Limits.RefusedKeys), i.now)
	i.throttled = audit.NewThrottled(d, i.now)
	i.directory = accounts.NewDirectory(d, i.now)
	if i.endUsers, err = endusers.NewDirectory(d, i.directory.UserSettings, i.now); err != nil {
		return err
	}
	i.outbox = mail.New(d, ring, i.settings.Load().smtp, i.URL(), i.now)
	if err := i.openFiles(ctx); err != nil {
		return err
	}
	i.apiFiles = apifiles.New(d, i.files, ring, i.now)
	if i.archive, err = OpenArchive(d, i.cfg, i.node.ID, i.now); err != nil {
		return err
	}
	i.contents.FindEntry = i.archive.Get
	if i.logSinks, err = LogSinks(ctx, d, i.cfg.Audit, i.node, i.version); err != nil {
		return err
	}
	i.setQuotas(i.cfg.Limits)
	return nil
}

// mailServer returns nil if emails are only logged.
func mailServer(cfg config.Config) (*mail.SMTP, error) {
	if cfg.SMTP.URL == "" {
		return nil, nil
	}
	return mail.NewSMTP(string(cfg.SMTP.URL), cfg.Mail.From)
}

func (i *instance) buildWebhooks(ctx context.Context) error {
	c := i.cfg.Webhooks
	guard := safehttp.New(safehttp.Policy{AllowCIDRs: c.AllowCIDRs, AllowHTTP: c.AllowHTTP})
	i.notifications = notifications.New(notifications.Options{DB: i.store.DB, Ring: i.store.Ring, Guard: guard, Outbox: i.outbox, Node: i.node.ID,
		PublicURL: i.URL(), Version: i.version, Pending: i.pendingApproval, Now: i.now})
	i.hooks = webhooks.New(webhooks.Options{DB: i.store.DB, Group: i.group, Ring: i.store.Ring, Publisher: i.events, Outbox: i.outbox, Node: i.node.ID,
		Guard: guard, Notify: i.notifications.Notify,
		Schedule: c.RetrySchedule, Timeout: c.Timeout, PerEndpoint: c.PerEndpoint, Slots: c.Concurrency,
		Version: i.version, Link: i.fileURL, LinkBase: i.URL(), Now: i.now})
	i.tunnels = tunnel.NewHub(i.store.DB, i.hooks)
	i.hooks.AddSender(webhooks.Tunnel, i.tunnels)
	return i.disconnectEvicted(ctx)
}

// pendingApproval reports whether an approval of a run, or of an MCP client's call, still waits for a decision.
func (i *instance) pendingApproval(ctx context.Context, tx *db.Tx, runID, approvalID string) (bool, error) {
	if runID == "" {
		return i.toolServers.PendingApproval(ctx, tx, approvalID)
	}
	return agents.PendingApproval(ctx, tx, runID, approvalID)
}

// buildEngines creates the gateway, and the jobs and agent runs that call models through it.
func (i *instance) buildEngines(ctx context.Context) (err error) {
	if i.telemetry, err = newTelemetry(ctx, i.version); err != nil {
		return err
	}
	d, ring := i.store.DB, i.store.Ring
	i.routes = &modelroutes.Service{DB: d, Now: i.now, IsTaken: func(name string) bool { return i.gateway.HasRoute(name) }}
	routes := modelroutes.NewDirectory(i.routes)
	i.gateway = gateway.New(gateway.Options{Simulator: simulator.New(simulator.Options{}), Leases: i.leases, Budgets: i.directory.Budgets, ProjectModels: i.directory.AllowedModels, Limiter: i.limiter,
		WorkspaceRoute: routes.Find, RouteNames: routes.Names, EndUsers: i.endUsers, Now: i.now, Observe: i.telemetry.observe}, i.settings.Load().gateway)
	i.settler.ExemptUnbilled(i.gateway.IgnoresUnbilled)

	m := i.cfg.Media
	i.media = media.New(media.Options{DB: d, Files: i.files, Gateway: i.gateway, Settler: i.settler, Publisher: i.events, Node: i.node.ID,
		PerLane: m.PerWorkspace, Slots: m.Concurrency, Deadline: m.Deadline, PollEvery: m.PollInterval, Now: i.now})

	i.batches = batches.New(batches.Options{DB: d, Ring: ring, Files: i.apiFiles, Content: i.files, Gateway: i.gateway, Log: i.log, Settler: i.settler, Publisher: i.events,
		Node: i.node.ID, PerLane: i.cfg.Batches.PerWorkspace, Slots: i.cfg.Batches.Concurrency, Limits: i.batchLimits, RenderError: i.renderBatchError, Now: i.now})

	b := i.cfg.Responses
	i.background = background.New(background.Options{DB: d, Ring: ring, Gateway: i.gateway, Store: i.conversations, Settler: i.settler, Publisher: i.events, Node: i.node.ID,
		PerLane: b.PerWorkspace, Slots: b.Concurrency, Deadline: b.Deadline, Now: i.now})

	c := i.cfg.Agents
	guard := safehttp.New(safehttp.Policy{AllowCIDRs: c.AllowCIDRs, AllowHTTP: c.AllowHTTP})
	i.toolServers = toolservers.New(toolservers.Options{DB: d, Ring: ring, Notifications: i.notifications, Guard: guard, Version: i.version, Now: i.now,
		Requests:  func() *tools.RequestLimits { return i.settings.Load().agents.Requests },
		TestTools: func() accounts.ToolMode { return i.settings.Load().agents.TestTools }})
	i.agents = agents.New(agents.Options{DB: d, Ring: ring, Gateway: i.gateway, Log: i.log, Publisher: i.events, Servers: i.toolServers, Node: i.node.ID, Guard: guard,
		PerLane: c.PerWorkspace, Slots: c.Concurrency, ToolResult: simulator.ToolResult, Version: i.version, Now: i.now}, i.settings.Load().agents)

	l := i.cfg.Leaks
	i.federation = federation.New(federation.Options{DB: d, Keys: i.keys, Tokens: i.tokens, Guard: guard, Now: i.now})
	i.leaks = leaks.New(leaks.Options{DB: d, Keys: i.keys, Tokens: i.tokens, People: i.people, Webhooks: i.hooks, Operators: operators.Credentials{Ring: ring, Now: i.now}, Publisher: i.events, Outbox: i.outbox, Now: i.now,
		GitHubKeysURL: l.GitHubKeysURL, GitLabToken: string(l.GitLabToken), ReportsPerMinute: int64(l.ReportPerMinute)})
	return nil
}

func (i *instance) batchLimits() batches.Limits {
	l := i.settings.Load().quotas
	return batches.Limits{Lines: l.BatchRequests, LineBytes: int64(l.ModelBodyBytes), JSONDepth: l.JSONDepth, JSONValues: l.JSONValues}
}

func (i *instance) renderBatchError(e batches.Endpoint, f *fault.Error, requestID string) []byte {
	return api.ErrorJSON(e == batches.Messages, f, requestID, i.URL())
}

func (i *instance) buildHandler(context.Context) error {
	d := i.store.DB
	pages, err := dashboard.New(dashboard.Options{DB: d, Ring: i.store.Ring, People: i.people, Keys: i.keys, Tokens: i.tokens, Settler: i.settler, Webhooks: i.hooks, Media: i.media,
		Agents: i.agents, ToolServers: i.toolServers, Routes: i.routes, Gateway: i.gateway, Leaks: i.leaks, Federation: i.federation, Files: i.files, APIFiles: i.apiFiles, Contents: i.contents, Archive: i.archive, Batches: i.batches, Outbox: i.outbox, Notifications: i.notifications, PublicURL: i.URL(), ListenURL: i.ListenURL(), Now: i.now,
		SignIn: func() *dashboard.SignInProvider { return i.settings.Load().signIn }, TrustedProxies: i.trustedProxies, Facts: i.facts, Definitions: i.manager()})
	if err != nil {
		return err
	}
	i.api = api.New(api.Deps{DB: d, Auth: i.auth, Keys: i.keys, Tokens: i.tokens, Projects: i.directory, Log: i.log, Settler: i.settler, Refused: i.refused, Throttled: i.throttled,
		Limiter: i.limiter, Webhooks: i.hooks, Tunnels: i.tunnels, Files: i.files, Media: i.media, Agents: i.agents, ToolServers: i.toolServers, Routes: i.routes, Leaks: i.leaks, Federation: i.federation, Gateway: i.gateway,
		Idempotency: i.idempotency, Conversations: i.conversations, Contents: i.contents, Archive: i.archive, Background: i.background, APIFiles: i.apiFiles, Batches: i.batches, Notifications: i.notifications, Now: i.now, PublicURL: i.URL(), Version: i.version,
		Operators: operators.Credentials{Ring: i.store.Ring, Now: i.now}, Definitions: i.manager()}, i.settings.Load().api)
	public, err := url.Parse(i.URL())
	if err != nil {
		return err
	}
	i.handler = &handler{pages: pages, api: i.api, public: public, trusted: i.trustedProxies}
	i.stopWatching = func() {
		pages.StopWatching()
		i.api.StopWatching()
	}
	d.OnSignal(people.SignalSetup, func(userID string) {
		if userID != "" { // empty if signals may have been lost
			i.deleteFirstRun()
		}
	})
	return nil
}

// manager manages the stored definitions, and applies each change to this node before it returns.
func (i *instance) manager() *Definitions {
	return &Definitions{db: i.store.DB, records: i.definitions, file: i.reloading.config, refresh: i.refreshDefinitions}
}

// agentSettings converts the limits of tools.
func (i *instance) agentSettings(c config.Agents) agents.Settings {
	return agents.Settings{
		Requests: &tools.RequestLimits{Limiter: i.limiter, PerWorkspace: int64(c.RequestsPerMinute), PerHost: int64(c.HostRequestsPerMinute),
			UnlimitedHosts: c.UnlimitedHosts, Now: i.now},
		CallsPerStep: c.ToolCallsPerStep, CallsPerRun: int64(c.ToolCallsPerRun), TestTools: accounts.ToolMode(c.TestToolsDefault)}
}

// requestLimits converts the limits of one request.
func requestLimits(l config.Limits) api.Limits {
	return api.Limits{Body: int64(l.BodyBytes), ModelBody: int64(l.ModelBodyBytes), Header: int64(l.HeaderBytes),
		JSONDepth: l.JSONDepth, JSONValues: l.JSONValues, BodyTimeout: l.BodyTimeout}
}

func requestRates(l config.Limits) api.Rates {
	return api.Rates{
		Key:               api.RequestRates{Reads: int64(l.ReadsPerMinute), Writes: int64(l.WritesPerMinute)},
		Workspace:         api.RequestRates{Reads: int64(l.WorkspaceReadsPerMinute), Writes: int64(l.WorkspaceWritesPerMinute)},
		LiveModelRequests: int64(l.LiveRequestsPerMinute), TestModelRequests: int64(l.TestRequests()),
		WorkspaceModelRequests: int64(l.WorkspaceModelRequestsPerMinute),
	}
}

// startWork starts the background work. It ends with stopWork, not with ctx.
func (i *instance) startWork(ctx context.Context) {
	ctx, i.stopWork = context.WithCancel(context.WithoutCancel(ctx))
	for _, run := range []func(context.Context){
		i.runNode, i.recoverEvictedNodes, i.limiter.Run, i.keeper.Run,
		i.lastUsed.Run, i.refused.Run, i.throttled.Run,
		i.outbox.Run, i.hold.delay(i.hooks.Run), i.hold.delay(i.notifications.Run), i.tunnels.Run, i.hold.delay(i.media.Run), i.hold.delay(i.background.Run), i.hold.delay(i.batches.Run), i.hold.delay(i.agents.Run), i.leaks.Run,
		func(ctx context.Context) { i.leases.Run(ctx, i.store.DB) },
		func(ctx context.Context) { i.log.RunFeed(ctx, i.store.DB) },
		i.settler.Run, i.hold.delay(i.archive.Run), i.hold.delay(i.logSinks.Run),
		i.hold.watch, i.hold.delay(i.runBackups), i.hold.delay(i.runLeakScans), i.runCertificates, i.followDefinitions,
	} {
		i.work.Go(func() { run(ctx) })
	}
}

const (
	// finalAfter is the age at which log entries are archived. Batches take up to 24 hours, and end the entries
	// of their lines.
	finalAfter = 24 * time.Hour

	filesDirectory = "files"
	// filesKey derives the key that signs URLs. No API key has the same hash,
	// because API keys begin with tp_.
	filesKey = "turnpike/files/v1"
)

func (i *instance) openFiles(ctx context.Context) (err error) {
	if i.cfg.DatabaseURL != "" && i.cfg.Files.URL == "" {
		slog.Info("files are stored in this node's data directory; if you run several nodes, set files.url")
	}
	key := i.store.Ring.Hash(filesKey)
	i.files, err = files.Open(ctx, files.Options{DB: i.store.DB, URL: string(i.cfg.Files.URL), Dir: filepath.Join(i.cfg.Data, filesDirectory), Key: key[:],
		PublicURL: i.URL(), Retention: i.cfg.Files.Retention, FromBucket: i.cfg.Files.FromBucket, Now: i.now})
	return err
}

// OpenArchive opens the archive of the request log. It returns nil if there is none.
func OpenArchive(d *db.DB, c config.Config, node string, now func() time.Time) (*archive.Archive, error) {
	return archive.New(archive.Options{DB: d, To: string(c.Audit.Archive.To), Spool: c.Data, Node: node, DatabaseDays: c.Audit.RetentionDays, Days: c.Audit.Archive.RetentionDays,
		FinalAfter: max(finalAfter, c.Media.Deadline, c.Responses.Deadline), Now: now})
}

func (i *instance) fileURL(base string, t accounts.Tenant, sha256, name string, expires time.Time) string {
	return base + i.files.Path(t, files.File{SHA256: sha256}, name, expires)
}
