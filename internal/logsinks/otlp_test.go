package logsinks

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlplog "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"turnpike/internal/audit"
)

// logCollector is an OTLP server over HTTP that stores log records, or responds with an error.
type logCollector struct {
	mu       sync.Mutex
	status   int
	records  []*otlplog.LogRecord
	encoding string // of the response
	response string
}

func (c *logCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.status != 0 {
		http.Error(w, "down", c.status)
		return
	}
	var in collector.ExportLogsServiceRequest
	if err := proto.Unmarshal(body, &in); err != nil || r.URL.Path != "/v1/logs" {
		http.Error(w, "not a request with logs", http.StatusBadRequest)
		return
	}
	for _, resource := range in.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			c.records = append(c.records, scope.LogRecords...)
		}
	}
	w.Header().Set("Content-Type", c.encoding)
	_, _ = io.WriteString(w, c.response) // the client may be gone
}

func find(list []*common.KeyValue, name string) *common.AnyValue {
	for _, kv := range list {
		if kv.Key == name {
			return kv.Value
		}
	}
	return nil
}

// TestCollectorGetsTheEntriesOfTheAPI sets environment variables, so it can't be parallel.
func TestCollectorGetsTheEntriesOfTheAPI(t *testing.T) {
	c := &logCollector{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	s := openOTLP(t)
	list := []*audit.Entry{testEntry("ws_a"), testEntry("ws_b")}
	c.status = http.StatusBadRequest
	if err := s.Send(t.Context(), list); err == nil {
		t.Error("sent to a collector that accepts nothing")
	}
	c.status = 0
	if err := s.Send(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(c.records) != len(list) {
		t.Fatalf("got %d records, want %d", len(c.records), len(list))
	}
	for i, r := range c.records {
		e, body := list[i], r.Body.GetKvlistValue().GetValues()
		for name, want := range map[string]string{"turnpike.request_id": e.RequestID, "turnpike.workspace_id": e.WorkspaceID, "turnpike.environment": "test"} {
			if got := find(r.Attributes, name).GetStringValue(); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		if find(body, "model").GetStringValue() != "gpt" || find(body, "credits").GetDoubleValue() != 1.5 || find(body, "status").GetIntValue() != 200 || find(body, "error_code") != nil ||
			find(find(body, "attempts").GetArrayValue().GetValues()[0].GetKvlistValue().GetValues(), "provider").GetStringValue() != "openai" {
			t.Errorf("got body %v", body)
		}
		if r.EventName != eventName || r.TimeUnixNano != uint64(e.CreatedAt.UnixNano()) { //nolint:gosec // after 1970
			t.Errorf("got event %q at %d, want %q at %d", r.EventName, r.TimeUnixNano, eventName, e.CreatedAt.UnixNano())
		}
	}
}
