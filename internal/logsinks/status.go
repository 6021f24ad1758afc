package logsinks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
)

// Status is how far a sink has come.
type Status struct {
	Started  bool
	Lag      time.Duration // the age of the oldest entry that it hasn't read; 0 if there is none
	Sent     int64
	Pending  int64
	FailedAt *time.Time // of the last attempt; nil if it succeeded
	Failure  string
}

// ReadStatus returns how far the sink has come.
func (s *Sink) ReadStatus(ctx context.Context) (*Status, error) {
	out := &Status{}
	var position string
	err := db.Scan(s.DB.QueryRow(ctx, "SELECT position, sent, failed_at, failure, (SELECT count(*) FROM log_sink_pending WHERE sink = name) FROM log_sinks WHERE name = $1", s.Name),
		&position, &out.Sent, &out.FailedAt, &out.Failure, &out.Pending)
	if errors.Is(err, db.ErrNotFound) {
		return out, nil
	}
	if err != nil || position == "" {
		return out, db.Wrap(err, "read log sinks")
	}
	out.Started = true
	oldest, err := audit.FirstID(ctx, s.DB, position+"\x01") // the next possible ID
	if err == nil && ids.Valid(ids.Request, oldest) {
		out.Lag = max(s.now().Sub(ids.Time(oldest)), 0)
	}
	return out, err
}

// maxLag is how old an entry may be before Check complains.
const maxLag = 10 * time.Minute

// Check reports the state of the sink, and connects to it without sending an entry.
func (s *Sink) Check(ctx context.Context) (string, error) {
	status, err := s.ReadStatus(ctx)
	if err != nil {
		return "", err
	}
	if status.FailedAt != nil {
		return "", fmt.Errorf("the last attempt to send failed at %s: %s; entries stay in the database until it succeeds", status.FailedAt.UTC().Format(time.RFC3339), status.Failure)
	}
	if status.Lag > maxLag {
		return "", fmt.Errorf("an entry has waited for %s; check that servers run, and their logs", status.Lag.Round(time.Second))
	}
	sender, err := s.Open(ctx)
	if err != nil {
		return "", err
	}
	sender.Close()
	if !status.Started {
		return "nothing is sent yet", nil
	}
	return fmt.Sprintf("%d entries sent, %d pending", status.Sent, status.Pending), nil
}

func newDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"sink"}, nil)
}

var (
	lagDesc      = newDesc("turnpike_log_sink_lag_seconds", "Age of the oldest entry of the request log that the sink hasn't read; 0 if there is none.")
	failedDesc   = newDesc("turnpike_log_sink_failed", "1 if the last attempt to send the request log failed.")
	sentDesc     = newDesc("turnpike_log_sink_sent_total", "Entries of the request log that were sent, by all nodes.")
	rejectedDesc = newDesc("turnpike_log_sink_rejected_total", "Sent entries of the request log that the collector rejected, by this node.")
	pendingDesc  = newDesc("turnpike_log_sink_pending", "Entries that are sent when they settle, or again because they have changed.")
)

// Describe lists the metrics for Prometheus.
func (l List) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{lagDesc, failedDesc, sentDesc, rejectedDesc, pendingDesc} {
		out <- d
	}
}

// Collect reads the metrics for Prometheus.
func (l List) Collect(out chan<- prometheus.Metric) {
	db.Scrape("log sinks", func(ctx context.Context) error {
		for _, s := range l {
			status, err := s.ReadStatus(ctx)
			if err != nil {
				return err
			}
			failed := 0.0
			if status.FailedAt != nil {
				failed = 1
			}
			out <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, status.Lag.Seconds(), s.Name)
			out <- prometheus.MustNewConstMetric(failedDesc, prometheus.GaugeValue, failed, s.Name)
			out <- prometheus.MustNewConstMetric(sentDesc, prometheus.CounterValue, float64(status.Sent), s.Name)
			out <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(s.rejected.Load()), s.Name)
			out <- prometheus.MustNewConstMetric(pendingDesc, prometheus.GaugeValue, float64(status.Pending), s.Name)
		}
		return nil
	})
}
