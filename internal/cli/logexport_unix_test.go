//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collectorlogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	otlplogs "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"turnpike/internal/config"
)

// logCollector is an OTLP server over HTTP that stores log records.
type logCollector struct {
	mu       sync.Mutex
	records  []*otlplogs.LogRecord
	resource string
	arrived  chan struct{}
}

func newLogCollector(t *testing.T) (*logCollector, string) {
	t.Helper()
	c := &logCollector{arrived: make(chan struct{}, 1000)}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL
}

func (c *logCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var in collectorlogs.ExportLogsServiceRequest
	if err == nil && r.URL.Path == "/v1/logs" {
		err = proto.Unmarshal(body, &in)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range in.ResourceLogs {
		c.resource = resource.Resource.String()
		for _, scope := range resource.ScopeLogs {
			c.records = append(c.records, scope.LogRecords...)
		}
	}
	c.arrived <- struct{}{}
}

// messages returns the messages of all records.
func (c *logCollector) messages() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		out = append(out, r.Body.GetStringValue())
	}
	return out
}

func (c *logCollector) await(t *testing.T, message string) {
	t.Helper()
	timeout := time.After(time.Minute)
	for !slices.Contains(c.messages(), message) {
		select {
		case <-c.arrived:
		case <-timeout:
			t.Fatalf("got %q within a minute, want %q", c.messages(), message)
		}
	}
}

func TestServerSendsItsLogToACollector(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	l := dataDirectory(t)
	collector, address := newLogCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", address+"/v1/logs")
	code := make(chan int, 1)
	go func() {
		code <- Main([]string{"serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-otlp", "--data", l.Data}, strings.NewReader(""), io.Discard, io.Discard)
	}()
	collector.await(t, "listening")
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := <-code; got != 0 {
		t.Fatalf("got exit code %d, want 0", got)
	}
	if got := collector.messages(); !slices.Contains(got, "stopped") {
		t.Errorf("the last message is missing in %q", got)
	}
	if !strings.Contains(collector.resource, `"turnpike"`) || !strings.Contains(collector.resource, version) {
		t.Errorf("the resource %s lacks the name or the version", collector.resource)
	}
}

func TestExportedLogHasNoSecretsAndRespectsTheLevel(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	collector, address := newLogCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
	t.Setenv("OPENAI_API_KEY", planted["environment key"])
	e := &env{log: slog.DiscardHandler}
	e.loaded.Config = config.Default()
	e.loaded.Data = t.TempDir()
	e.loaded.MasterKey = config.Secret(planted["master key"])

	end, err := e.exportLog(t.Context()) // off by default
	if err != nil {
		t.Fatal(err)
	}
	slog.Warn("not exported")
	end()

	e.loaded.Log.OTLP = true
	if end, err = e.exportLog(t.Context()); err != nil {
		t.Fatal(err)
	}
	slog.Debug("below the level")
	slog.Warn("failed to call a provider", "key", planted["environment key"], "attempt", 3, "error", errors.New("Authorization: Bearer "+planted["bearer"]))
	slog.With("of", planted["master key"]).WithGroup("request").Error("message with "+planted["master key"], slog.Group("inner", "token", planted["master key"]))
	end()
	slog.Warn("after the end")

	collector.mu.Lock()
	defer collector.mu.Unlock()
	text := fmt.Sprint(collector.records)
	if len(collector.records) != 2 {
		t.Fatalf("got %d records, want 2: %s", len(collector.records), text)
	}
	for name, secret := range planted {
		if strings.Contains(text, secret) {
			t.Errorf("the log contains the %s", name)
		}
	}
	first := collector.records[0]
	if first.Body.GetStringValue() != "failed to call a provider" || first.SeverityNumber != otlplogs.SeverityNumber_SEVERITY_NUMBER_WARN || first.TimeUnixNano == 0 {
		t.Errorf("got %v", first)
	}
	for _, want := range []string{`"attempt"`, "int_value:3", `"error"`, "Bearer ***"} {
		if !strings.Contains(first.String(), want) {
			t.Errorf("the record %s lacks %s", first, want)
		}
	}
}

func TestLogExportWithoutACollectorSaysWhatToSet(t *testing.T) {
	e := &env{log: slog.DiscardHandler}
	e.loaded.Log.OTLP = true
	if _, err := e.exportLog(t.Context()); err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT") {
		t.Errorf("got %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "localhost:4318")
	if _, err := e.exportLog(t.Context()); err == nil || !strings.Contains(err.Error(), "is not a URL") {
		t.Errorf("got %v", err)
	}
}
