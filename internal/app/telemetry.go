package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"turnpike/internal/budget"
	"turnpike/internal/gateway"
)

// telemetry reports model calls to Prometheus and OpenTelemetry. Labels are
// bounded: a model that isn't in the catalog is "other".
type telemetry struct {
	*prometheus.Registry
	calls    *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	credits  *prometheus.CounterVec
	failures *prometheus.CounterVec
	latency  *prometheus.HistogramVec
	first    *prometheus.HistogramVec

	mu     sync.RWMutex
	series map[callLabels]*callSeries

	otel *openTelemetry // nil when it is not configured
}

// callLabels are the labels of a call.
type callLabels struct{ operation, provider, model, environment, result string }

// callSeries are the series of calls with the same labels. Looking each of them up takes as long as the rest of observe.
type callSeries struct {
	calls, input, output, credits prometheus.Counter
	latency                       prometheus.Observer
}

func (t *telemetry) seriesOf(l callLabels) *callSeries {
	t.mu.RLock()
	s := t.series[l]
	t.mu.RUnlock()
	if s != nil {
		return s
	}
	s = &callSeries{
		calls:   t.calls.WithLabelValues(l.operation, l.provider, l.model, l.environment, l.result),
		input:   t.tokens.WithLabelValues(l.provider, l.model, l.environment, "input"),
		output:  t.tokens.WithLabelValues(l.provider, l.model, l.environment, "output"),
		credits: t.credits.WithLabelValues(l.provider, l.model),
		latency: t.latency.WithLabelValues(l.operation, l.provider),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.series[l] = s
	return s
}

// otherModel is the label of models that aren't in the catalog.
const otherModel = "other"

// buckets are in seconds.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}

func newTelemetry(ctx context.Context, version string) (*telemetry, error) {
	registry := prometheus.NewRegistry()
	register := promauto.With(registry)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return register.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return register.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"operation", "provider"})
	}
	t := &telemetry{
		Registry: registry,
		series:   map[callLabels]*callSeries{},
		calls:    counter("turnpike_model_calls_total", "Completed model calls. The result is ok or an error code.", "operation", "provider", "model", "environment", "result"),
		tokens:   counter("turnpike_model_tokens_total", "Tokens of model calls.", "provider", "model", "environment", "direction"),
		credits:  counter("turnpike_model_credits_total", "Credits charged for model calls.", "provider", "model"),
		failures: counter("turnpike_provider_failures_total", "Failed requests to providers. A call may have several.", "provider", "kind"),
		latency:  histogram("turnpike_model_call_seconds", "Duration of model calls until the last byte."),
		first:    histogram("turnpike_model_first_byte_seconds", "Time until providers start to respond."),
	}
	spans, spanErr := hasCollector("TRACES")
	points, pointErr := hasCollector("METRICS")
	err := cmp.Or(spanErr, pointErr)
	if err != nil {
		return nil, err
	}
	if spans || points {
		t.otel, err = startOpenTelemetry(ctx, version, spans, points)
	}
	return t, err
}

// hasCollector reports whether a standard variable names a collector of the
// signal. The library would ignore an invalid one and send to localhost.
func hasCollector(signal string) (bool, error) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		address := os.Getenv(name)
		if address == "" {
			continue
		}
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return false, fmt.Errorf("%s is not a URL with http:// or https:// and a host, such as http://localhost:4318", name)
		}
		return true, nil
	}
	return false, nil
}

func callsInFlight(g *gateway.Gateway) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_model_calls_in_flight", Help: "Model calls in progress on this node."},
		func() float64 { return float64(g.InFlight()) })
}

func requestMemoryInUse(p *budget.Pool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_request_memory_bytes", Help: "Memory of limits.bodies_bytes in use on this node."},
		func() float64 { return float64(p.Used()) })
}

func (t *telemetry) observe(o gateway.Observation) {
	model, result := bounded(o).Model, "ok"
	if o.Failure != "" {
		result = o.Failure
	}
	s := t.seriesOf(callLabels{o.Operation, o.Provider, model, o.Environment, result})
	s.calls.Inc()
	s.input.Add(float64(max(0, o.Input)))
	s.output.Add(float64(max(0, o.Output)))
	s.credits.Add(o.Credits.Float())
	for _, a := range o.Attempts {
		if a.Outcome != gateway.AttemptOK && a.Outcome != gateway.AttemptUnsupported {
			t.failures.WithLabelValues(a.Provider, a.Outcome).Inc()
		}
	}
	s.latency.Observe(o.Duration.Seconds())
	if o.FirstByte > 0 {
		t.first.WithLabelValues(o.Operation, o.Provider).Observe(o.FirstByte.Seconds())
	}
	if t.otel != nil {
		t.otel.observe(o)
	}
}

// openTelemetry sends spans and metrics by OTLP over HTTP to the collector of the
// standard variables, such as OTEL_EXPORTER_OTLP_ENDPOINT. They follow the semantic
// conventions for generative AI.
type openTelemetry struct {
	traces   *sdktrace.TracerProvider
	meters   *sdkmetric.MeterProvider
	tracer   trace.Tracer
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	first    metric.Float64Histogram
}

