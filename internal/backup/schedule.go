package backup

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

const (
	lastRow    = "last_backup"
	failureRow = "backup_failure"
	claimRow   = "backup_claim" // see nodes.Claim

	checkInterval = time.Minute
	// retryInterval is the pause after a failure.
	retryInterval = 10 * time.Minute
)

// Last is the last good backup.
type Last struct {
	Name       string    `json:"name"`
	StartedAt  time.Time `json:"started_at"`
	FinishedAt time.Time `json:"finished_at"`
	Bytes      int64     `json:"bytes"`
}

// ReadLast returns the last good backup, or nil if there was none.
func ReadLast(ctx context.Context, q db.Querier) (*Last, error) {
	var last Last
	found, err := readMeta(ctx, q, lastRow, &last)
	if err != nil || !found {
		return nil, err
	}
	return &last, nil
}

// Failure is the failure of a scheduled backup.
type Failure struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// ReadFailure returns the failure of the last scheduled backup, or nil if there
// was a good one since.
func ReadFailure(ctx context.Context, q db.Querier) (*Failure, error) {
	var f Failure
	found, err := readMeta(ctx, q, failureRow, &f)
	if err != nil || !found {
		return nil, err
	}
	return &f, nil
}

func recordSuccess(ctx context.Context, d *db.DB, m *Manifest) error {
	text, err := json.Marshal(Last{m.Name, m.StartedAt, m.FinishedAt, m.Bytes()})
	if err != nil {
		return err
	}
	return d.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM meta WHERE name = $1", failureRow); err != nil {
			return err
		}
		return setMeta(ctx, tx, lastRow, string(text))
	})
}

// Schedule makes backups at an interval. Of all nodes, one makes each.
type Schedule struct {
	Options
	Interval time.Duration
	Node     string
}

// Run makes backups by the current schedule, which is nil for none, until ctx
// ends. It checks the schedule every minute and when changed receives.
func Run(ctx context.Context, current func() *Schedule, changed <-chan struct{}) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	var revoked RevocationList
	for {
		if s := current(); s != nil {
			if err := revoked.Update(ctx, s); err != nil && ctx.Err() == nil {
				slog.Error("list of revocations was not stored; retrying", "retry_in", checkInterval, "error", err)
			}
			if _, err := s.RunDue(ctx); err != nil && ctx.Err() == nil {
				slog.Error("scheduled backup failed; retrying", "retry_in", min(retryInterval, s.Interval), "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// RunDue makes a backup if one is due and no other node makes it. It returns nil
// if not.
func (s *Schedule) RunDue(ctx context.Context) (m *Manifest, err error) {
	if due, err := s.due(ctx); err != nil || !due {
		return nil, err
	}
	claim := &nodes.Claim{DB: s.DB, Row: claimRow, Node: s.Node, Now: s.Now}
	if taken, err := claim.Take(ctx); err != nil || !taken {
		return nil, err
	}
	if due, err := s.due(ctx); err != nil || !due { // another node may have made it meanwhile
		return nil, errors.Join(err, claim.End(ctx, 0))
	}
	err = claim.Hold(ctx, func(ctx context.Context) (err error) {
		m, err = Create(ctx, s.Options)
		return err
	})
	if err != nil {
		return m, errors.Join(err, s.fail(context.WithoutCancel(ctx), err, claim))
	}
	slog.Info("created a backup", "name", m.Name, "bytes", m.Bytes(), "files_missing", m.MissingFiles)
	return m, claim.End(ctx, 0)
}

func (s *Schedule) due(ctx context.Context) (bool, error) {
	last, err := ReadLast(ctx, s.DB)
	return err == nil && (last == nil || s.now().Sub(last.StartedAt) >= s.Interval), err
}

func (s *Schedule) now() time.Time { return s.DB.At(s.Now()) }

// fail records a failure, and keeps the claim until the next attempt.
func (s *Schedule) fail(ctx context.Context, cause error, claim *nodes.Claim) error {
	text, err := json.Marshal(Failure{s.now().UTC(), cause.Error()})
	if err != nil {
		return err
	}
	err = s.DB.Write(ctx, func(tx *db.Tx) error { return setMeta(ctx, tx, failureRow, string(text)) })
	return errors.Join(err, claim.End(ctx, min(retryInterval, s.Interval)))
}

// Metrics reports the last good backup and the hold of a restored server.
type Metrics struct{ DB *db.DB }

var (
	lastDesc   = prometheus.NewDesc("turnpike_backup_last_success_timestamp_seconds", "Start of the last good backup, in Unix seconds; 0 if there was none.", nil, nil)
	failedDesc = prometheus.NewDesc("turnpike_backup_failed", "1 if the last scheduled backup failed.", nil, nil)
	heldDesc   = prometheus.NewDesc("turnpike_restore_held", "1 if the server was restored and waits for turnpike restore --resume.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (m Metrics) Describe(out chan<- *prometheus.Desc) {
	out <- lastDesc
	out <- failedDesc
	out <- heldDesc
}

// Collect reads the metrics for Prometheus.
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	db.Scrape("backups", func(ctx context.Context) error { return m.collect(ctx, out) })
}

func (m Metrics) collect(ctx context.Context, out chan<- prometheus.Metric) error {
	last, lastErr := ReadLast(ctx, m.DB)
	failure, failureErr := ReadFailure(ctx, m.DB)
	held, heldErr := ReadHold(ctx, m.DB)
	if err := errors.Join(lastErr, failureErr, heldErr); err != nil {
		return err
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	at := 0.0
	if last != nil {
		at = float64(last.StartedAt.UnixMilli()) / 1000
	}
	gauge(lastDesc, at)
	gauge(failedDesc, one(failure != nil))
	gauge(heldDesc, one(held != nil))
	return nil
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
