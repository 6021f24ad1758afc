package nodes

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

func newEvictions() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_node_evictions_total", Help: "Nodes that this node evicted."})
}

var (
	membersDesc   = prometheus.NewDesc("turnpike_node_members", "Nodes with a recent heartbeat, including this one.", nil, nil)
	heartbeatDesc = prometheus.NewDesc("turnpike_node_heartbeat_age_seconds", "Time since this node stored its last heartbeat.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (n *Node) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(n, out) }

// Collect reads the metrics for Prometheus.
func (n *Node) Collect(out chan<- prometheus.Metric) {
	n.evictions.Collect(out)
	n.mu.Lock()
	renewed := n.renewed
	n.mu.Unlock()
	out <- prometheus.MustNewConstMetric(heartbeatDesc, prometheus.GaugeValue, time.Since(renewed).Seconds())
	db.Scrape("nodes", func(ctx context.Context) error {
		members, err := Count(ctx, n.db, n.db.At(n.now()))
		if err != nil {
			return err
		}
		if n.exclusive() {
			members = 1 // other rows are left from a crash
		}
		out <- prometheus.MustNewConstMetric(membersDesc, prometheus.GaugeValue, float64(members))
		return nil
	})
}
