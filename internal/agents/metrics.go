package agents

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

func newEnded() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_runs_finished_total",
		Help: "Agent runs that ended on this node, by final status."}, []string{"status"})
	for _, s := range Statuses {
		if s.Ended() {
			c.WithLabelValues(string(s))
		}
	}
	return c
}

var (
	unfinishedDesc = prometheus.NewDesc("turnpike_runs_unfinished", "Agent runs that have not ended, on all nodes.", []string{"status"}, nil)
	oldestDesc     = prometheus.NewDesc("turnpike_runs_oldest_due_seconds", "Seconds since the oldest due run became due.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) {
	s.ended.Collect(out)
	s.runner.Collect(out)
	db.Scrape("runs", func(ctx context.Context) error { return s.collectStored(ctx, out) })
}

func (s *Service) collectStored(ctx context.Context, out chan<- prometheus.Metric) error {
	now := s.Now()
	counts, oldest := map[Status]int64{}, now.UnixMicro()
	// Only unfinished runs are due, and only those are in the index.
	rows, err := s.DB.Query(ctx, "SELECT status, count(*), min(due_at) FROM agent_runs WHERE due_at IS NOT NULL GROUP BY status")
	err = db.Each(rows, err, func(r db.Row) error {
		var status string
		var n, due int64
		err := r.Scan(&status, &n, &due)
		counts[Status(status)], oldest = n, min(oldest, due)
		return err
	})
	if err != nil {
		return err
	}
	for _, status := range Statuses {
		if !status.Ended() {
			out <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, float64(counts[status]), string(status))
		}
	}
	out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, float64(now.UnixMicro()-oldest)/1e6)
	return nil
}
