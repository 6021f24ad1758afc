package app

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/agents"
	"turnpike/internal/api"
	"turnpike/internal/backup"
	"turnpike/internal/config"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/gateway"
	"turnpike/internal/mail"
	"turnpike/internal/operators"
)

// ErrRejoining means that the settings can't be replaced, because the node has
// been evicted and is joining the cluster again.
var ErrRejoining = errors.New("the node is rejoining the cluster; retry in a few seconds")

// Reloaded is the result of a reload.
type Reloaded struct {
	Applied []string `json:"applied"` // settings that have changed
	Restart []string `json:"restart"` // settings that differ from the running ones and need a restart
	Hash    string   `json:"hash"`    // of the settings in use
}

// reloading guards the configuration of later instances.
type reloading struct {
	mu     sync.Mutex
	latest config.Config
	failed atomic.Bool // the last reload
}

func (r *reloading) config() config.Config {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// Reload loads the configuration and applies the settings that can change while
// the server runs. Requests in progress keep theirs. If anything is wrong, it
// changes nothing.
func (a *App) Reload(ctx context.Context, load func() (config.Config, error)) (out Reloaded, err error) {
	r := a.reloading
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.failed.Store(err != nil) }()
	next, err := load()
	if err != nil {
		return out, err
	}
	merged, changes := r.latest.Reload(next)
	if err := merged.Validate(); err != nil {
		return out, errors.Join(errors.New("the new settings depend on others that need a restart"), err)
	}
	i := a.instance.Load()
	if i == nil {
		return out, ErrRejoining
	}
	prepared, err := i.prepare(merged, i.stored)
	if err != nil {
		return out, err
	}
	if err := a.tls.load(merged.TLS); err != nil {
		return out, err
	}
	a.connections.SetExempt(merged.TrustedProxies)
	i.apply(prepared)
	r.latest = merged
	if err := i.node.Heartbeat(ctx); err != nil {
		slog.Warn("failed to store the hash of the new configuration; the next heartbeat does", "error", err)
	}
	if i.certificates != nil {
		if err := i.certificates.RetryFailed(ctx); err != nil {
			slog.Warn("failed to retry the orders of TLS certificates; they are retried later", "error", err)
		}
	}
	return Reloaded{Applied: notNil(changes.Applied), Restart: notNil(changes.Restart), Hash: prepared.hash}, nil
}

func notNil(names []string) []string { return append([]string{}, names...) }

// settings are the settings that can change while an instance serves, in the
// form of the components that use them.
type settings struct {
	gateway gateway.Settings
	clients []providerClient
	api     api.Settings
	agents  agents.Settings
	retries []time.Duration // of webhooks
	quotas  config.Limits
	domains []string                  // of ACME
	smtp    *mail.SMTP                // nil if emails are only logged
	oidc    config.OIDC               // of signIn
	signIn  *dashboard.SignInProvider // nil if there is none
	backups *backup.Schedule          // nil if they aren't scheduled
	facts   dashboard.Facts
	hash    string // of the whole configuration
}

// prepare converts the settings, together with the stored definitions, and changes nothing.
func (i *instance) prepare(file config.Config, stored []*operators.Stored) (*settings, error) {
	all, err := mergeStored(file, stored)
	if err != nil {
		return nil, err
	}
	for ref, problem := range all.problems {
		slog.Warn("a stored definition is not used", "kind", ref.Kind, "name", ref.Name, "problem", problem)
	}
	cfg := all.config
	for _, r := range cfg.Routes {
		if missing := NotOffered(cfg, all.catalog, r); len(missing) > 0 {
			slog.Warn("no provider offers these models of a route at a known price; requests skip them", "route", r.Name, "models", missing)
		}
	}
	smtp, err := mailServer(cfg)
	if err != nil {
		return nil, err
	}
	backups, err := i.backupSchedule(cfg)
	if err != nil {
		return nil, err
	}
	var before settings
	if current := i.settings.Load(); current != nil {
		before = *current
	}
	signIn := before.signIn
	if cfg.OIDC != before.oidc { // otherwise it keeps what it knows about the provider
		signIn = i.newSignIn(cfg.OIDC)
	}
	clients := providerClients(cfg, before.clients)
	sum := i.store.Ring.Hash(configKey + file.Canonical())
	hash := hex.EncodeToString(sum[:8])
	facts := i.newFacts(cfg)
	facts.ConfigHash = hash
	return &settings{
		gateway: gateway.Settings{Catalog: all.catalog, Upstreams: upstreams(cfg, clients), Routes: routes(cfg), Rates: modelRates(cfg.Limits),
			DefaultMaxOutput: int64(cfg.Gateway.DefaultMaxOutput), Strict: cfg.Audit.Strict},
		clients: clients,
		api: api.Settings{Limits: requestLimits(cfg.Limits), Rates: requestRates(cfg.Limits), TrustedProxies: cfg.TrustedProxies,
			AllowedOrigins: cfg.AllowedOrigins},
		agents: i.agentSettings(cfg.Agents), retries: cfg.Webhooks.RetrySchedule, quotas: cfg.Limits, domains: cfg.TLS.ACME.Domains,
		smtp: smtp, oidc: cfg.OIDC, signIn: signIn, backups: backups, facts: facts, hash: hash,
	}, nil
}

