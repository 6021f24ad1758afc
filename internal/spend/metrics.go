package spend

import (
	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/credits"
)

func newRefusals() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_budget_refusals_total",
		Help: "Requests that this node refused because a budget was exhausted, by the level of the budget."}, []string{"level"})
	for _, l := range []Level{Workspace, Project, Key, Run, EndUser, KeyLimit, ProjectLimit} {
		c.WithLabelValues(string(l))
	}
	return c
}

var (
	leasesDesc   = prometheus.NewDesc("turnpike_budget_leases", "Budgets of which this node holds a lease.", nil, nil)
	leasedDesc   = prometheus.NewDesc("turnpike_budget_leased_credits", "Credits in the leases of this node. A credit counts once for each budget that it is leased from.", nil, nil)
	reservedDesc = prometheus.NewDesc("turnpike_budget_reserved_credits", "Leased credits that requests in progress have reserved.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (c *LeaseCache) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect reads the metrics for Prometheus. It sends no query.
func (c *LeaseCache) Collect(out chan<- prometheus.Metric) {
	c.refusals.Collect(out)
	var granted, reserved credits.Micro
	c.mu.Lock()
	n := len(c.leases)
	for _, le := range c.leases {
		granted += le.granted
		reserved += le.reserved
	}
	c.mu.Unlock()
	out <- prometheus.MustNewConstMetric(leasesDesc, prometheus.GaugeValue, float64(n))
	out <- prometheus.MustNewConstMetric(leasedDesc, prometheus.GaugeValue, granted.Float())
	out <- prometheus.MustNewConstMetric(reservedDesc, prometheus.GaugeValue, reserved.Float())
}
