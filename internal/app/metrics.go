package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"turnpike/internal/backup"
)

// metricsServer serves metrics to Prometheus on a separate listener, for
// operators and not for clients.
type metricsServer struct {
	*http.Server
	ln net.Listener
}

func (i *instance) startMetrics(context.Context) (err error) {
	i.metrics, err = newMetricsServer(i.cfg.MetricsListen, i.hooks, i.telemetry, callsInFlight(i.gateway), buildInfo(i.version),
		i.store.DB, i.node, i.leases, i.limiter, i.outbox, i.media, i.agents, backup.Metrics{DB: i.store.DB})
	return err
}

func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_build_info", Help: "Always 1. The label is the version of the program.",
		ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 })
}

func newMetricsServer(address string, parts ...prometheus.Collector) (*metricsServer, error) {
	if address == "" {
		return nil, nil
	}
	registry := prometheus.NewRegistry()
	for _, c := range append(parts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	m := &metricsServer{&http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}, ln}
	go func() {
		if err := m.Serve(ln); err != http.ErrServerClosed {
			slog.Error("failed to serve metrics; they are off", "error", err)
		}
	}()
	return m, nil
}

func (m *metricsServer) url() string { return "http://" + m.ln.Addr().String() + "/metrics" }