// refreshInterval is how long a node waits before it reads the definitions again after a failure.
const refreshInterval = 500 * time.Millisecond

// refreshDefinitions reads the stored definitions and applies them if they have changed.
func (i *instance) refreshDefinitions(ctx context.Context) error {
	r := i.reloading
	r.mu.Lock()
	defer r.mu.Unlock()
	stored, err := i.definitions.All(ctx, i.store.DB)
	if err != nil {
		return err
	}
	if slices.EqualFunc(stored, i.stored, (*operators.Stored).Equal) {
		return nil
	}
	prepared, err := i.prepare(r.latest, stored)
	if err != nil {
		return err
	}
	i.stored = stored
	i.apply(prepared)
	slog.Info("applied the stored definitions of providers, routes and prices", "definitions", len(stored))
	return nil
}

// followDefinitions refreshes the definitions when another node or a command has changed them.
func (i *instance) followDefinitions(ctx context.Context) {
	for {
		select {
		case <-i.definitionsChanged:
		case <-ctx.Done():
			return
		}
		for err := i.refreshDefinitions(ctx); err != nil && ctx.Err() == nil; err = i.refreshDefinitions(ctx) {
			slog.Log(ctx, db.LogLevel(err), "failed to read the stored definitions; retrying", "retry_in", refreshInterval, "error", err)
			select {
			case <-time.After(refreshInterval):
			case <-ctx.Done():
			}
		}
	}
}

// configKey separates the hash of the configuration from those of API keys.
const configKey = "turnpike/config/v1\n"

// apply replaces the settings of a running instance.
func (i *instance) apply(s *settings) {
	i.settings.Store(s)
	i.memory.SetLimit(requestMemory(s.quotas))
	i.gateway.Apply(s.gateway)
	i.api.Apply(s.api)
	i.agents.Apply(s.agents)
	i.hooks.SetSchedule(s.retries)
	i.outbox.SetServer(s.smtp)
	i.setQuotas(s.quotas)
	if i.certificates != nil {
		i.certificates.Apply(s.domains)
	}
	i.node.SetConfigHash(s.hash)
	select {
	case i.reloaded <- struct{}{}:
	default: // not yet received
	}
}

func (i *instance) setQuotas(l config.Limits) {
	i.keys.Max.Store(int64(l.Keys))
	i.tokens.Max.Store(int64(l.ScopedTokens))
	i.idempotency.Max.Store(int64(l.IdempotencyRecords))
	i.conversations.MaxBytes.Store(int64(l.StoredBytes))
	i.apiFiles.MaxBytes.Store(int64(l.StoredBytes))
	i.apiFiles.MaxFile.Store(int64(l.FileBytes))
	i.directory.NewPerDay.Store(int64(l.NewProjectsPerDay))
}

// configMetrics report the configuration in use.
type configMetrics struct{ i *instance }

var (
	configInfo   = prometheus.NewDesc("turnpike_config_info", "Hash of this node's configuration. Nodes of a cluster must have the same.", []string{"hash"}, nil)
	configFailed = prometheus.NewDesc("turnpike_config_reload_failed", "1 if the last reload failed and the old configuration is still in use.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m configMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- configInfo
	to <- configFailed
}

// Collect implements prometheus.Collector.
func (m configMetrics) Collect(to chan<- prometheus.Metric) {
	failed := 0.0
	if m.i.reloading.failed.Load() {
		failed = 1
	}
	to <- prometheus.MustNewConstMetric(configInfo, prometheus.GaugeValue, 1, m.i.settings.Load().hash)
	to <- prometheus.MustNewConstMetric(configFailed, prometheus.GaugeValue, failed)
}
