package webhooks

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

// counts are the metrics of attempts on this node.
type counts struct {
	deliveries *prometheus.CounterVec
	latency    prometheus.Histogram
}

func newCounts() counts {
	c := counts{
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_webhook_attempts_total",
			Help: "Delivery attempts by result: succeeded, retrying or failed."}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "turnpike_webhook_attempt_seconds",
			Help:    "Duration of delivery attempts in seconds.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}),
	}
	for _, s := range []State{Succeeded, Retrying, Failed} {
		c.deliveries.WithLabelValues(string(s))
	}
	return c
}

func (c *counts) observe(r *result) {
	c.deliveries.WithLabelValues(string(r.state)).Inc()
	c.latency.Observe(r.attempt.Duration.Seconds())
}

var (
	dueDesc     = prometheus.NewDesc("turnpike_webhook_due_deliveries", "Deliveries that are due, on all nodes.", nil, nil)
	oldestDesc  = prometheus.NewDesc("turnpike_webhook_oldest_due_seconds", "Seconds since the oldest due delivery became due.", nil, nil)
	pausedDesc  = prometheus.NewDesc("turnpike_webhook_paused_endpoints", "Paused endpoints.", nil, nil)
	newDesc     = prometheus.NewDesc("turnpike_webhook_new_events", "Events that are not fanned out yet.", nil, nil)
	parkedDesc  = prometheus.NewDesc("turnpike_webhook_parked_events", "Events whose fan-out failed; they are retried one by one.", nil, nil)
	lanesDesc   = prometheus.NewDesc("turnpike_webhook_lanes", "Endpoints whose deliveries this node runs.", nil, nil)
	runningDesc = prometheus.NewDesc("turnpike_webhook_attempts_running", "Running attempts on this node, by the state of the endpoint: well or slow.", []string{"endpoint"}, nil)
)

// Describe lists the metrics for Prometheus.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) {
	s.counts.deliveries.Collect(out)
	s.counts.latency.Collect(out)
	s.runner.Collect(out)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st := s.runner.Stats()
	gauge(lanesDesc, float64(st.Lanes))
	gauge(runningDesc, float64(st.Running-st.Slow), "well")
	gauge(runningDesc, float64(st.Slow), "slow")
	db.Scrape("webhooks", func(ctx context.Context) error { return s.collectStored(ctx, gauge) })
}

func (s *Service) collectStored(ctx context.Context, gauge func(d *prometheus.Desc, v float64, labels ...string)) error {
	now := s.Now()
	var due, paused, fresh, parked int64
	var oldest *int64
	err := s.DB.QueryRow(ctx, `SELECT (SELECT count(*) FROM endpoints WHERE status = 'paused' AND kind = 'http' AND deleted_at IS NULL),
		(SELECT count(*) FROM new_events), (SELECT count(*) FROM parked_events), count(*), min(due_at) FROM deliveries WHERE due_at <= $1`, now.UnixMicro()).Scan(&paused, &fresh, &parked, &due, &oldest)
	if err != nil {
		return err
	}
	gauge(dueDesc, float64(due))
	gauge(pausedDesc, float64(paused))
	gauge(newDesc, float64(fresh))
	gauge(parkedDesc, float64(parked))
	age := 0.0
	if oldest != nil {
		age = max(0, now.Sub(time.UnixMicro(*oldest)).Seconds())
	}
	gauge(oldestDesc, age)
	return nil
}
