package certificates

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// scrapeTimeout limits the query of a scrape.
const scrapeTimeout = 5 * time.Second

// ExpiryDesc describes the metric with the end of a certificate. Certificates in
// files have it too.
var ExpiryDesc = prometheus.NewDesc("turnpike_certificate_expiry_timestamp_seconds", "End of the TLS certificate, in Unix seconds; 0 if there is none yet.", []string{"domain"}, nil)

var failedDesc = prometheus.NewDesc("turnpike_certificate_order_failed", "1 if the last order of the TLS certificate failed.", []string{"domain"}, nil)

// Describe lists the metrics for Prometheus.
func (m *Manager) Describe(out chan<- *prometheus.Desc) {
	out <- ExpiryDesc
	out <- failedDesc
}

// Collect reads the metrics for Prometheus.
func (m *Manager) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	list, err := List(ctx, m.DB, m.Directory, *m.domains.Load())
	if err != nil {
		slog.Warn("failed to read the metrics of certificates; retrying at the next scrape", "error", err)
		return
	}
	for _, s := range list {
		end, failed := 0.0, 0.0
		if !s.ExpiresAt.IsZero() {
			end = float64(s.ExpiresAt.Unix())
		}
		if !s.FailedAt.IsZero() {
			failed = 1
		}
		out <- prometheus.MustNewConstMetric(ExpiryDesc, prometheus.GaugeValue, end, s.Domain)
		out <- prometheus.MustNewConstMetric(failedDesc, prometheus.GaugeValue, failed, s.Domain)
	}
}
