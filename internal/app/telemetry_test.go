package app

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"turnpike/internal/credits"
	"turnpike/internal/gateway"
)

var observed = gateway.Observation{Operation: "chat", Environment: "live", Provider: "openai", Requested: "auto", RequestedKnown: true, Model: "gpt-4o-mini", ModelKnown: true,
	Started: time.Now().Add(-time.Second), FirstByte: 200 * time.Millisecond, Duration: time.Second, Input: 10, Output: 5, Credits: credits.Credit / 2,
	Attempts:    []gateway.Attempt{{Provider: "groq", Model: "x", Outcome: "rate_limited"}, {Provider: "openai", Model: "gpt-4o-mini", Outcome: gateway.AttemptOK}},
	TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}

// TestMetricsHaveNoClientSuppliedNames checks that labels come from the
// catalog, because a metric keeps each value forever.
func TestMetricsHaveNoClientSuppliedNames(t *testing.T) {
	t.Parallel()
	o := bounded(gateway.Observation{Requested: "auto", RequestedKnown: true, Model: "gpt-4o-mini", ModelKnown: true})
	if o.Requested != "auto" || o.Model != "gpt-4o-mini" {
		t.Errorf("known names become %s and %s", o.Requested, o.Model)
	}
	o = bounded(gateway.Observation{Requested: "invented", Model: "invented"})
	if o.Requested != "other" || o.Model != "other" {
		t.Errorf("invented names stay %s and %s", o.Requested, o.Model)
	}
}

func TestCallsAreCountedForPrometheus(t *testing.T) {
	m, err := newTelemetry(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	m.observe(observed)
	invented := observed
	invented.ModelKnown, invented.Model, invented.Failure = false, "whatever a caller writes", "upstream_error"
	m.observe(invented)
	const want = `
		# HELP turnpike_model_calls_total Completed model calls. The result is ok or an error code.
		# TYPE turnpike_model_calls_total counter
		turnpike_model_calls_total{environment="live",model="gpt-4o-mini",operation="chat",provider="openai",result="ok"} 1
		turnpike_model_calls_total{environment="live",model="other",operation="chat",provider="openai",result="upstream_error"} 1
		# HELP turnpike_model_credits_total Credits charged for model calls.
		# TYPE turnpike_model_credits_total counter
		turnpike_model_credits_total{model="gpt-4o-mini",provider="openai"} 0.5
		turnpike_model_credits_total{model="other",provider="openai"} 0.5
		# HELP turnpike_provider_failures_total Failed requests to providers. A call may have several.
		# TYPE turnpike_provider_failures_total counter
		turnpike_provider_failures_total{kind="rate_limited",provider="groq"} 2
	`
	if err := testutil.CollectAndCompare(m, strings.NewReader(want), "turnpike_model_calls_total", "turnpike_model_credits_total", "turnpike_provider_failures_total"); err != nil {
		t.Error(err)
	}
}

// The library waits forever for the body of such a response.
func TestCollectorThatSwitchesProtocolsDoesNotKeepTheServer(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		t.Cleanup(func() { _ = conn.Close() })
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", collector.URL)
	m, err := newTelemetry(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	m.observe(observed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	m.otel.close(ctx)
}

func TestEachSignalHasItsCollector(t *testing.T) {
	for name, c := range map[string]struct {
		variable, value string
		traces, metrics bool
		wrong           string
	}{
		"none":       {"OTEL_EXPORTER_OTLP_HEADERS", "a=b", false, false, ""},
		"both":       {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318", true, true, ""},
		"traces":     {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/v1/traces", true, false, ""},
		"metrics":    {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector/v1/metrics", false, true, ""},
		"no address": {"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318", false, false, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		"no host":    {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://", false, false, "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(c.variable, c.value)
			traces, err := hasCollector("TRACES")
			metrics, errMetrics := hasCollector("METRICS")
			if err := errors.Join(err, errMetrics); (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("got %v, expected %q", err, c.wrong)
			}
			if traces != c.traces || metrics != c.metrics {
				t.Errorf("traces %v, metrics %v", traces, metrics)
			}
		})
	}
}