// exportFailed is the message about data that a collector didn't accept.
const exportFailed = "failed to send OpenTelemetry data"

// describeService returns what telemetry says about its source.
func describeService(ctx context.Context, version string) (*resource.Resource, error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn(exportFailed, "error", err) }))
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "turnpike"), attribute.String("service.version", version)),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME wins
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	return about, nil
}

func startOpenTelemetry(ctx context.Context, version string, spans, points bool) (*openTelemetry, error) {
	about, err := describeService(ctx, version)
	if err != nil {
		return nil, err
	}
	toTraces, toMeters := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}, []sdkmetric.Option{sdkmetric.WithResource(about)}
	if spans {
		to, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("OpenTelemetry: %w", err)
		}
		toTraces = append(toTraces, sdktrace.WithBatcher(to))
	}
	if points {
		to, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("OpenTelemetry: %w", err)
		}
		toMeters = append(toMeters, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to)))
	}
	o := &openTelemetry{traces: sdktrace.NewTracerProvider(toTraces...), meters: sdkmetric.NewMeterProvider(toMeters...)}
	o.tracer = o.traces.Tracer("turnpike")
	m := o.meters.Meter("turnpike")
	var errs [3]error
	o.tokens, errs[0] = m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"), metric.WithDescription("Tokens of a call, by kind."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304))
	o.duration, errs[1] = m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"), metric.WithDescription("Duration of calls."),
		metric.WithExplicitBucketBoundaries(buckets...))
	o.first, errs[2] = m.Float64Histogram("gen_ai.server.time_to_first_token", metric.WithUnit("s"), metric.WithDescription("Time until providers start to respond."),
		metric.WithExplicitBucketBoundaries(buckets...))
	return o, errors.Join(errs[:]...)
}

func attributes(o gateway.Observation) []attribute.KeyValue {
	out := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", o.Operation), attribute.String("gen_ai.provider.name", o.Provider),
		attribute.String("gen_ai.request.model", o.Requested), attribute.String("gen_ai.response.model", o.Model),
	}
	if o.Failure != "" {
		out = append(out, attribute.String("error.type", o.Failure))
	}
	return out
}

// bounded replaces names that aren't in the catalog, because a metric keeps each forever.
func bounded(o gateway.Observation) gateway.Observation {
	if !o.RequestedKnown {
		o.Requested = otherModel
	}
	if !o.ModelKnown {
		o.Model = otherModel
	}
	return o
}

// observe records the span and metrics of a finished request. The span's parent
// is the client's, if it sent one.
func (t *openTelemetry) observe(o gateway.Observation) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": o.TraceParent})
	_, span := t.tracer.Start(ctx, o.Operation+" "+o.Model, trace.WithTimestamp(o.Started), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes(o)...),
		trace.WithAttributes(attribute.Int64("gen_ai.usage.input_tokens", o.Input), attribute.Int64("gen_ai.usage.output_tokens", o.Output),
			attribute.Float64("turnpike.credits", o.Credits.Float()), attribute.String("turnpike.environment", o.Environment),
			attribute.Int("turnpike.attempts", attempts(o))))
	if o.Failure != "" {
		span.SetStatus(codes.Error, o.Failure)
	}
	span.End(trace.WithTimestamp(o.Started.Add(o.Duration)))

	set := metric.WithAttributes(attributes(bounded(o))...)
	t.duration.Record(ctx, o.Duration.Seconds(), set)
	if o.FirstByte > 0 {
		t.first.Record(ctx, o.FirstByte.Seconds(), set)
	}
	for kind, n := range map[string]int64{"input": o.Input, "output": o.Output} {
		if n > 0 {
			t.tokens.Record(ctx, n, set, metric.WithAttributes(attribute.String("gen_ai.token.type", kind)))
		}
	}
}

// attempts returns the number of requests to providers. They are listed only if
// the first one failed.
func attempts(o gateway.Observation) int {
	if o.Failure == "" || o.FirstByte > 0 {
		return max(1, len(o.Attempts))
	}
	return len(o.Attempts)
}

// telemetryTimeout is how long a stopping server waits for the collector.
const telemetryTimeout = 3 * time.Second

// close sends pending telemetry.
func (t *openTelemetry) close(ctx context.Context) {
	sendLast(ctx, func(ctx context.Context) error { return errors.Join(t.traces.Shutdown(ctx), t.meters.Shutdown(ctx)) })
}

func sendLast(ctx context.Context, shutdown func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, telemetryTimeout)
	defer cancel()
	// The library doesn't always respect the context: it waits forever for the
	// body of a 101 response.
	sent := make(chan error, 1)
	go func() { sent <- shutdown(ctx) }()
	var err error
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		slog.Warn("failed to send the last telemetry", "error", err)
	}
}
