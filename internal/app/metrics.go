package app

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metricsServer answers Prometheus, on a listener of its own: what it tells is
// for the operator and not for customers.
type metricsServer struct {
	server *http.Server
	ln     net.Listener
}

func startMetrics(address string, parts ...prometheus.Collector) (*metricsServer, error) {
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
	m := &metricsServer{server: &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}, ln: ln}
	go func() {
		if err := m.server.Serve(ln); err != http.ErrServerClosed {
			slog.Error("metrics are not served any more", "error", err)
		}
	}()
	return m, nil
}

func (m *metricsServer) url() string { return "http://" + m.ln.Addr().String() + "/metrics" }

func (m *metricsServer) close() { _ = m.server.Close() }
