package batches

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

func newEnded() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_batches_finished_total", Help: "Batches that ended on this node, by final status."}, []string{"status"})
	for _, s := range []Status{Completed, Failed, Expired, Cancelled} {
		c.WithLabelValues(string(s))
	}
	return c
}

var unfinishedDesc = prometheus.NewDesc("turnpike_batches_unfinished", "Batches that have not ended, on all nodes.", nil, nil)

// Describe lists the metrics for Prometheus.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) {
	s.ended.Collect(out)
	s.runner.Collect(out)
	db.Scrape("batches", func(ctx context.Context) error {
		n, err := db.Value[int64](s.DB.QueryRow(ctx, "SELECT count(*) FROM batches WHERE ended_at IS NULL"))
		if err == nil {
			out <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, float64(n))
		}
		return err
	})
}
