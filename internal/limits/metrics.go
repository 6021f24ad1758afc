package limits

import "github.com/prometheus/client_golang/prometheus"

func newRefusals() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_limit_refusals_total",
		Help: "Requests that this node refused because of a limit: requests, tokens or in_flight."}, []string{"kind"})
	for _, k := range []Kind{Requests, Tokens, InFlight} {
		c.WithLabelValues(string(k))
	}
	return c
}

var (
	subjectsDesc = prometheus.NewDesc("turnpike_limit_subjects", "Keys and other subjects whose limits this node has in memory.", nil, nil)
	aloneDesc    = prometheus.NewDesc("turnpike_limit_store_down", "1 while this node enforces its part of shared limits without the database.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (l *Limiter) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, out) }

// Collect reads the metrics for Prometheus. It sends no query.
func (l *Limiter) Collect(out chan<- prometheus.Metric) {
	l.refusals.Collect(out)
	n := 0
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		n += len(s.entries)
		s.mu.Unlock()
	}
	down := 0.0
	if l.storeDown.Load() {
		down = 1
	}
	out <- prometheus.MustNewConstMetric(subjectsDesc, prometheus.GaugeValue, float64(n))
	out <- prometheus.MustNewConstMetric(aloneDesc, prometheus.GaugeValue, down)
}
