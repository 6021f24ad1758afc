package media

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

func newEnded() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_jobs_finished_total",
		Help: "Jobs that ended on this node, by kind and final status."}, []string{"kind", "status"})
	for kind, steps := range transitions {
		for _, next := range steps {
			for _, s := range next {
				if s.Ended() {
					c.WithLabelValues(string(kind), string(s))
				}
			}
		}
	}
	return c
}

var (
	unfinishedDesc = prometheus.NewDesc("turnpike_jobs_unfinished", "Jobs that have not ended, on all nodes.", []string{"kind", "status"}, nil)
	oldestDesc     = prometheus.NewDesc("turnpike_jobs_oldest_due_seconds", "Seconds since the oldest due task became due.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (s *Service) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, out) }

// Collect reads the metrics for Prometheus.
func (s *Service) Collect(out chan<- prometheus.Metric) {
	s.ended.Collect(out)
	s.runner.Collect(out)
	db.Scrape("jobs", func(ctx context.Context) error { return s.collectStored(ctx, out) })
}

func (s *Service) collectStored(ctx context.Context, out chan<- prometheus.Metric) error {
	now := s.Now()
	// Every unfinished job has a due task. Only those are in an index.
	oldest, err := db.Value[*int64](s.DB.QueryRow(ctx, "SELECT min(due_at) FROM media_tasks WHERE due_at <= $1", now.UnixMicro()))
	if err != nil {
		return err
	}
	rows, err := s.DB.Query(ctx, `SELECT kind, status, count(*) FROM media_jobs
		WHERE completed_at IS NULL AND id IN (SELECT job_id FROM media_tasks WHERE due_at IS NOT NULL) GROUP BY kind, status`)
	counts := map[[2]string]int64{}
	err = db.Each(rows, err, func(r db.Row) error {
		var key [2]string
		var n int64
		err := r.Scan(&key[0], &key[1], &n)
		counts[key] = n
		return err
	})
	if err != nil {
		return err
	}
	for kind := range kinds {
		for status := range transitions[kind] {
			n := counts[[2]string{string(kind), string(status)}]
			out <- prometheus.MustNewConstMetric(unfinishedDesc, prometheus.GaugeValue, float64(n), string(kind), string(status))
		}
	}
	age := 0.0
	if oldest != nil {
		age = max(0, now.Sub(time.UnixMicro(*oldest)).Seconds())
	}
	out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age)
	return nil
}
