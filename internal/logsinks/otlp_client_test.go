package logsinks

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	collector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"turnpike/internal/audit"
)

// The tests of this file set environment variables, so they can't be parallel.

func openOTLP(t *testing.T) Sender {
	t.Helper()
	s, err := OpenOTLP(t.Context(), resource.Empty())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestPartialSuccessOfCollectorIsReported(t *testing.T) {
	c := &logCollector{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	s := openOTLP(t)
	encode := func(p *collector.ExportLogsPartialSuccess) string {
		body, err := proto.Marshal(&collector.ExportLogsServiceResponse{PartialSuccess: p})
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const message = "the body is too large"
	for _, test := range []struct {
		encoding, response string
		want               *RejectedError
	}{
		{"application/x-protobuf", encode(&collector.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: message}), &RejectedError{1, message}},
		{"application/json; charset=utf-8", `{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "` + message + `", "newField": {}}}`, &RejectedError{1, message}},
		{"application/x-protobuf", encode(&collector.ExportLogsPartialSuccess{ErrorMessage: message}), &RejectedError{0, message}},
		{"application/x-protobuf", encode(&collector.ExportLogsPartialSuccess{}), nil},
		{"application/json", `{"partialSuccess": {}}`, nil},
		{"application/x-protobuf", "", nil},
		{"application/json", "", nil},
		{"text/plain", "ok", nil},
	} {
		c.encoding, c.response, c.records = test.encoding, test.response, nil
		err := s.Send(t.Context(), []*audit.Entry{testEntry("ws"), testEntry("ws")})
		var got *RejectedError
		if !errors.As(err, &got) && err != nil || got == nil != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s %q: got %v, want %v", test.encoding, test.response, err, test.want)
		}
		if len(c.records) != 2 {
			t.Errorf("%s %q: the collector got %d records, want 2", test.encoding, test.response, len(c.records))
		}
	}
	c.encoding, c.response = "application/json", "{"
	if err := s.Send(t.Context(), []*audit.Entry{testEntry("ws")}); err == nil || errors.As(err, new(*RejectedError)) {
		t.Errorf("got %v for half a response, want an error that is retried", err)
	}
}

func TestCollectorThatRefusesRecordsIsNotRetried(t *testing.T) {
	c := &logCollector{}
	server := httptest.NewServer(c)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	s := openOTLP(t)
	for status, want := range map[int]bool{http.StatusBadRequest: true, http.StatusRequestEntityTooLarge: true, http.StatusUnauthorized: false, http.StatusNotFound: false, http.StatusInternalServerError: false} {
		c.status = status
		if err := s.Send(t.Context(), []*audit.Entry{testEntry("ws")}); err == nil || errors.As(err, new(*RefusedError)) != want {
			t.Errorf("%d: got %v, want refused: %v", status, err, want)
		}
	}
}

// writePair stores a certificate and its key in files.
func writePair(t *testing.T, pair tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name, kind string, content []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return file("cert.pem", "CERTIFICATE", pair.Certificate[0]), file("key.pem", "PRIVATE KEY", key)
}

func TestCollectorAuthenticatesClient(t *testing.T) {
	c := &logCollector{}
	server := httptest.NewUnstartedServer(c)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.StartTLS()
	defer server.Close()
	certFile, keyFile := writePair(t, server.TLS.Certificates[0])
	list := []*audit.Entry{testEntry("ws")}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	if err := openOTLP(t).Send(t.Context(), list); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v, want an unknown authority", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", certFile)
	if err := openOTLP(t).Send(t.Context(), list); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("got %v, want that the collector requires a certificate", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certFile)
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", keyFile)
	if err := openOTLP(t).Send(t.Context(), list); err != nil || len(c.records) != 1 {
		t.Errorf("got %v and %d records, want 1", err, len(c.records))
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_LOGS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE"} {
		t.Setenv(name, keyFile+".missing")
		if _, err := OpenOTLP(t.Context(), resource.Empty()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, want that the file is missing", name, err)
		}
	}
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE", keyFile)
	if _, err := OpenOTLP(t.Context(), resource.Empty()); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("got %v, want that the file has no certificate", err)
	}
}

func TestCollectorTimeout(t *testing.T) {
	for _, test := range []struct {
		name, value string
		want        time.Duration
	}{
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "", 10 * time.Second},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "2500", 2500 * time.Millisecond},
		{"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "3000", 3 * time.Second},
		{"OTEL_EXPORTER_OTLP_LOGS_TIMEOUT", "3s", 10 * time.Second},
	} {
		t.Setenv(test.name, test.value)
		client, _, err := newOTLPClient()
		if err != nil || client.Timeout != test.want {
			t.Errorf("%s=%s: got %v (%v), want %v", test.name, test.value, client.Timeout, err, test.want)
		}
	}
}
