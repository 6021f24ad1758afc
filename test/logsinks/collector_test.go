// Package logsinks sends the request log of a whole server to the OTLP receiver of the OpenTelemetry Collector.
package logsinks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"turnpike/internal/accounts"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/logsinks"
	"turnpike/test/freeport"
	"turnpike/test/harness"
)

// buildCollector builds the receiver. Its module is separate, so that the product doesn't depend on it.
func buildCollector(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "collector")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "collector"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the receiver: %v\n%s", err, out)
	}
	return path
}

// entry is a log record as JSON values.
type entry struct {
	event      string
	at         time.Time
	resource   any
	attributes any
	body       any
}

// collector is the receiver, which a test stops and starts again.
type collector struct {
	path, address string

	mu      sync.Mutex
	entries map[string]entry // by request ID
	failure error
}

// start runs the receiver until the returned function kills it.
func (c *collector) start(t *testing.T, compression string) (kill func()) {
	t.Helper()
	cmd := exec.Command(c.path, c.address, compression)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		c.read(out)
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-read
		_ = cmd.Wait() // reports that it was killed
	})
	t.Cleanup(kill)
	return kill
}

// read stores the batches that the receiver prints.
func (c *collector) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return // killed
		}
		var batch logs.ExportLogsServiceRequest
		err = protojson.Unmarshal(line, &batch)
		c.mu.Lock()
		c.failure = errors.Join(c.failure, err)
		for _, r := range batch.ResourceLogs {
			for _, s := range r.ScopeLogs {
				for _, l := range s.LogRecords {
					e := entry{l.EventName, time.Unix(0, int64(l.TimeUnixNano)), object(r.Resource.GetAttributes()), object(l.Attributes), value(l.Body)} //nolint:gosec // before 2262
					id, _ := e.attributes.(map[string]any)["turnpike.request_id"].(string)
					c.entries[id] = e
				}
			}
		}
		c.mu.Unlock()
	}
}

// received returns the entries by request ID.
func (c *collector) received(t *testing.T) map[string]entry {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		t.Fatal(c.failure)
	}
	return maps.Clone(c.entries)
}

// value returns a value of OTLP as one of JSON.
func value(v *common.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_IntValue:
		return float64(v.IntValue)
	case *common.AnyValue_DoubleValue:
		return v.DoubleValue
	case *common.AnyValue_ArrayValue:
		list := make([]any, len(v.ArrayValue.GetValues()))
		for i, item := range v.ArrayValue.GetValues() {
			list[i] = value(item)
		}
		return list
	case *common.AnyValue_KvlistValue:
		return object(v.KvlistValue.GetValues())
	}
	return nil
}

func object(fields []*common.KeyValue) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		out[f.Key] = value(f.Value)
	}
	return out
}

// withoutNulls removes fields that are null, at each level.
func withoutNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(_ string, field any) bool { return field == nil })
		for _, field := range v {
			withoutNulls(field)
		}
	case []any:
		for _, item := range v {
			withoutNulls(item)
		}
	}
}

// customer is a workspace with a key.
type customer struct {
	*accounts.Workspace
	key string
}

// send sends requests that succeed, stream and fail. It adds their IDs.
func (c customer) send(t *testing.T, s *harness.Server, ids map[string]bool) {
	t.Helper()
	for range 5 {
		for _, r := range []struct {
			model  string
			stream bool
			status int
		}{{"gpt-4o-mini", false, 200}, {"gpt-4o-mini", true, 200}, {"no-such-model", false, 404}} {
			body := map[string]any{"model": r.model, "stream": r.stream, "messages": []any{map[string]any{"role": "user", "content": "hi"}}}
			response := s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: c.key, Body: body})
			if response.Status != r.status {
				t.Fatalf("got %d %s, want %d", response.Status, response.Body, r.status)
			}
			ids[response.Header.Get("X-Request-Id")] = true
		}
	}
}

// list returns the entries of the workspace as the API shows them, by request ID, with its ID and without null.
func (c customer) list(t *testing.T, s *harness.Server) map[string]map[string]any {
	t.Helper()
	var page struct{ Data []map[string]any }
	if err := json.Unmarshal(s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit?limit=100", Key: c.key}).Body, &page); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, e := range page.Data {
		e["workspace_id"] = c.ID
		withoutNulls(e)
		out[e["request_id"].(string)] = e
	}
	return out
}

// TestCollectorReceivesEveryEntry sets environment variables, so it can't be parallel.
func TestCollectorReceivesEveryEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("building the receiver takes a minute with a cold cache")
	}
	path := buildCollector(t)
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) { testCollector(t, path, engine) })
	}
}

func testCollector(t *testing.T, path, engine string) {
	c := &collector{path: path, address: freeport.Address(t), entries: map[string]entry{}}
	kill := c.start(t, "none")
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://"+c.address+"/v1/logs")
	cfg := harness.Config(t, engine)
	cfg.Audit.OTLP = true
	s := harness.Start(t, cfg, harness.NewClock())
	sink := &logsinks.Sink{Name: "otlp", DB: s.DB, Now: time.Now}
	await := func(reached func(*logsinks.Status) bool) {
		t.Helper()
		s.Within(t, 2*time.Minute, func() bool {
			status, err := sink.ReadStatus(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return reached(status)
		})
	}
	await(func(status *logsinks.Status) bool { return status.Started })
	var customers []customer
	for _, name := range []string{"a", "b"} {
		w := s.Workspace(t, name)
		key, _ := s.Key(t, w, accounts.Test)
		customers = append(customers, customer{w, key})
	}
	sent := map[string]bool{}
	send := func() {
		t.Helper()
		for _, c := range customers {
			c.send(t, s, sent)
		}
	}
	awaitSent := func() {
		t.Helper()
		s.Within(t, 2*time.Minute, func() bool {
			got := c.received(t)
			for id := range sent {
				if _, ok := got[id]; !ok {
					return false
				}
			}
			return true
		})
	}
	send()
	awaitSent()
	kill()
	send()
	await(func(status *logsinks.Status) bool { return status.FailedAt != nil })
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip") // for the next connection
	c.start(t, "gzip")
	send()
	awaitSent()
	await(func(status *logsinks.Status) bool { return status.FailedAt == nil })
	wanted := map[string]map[string]any{}
	for _, c := range customers {
		maps.Copy(wanted, c.list(t, s))
	}
	got := c.received(t)
	for id := range sent {
		e, want := got[id], wanted[id]
		if !reflect.DeepEqual(e.body, any(want)) {
			t.Errorf("%s: got body %s, want %s", id, text(t, e.body), text(t, want))
		}
		attributes := map[string]any{"turnpike.request_id": id, "turnpike.workspace_id": want["workspace_id"], "turnpike.environment": "test"}
		if !reflect.DeepEqual(e.attributes, any(attributes)) {
			t.Errorf("%s: got attributes %v, want %v", id, e.attributes, attributes)
		}
		if about := e.resource.(map[string]any); e.event != "turnpike.request" || e.at.Unix() != int64(want["created_at"].(float64)) || about["service.name"] != "turnpike" || about["service.version"] != "test" {
			t.Errorf("%s: got event %q at %v of %v", id, e.event, e.at, about)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.NewEncoder(&out).Encode(v); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
