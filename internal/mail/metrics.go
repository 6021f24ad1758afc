package mail

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

func newAttempts() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_mail_attempts_total",
		Help: "Attempts to send emails, by result: sent, retrying, failed or logged."}, []string{"result"})
	for _, s := range []Status{Sent, Waiting, Failed, Logged} {
		c.WithLabelValues(attemptResult(s))
	}
	return c
}

func attemptResult(s Status) string {
	if s == Waiting {
		return "retrying"
	}
	return string(s)
}

var (
	waitingDesc = prometheus.NewDesc("turnpike_mail_waiting", "Emails that are not sent yet, on all nodes.", nil, nil)
	oldestDesc  = prometheus.NewDesc("turnpike_mail_oldest_seconds", "Age of the oldest email that is not sent yet.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (o *Outbox) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(o, out) }

// Collect reads the metrics for Prometheus.
func (o *Outbox) Collect(out chan<- prometheus.Metric) {
	o.attempts.Collect(out)
	db.Scrape("mail", func(ctx context.Context) error { return o.collectStored(ctx, out) })
}

func (o *Outbox) collectStored(ctx context.Context, out chan<- prometheus.Metric) error {
	now := o.now()
	var n int64
	var oldest *int64
	if err := o.db.QueryRow(ctx, "SELECT count(*), min(created_at) FROM mails WHERE due_at IS NOT NULL").Scan(&n, &oldest); err != nil {
		return err
	}
	age := 0.0
	if oldest != nil {
		age = max(0, now.Sub(time.UnixMicro(*oldest)).Seconds())
	}
	out <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n))
	out <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age)
	return nil
}
