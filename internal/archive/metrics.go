package archive

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"turnpike/internal/db"
)

var (
	positionDesc = prometheus.NewDesc("turnpike_log_archive_position_timestamp_seconds", "End of the last archived day of the request log, in Unix seconds; 0 if there is none.", nil, nil)
	lagDesc      = prometheus.NewDesc("turnpike_log_archive_lag_seconds", "How long the oldest day that isn't archived yet has been due; 0 if none is.", nil, nil)
	failedDesc   = prometheus.NewDesc("turnpike_log_archive_failed", "1 if the last attempt to archive the request log failed.", nil, nil)
	entriesDesc  = prometheus.NewDesc("turnpike_log_archive_entries", "Entries of the request log in the archive.", nil, nil)
	bytesDesc    = prometheus.NewDesc("turnpike_log_archive_bytes", "Size of the archive of the request log.", nil, nil)
)

// Describe lists the metrics for Prometheus.
func (a *Archive) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{positionDesc, lagDesc, failedDesc, entriesDesc, bytesDesc} {
		out <- d
	}
}

// Collect reads the metrics for Prometheus.
func (a *Archive) Collect(out chan<- prometheus.Metric) {
	db.Scrape("log archive", func(ctx context.Context) error { return a.collect(ctx, out) })
}

func (a *Archive) collect(ctx context.Context, out chan<- prometheus.Metric) error {
	s, err := a.Status(ctx)
	if err != nil {
		return err
	}
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	position, failed := 0.0, 0.0
	if !s.Until.IsZero() {
		position = float64(s.Until.Unix())
	}
	if s.Failure != nil {
		failed = 1
	}
	gauge(positionDesc, position)
	gauge(lagDesc, s.Lag.Seconds())
	gauge(failedDesc, failed)
	gauge(entriesDesc, float64(s.Entries))
	gauge(bytesDesc, float64(s.Bytes))
	return nil
}
