package db

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// poolStats is the state of the connections that serve queries.
type poolStats struct {
	inUse, idle, limit int
	waits              int64 // queries that waited for a connection
	waited             time.Duration
}

func (e *sqliteEngine) poolStats() poolStats { return sqlStats(e.readers.Stats()) }

func sqlStats(s sql.DBStats) poolStats {
	return poolStats{inUse: s.InUse, idle: s.Idle, limit: s.MaxOpenConnections, waits: s.WaitCount, waited: s.WaitDuration}
}

func (e *postgresEngine) poolStats() poolStats {
	s := e.pool.Stat()
	return poolStats{inUse: int(s.AcquiredConns()), idle: int(s.IdleConns()), limit: int(s.MaxConns()), waits: s.EmptyAcquireCount(), waited: s.EmptyAcquireWaitTime()}
}

// scrapeTimeout limits the queries of a scrape.
const scrapeTimeout = 5 * time.Second

// Scrape runs the queries of a metrics collector. If they fail, its metrics are
// missing until a later scrape.
func Scrape(metrics string, collect func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	if err := collect(ctx); err != nil {
		slog.Warn("failed to read metrics; retrying at the next scrape", "metrics", metrics, "error", err)
	}
}

// groupList holds the running groups of a database.
type groupList struct {
	mu   sync.Mutex
	list []*Group
}

func (l *groupList) add(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, g)
}

func (l *groupList) remove(g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(other *Group) bool { return other == g })
}

func (l *groupList) all() []*Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// countCommits creates the metrics of a group. Their label is the group's name,
// which is set later.
func (g *Group) countCommits() {
	g.latency = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "turnpike_commit_seconds", Help: "Duration of group commits.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}})
	g.items = prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_commit_items_total", Help: "Writes in successful group commits."})
	g.failures = prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_commit_failures_total", Help: "Failed group commits."})
}

func (g *Group) observe(took time.Duration, items int, err error) {
	g.latency.Observe(took.Seconds())
	if err != nil {
		g.failures.Inc()
		return
	}
	g.items.Add(float64(items))
}

// durable returns the durable queues.
func (g *Group) durable() (list []*queueInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.qs {
		if q.info().durable {
			list = append(list, q.info())
		}
	}
	return list
}

var (
	connectionsDesc = prometheus.NewDesc("turnpike_database_connections", "Connections of this node's pool, by state: in_use or idle.", []string{"state"}, nil)
	maxDesc         = prometheus.NewDesc("turnpike_database_max_connections", "Most connections that the pool opens.", nil, nil)
	waitsDesc       = prometheus.NewDesc("turnpike_database_waits_total", "Queries that waited for a connection.", nil, nil)
	waitedDesc      = prometheus.NewDesc("turnpike_database_wait_seconds_total", "Time that queries waited for a connection.", nil, nil)
	degradedDesc    = prometheus.NewDesc("turnpike_database_degraded", "1 if the last write failed because the database was unavailable.", nil, nil)
	skewDesc        = prometheus.NewDesc("turnpike_database_clock_skew_seconds", "How far this machine's clock is behind the database's.", nil, nil)
	replicaDesc     = prometheus.NewDesc("turnpike_database_replica_in_use", "1 if lists and usage are read from the replica, 0 if from the primary because the replica is unreachable or lags.", nil, nil)
	lagDesc         = prometheus.NewDesc("turnpike_database_replica_lag_seconds", "How outdated the replica is. It is missing while the replica is unreachable.", nil, nil)
	parkedDesc      = prometheus.NewDesc("turnpike_commit_parked", "Results that the database rejects, which are kept in memory and retried.", []string{"group", "queue"}, nil)
	pendingDesc     = prometheus.NewDesc("turnpike_commit_pending", "Writes that wait for a group commit.", []string{"group"}, nil)
)

// Describe lists the metrics for Prometheus.
func (d *DB) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(d, out) }

// Collect reads the metrics for Prometheus. It sends no query.
func (d *DB) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	pool := d.eng.poolStats()
	gauge(connectionsDesc, float64(pool.inUse), "in_use")
	gauge(connectionsDesc, float64(pool.idle), "idle")
	gauge(maxDesc, float64(pool.limit))
	out <- prometheus.MustNewConstMetric(waitsDesc, prometheus.CounterValue, float64(pool.waits))
	out <- prometheus.MustNewConstMetric(waitedDesc, prometheus.CounterValue, pool.waited.Seconds())
	degraded := 0.0
	if d.degraded.Load() {
		degraded = 1
	}
	gauge(degradedDesc, degraded)
	gauge(skewDesc, d.ClockSkew().Seconds())
	if s := d.ReplicaStatus(); s != nil {
		inUse := 0.0
		if s.State == ReplicaInUse {
			inUse = 1
		}
		gauge(replicaDesc, inUse)
		if s.State == ReplicaInUse || s.State == ReplicaLagging {
			gauge(lagDesc, s.Lag.Seconds())
		}
	}
	for _, g := range d.groups.all() {
		labels := prometheus.Labels{"group": g.name}
		for _, c := range []prometheus.Collector{g.latency, g.items, g.failures} {
			prometheus.WrapCollectorWith(labels, c).Collect(out)
		}
		gauge(pendingDesc, float64(g.pending()), g.name)
		for _, q := range g.durable() {
			gauge(parkedDesc, float64(q.parked.Load()), g.name, q.name)
		}
	}
}
