package background

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/conversations"
	"turnpike/internal/db"
)

func newEnded() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_background_responses_finished_total",
		Help: "Background responses that ended on this node, by final status."}, []string{"status"})
	for s := range published {
		c.WithLabelValues(string(s))
	}
	return c
}

var (
	unfinishedDesc = prometheus.NewDesc("turnpike_background_responses_unfinished", "Background responses that have not ended, on all nodes.", []string{"status"}, nil)
	oldestDesc     = prometheus.NewDesc("turnpike_background_responses_oldest_seconds", "Seconds since the oldest queued background response was created.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) {
	s.ended.Collect(out)
	s.runner.Collect(out)
	db.Scrape("responses", func(ctx context.Context) error { return s.collectStored(ctx, out) })
}

func (s *Service) collectStored(ctx context.Context, out chan<- prometheus.Metric) error {
	now := s.Now().UnixMicro()
	counts, oldest := map[conversations.Status]int64{}, now
	rows, err := s.DB.Query(ctx, "SELECT attempts > 0, count(*), min(due_at) FROM background_responses GROUP BY attempts > 0")
	err = db.Each(rows, err, func(r db.Row) error {
		var started bool
		var n, due int64
		err := r.Scan(&started, &n, &due)
		if started {
			counts[conversations.InProgress] = n
		} else {
			counts[conversations.Queued], oldest = n, min(oldest, due)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, status := range []conversations.Status{conversations.Queued, conversations.InProgress} {
		out <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, float64(counts[status]), string(status))
	}
	out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, float64(now-oldest)/1e6)
	return nil
}
