package api_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlpmetrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	otlptrace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector is an OTLP server over HTTP that stores everything it receives.
type collector struct {
	mu      sync.Mutex
	taken   []*otlptrace.Span
	metrics map[string][]*otlpmetrics.HistogramDataPoint // the latest of each name, because they are cumulative
}

// newCollector starts a collector for the servers of this test. It sets
// environment variables, so the test can't be parallel.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{metrics: map[string][]*otlpmetrics.HistogramDataPoint{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch r.URL.Path {
	case "/v1/traces":
		var in collectortrace.ExportTraceServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			c.takeSpans(&in)
		}
	case "/v1/metrics":
		var in collectormetrics.ExportMetricsServiceRequest
		if err = proto.Unmarshal(body, &in); err == nil {
			c.takeMetrics(&in)
		}
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (c *collector) takeSpans(in *collectortrace.ExportTraceServiceRequest) {
	for _, resource := range in.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.taken = append(c.taken, scope.Spans...)
		}
	}
}

func (c *collector) takeMetrics(in *collectormetrics.ExportMetricsServiceRequest) {
	for _, resource := range in.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				c.metrics[m.Name] = m.GetHistogram().GetDataPoints()
			}
		}
	}
}

// spans returns all received spans.
func (c *collector) spans() []*otlptrace.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taken)
}

// points returns a histogram's data points by their sorted key=value
// attributes.
func (c *collector) points(name string) map[string]*otlpmetrics.HistogramDataPoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]*otlpmetrics.HistogramDataPoint{}
	for _, p := range c.metrics[name] {
		a := attributes(p.Attributes)
		var pairs []string
		for _, key := range slices.Sorted(maps.Keys(a)) {
			pairs = append(pairs, key+"="+a[key].(string))
		}
		out[strings.Join(pairs, " ")] = p
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			out[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			out[a.Key] = v.IntValue
		case *common.AnyValue_DoubleValue:
			out[a.Key] = v.DoubleValue
		default:
			out[a.Key] = a.Value.String()
		}
	}
	return out
}
