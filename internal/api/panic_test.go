package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// serverOf returns a server that runs fn for every path.
func serverOf(fn func(c *Call)) *Server {
	s := &Server{Deps: Deps{Now: time.Now}, mux: http.NewServeMux(), writeTimeout: time.Minute}
	s.settings.Store(&Settings{Limits: Limits{Header: 1 << 15}})
	rt := Route{handle: func(c *Call) error { fn(c); return nil }}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt, readRequest) })
	return s
}

// This test is not parallel, because it replaces the default logger.
func TestPanicReturns500AndLogsItsStack(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))

	w := httptest.NewRecorder()
	serverOf(func(*Call) { panic("boom") }).ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))

	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 500 || body.Error.Code != "internal_error" {
		t.Errorf("got %d %s, want 500 internal_error", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "boom") {
		t.Error("the response contains the panic value")
	}
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "panic_test.go") || !strings.Contains(log.String(), w.Header().Get("X-Request-Id")) {
		t.Errorf("the log has no stack with the request ID: %s", &log)
	}
}

func TestPanicAfterTheFirstByteDropsTheConnection(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(serverOf(func(c *Call) {
		c.WriteHeader(http.StatusOK)
		_, _ = c.W.Write([]byte("half a resp"))
		_ = http.NewResponseController(c.W).Flush()
		panic("boom")
	}))
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(res.Body); err == nil {
		t.Error("a partial response looks complete")
	}
}
