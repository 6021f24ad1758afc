package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"runtime/pprof"

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
	parts := []prometheus.Collector{i.hooks, i.telemetry, callsInFlight(i.gateway), requestMemoryInUse(i.memory), buildInfo(i.version),
		i.store.DB, i.node, i.leases, i.limiter, i.outbox, i.media, i.background, i.batches, i.agents, i.notifications, backup.Metrics{DB: i.store.DB}, configMetrics{i}}
	if i.archive != nil {
		parts = append(parts, i.archive)
	}
	if len(i.logSinks) > 0 {
		parts = append(parts, i.logSinks)
	}
	if i.certificates != nil {
		parts = append(parts, i.certificates)
	} else {
		parts = append(parts, i.tls)
	}
	if i.registry, err = newRegistry(parts...); err == nil {
		i.metrics, err = newMetricsServer(i.cfg.MetricsListen, i.registry)
	}
	return err
}

func buildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_build_info", Help: "Always 1. The label is the version of the program.",
		ConstLabels: prometheus.Labels{"version": version}}, func() float64 { return 1 })
}

// newRegistry returns the handler that serves the metrics of the parts.
func newRegistry(parts ...prometheus.Collector) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range append(parts, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})) {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// newMetricsServer returns nil without an address.
func newMetricsServer(address string, registry http.Handler) (*metricsServer, error) {
	if address == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", registry)
	m := &metricsServer{&http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}, ln}
	go func() {
		if err := m.Serve(ln); err != http.ErrServerClosed {
			slog.Error("failed to serve metrics; they are off", "error", err)
		}
	}()
	return m, nil
}

// serveGoroutines lists the stacks of goroutines, with the number of goroutines
// that have the same one. It shows no values.
func serveGoroutines(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = pprof.Lookup("goroutine").WriteTo(w, 1) // fails only if the client left
}

// serveMemory summarizes the use of memory.
func serveMemory(w http.ResponseWriter, _ *http.Request) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"heap_bytes": m.HeapAlloc, "heap_idle_bytes": m.HeapIdle, "heap_released_bytes": m.HeapReleased,
		"stack_bytes": m.StackInuse, "system_bytes": m.Sys, "objects": m.HeapObjects, "collections": m.NumGC, "goroutines": runtime.NumGoroutine()})
}

func (m *metricsServer) url() string { return "http://" + m.ln.Addr().String() + "/metrics" }
