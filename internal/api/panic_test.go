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

// edge is a server whose pages all are what fn does.
func edge(fn func(c *Call)) *Server {
	s := &Server{Deps: Deps{Now: time.Now, Limits: Limits{Header: 1 << 15}}, public: http.NewServeMux()}
	s.public.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fn(callOf(w)) })
	return s
}

// This test is not parallel: the log is the process's.
func TestPanicIsA500WithALoggedStack(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))

	w := httptest.NewRecorder()
	edge(func(*Call) { panic("boom") }).ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))

	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 500 || body.Error.Code != "internal_error" {
		t.Errorf("answered %d %s", w.Code, w.Body)
	}
	if strings.Contains(w.Body.String(), "boom") {
		t.Error("the caller sees the panic")
	}
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "panic_test.go") || !strings.Contains(log.String(), w.Header().Get("X-Request-Id")) {
		t.Errorf("the log has no stack with the request's id: %s", &log)
	}
}

func TestPanicAfterTheFirstByteDropsTheConnection(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(edge(func(c *Call) {
		c.wrote = true
		_, _ = c.Write([]byte("half an ans"))
		_ = http.NewResponseController(c).Flush()
		panic("boom")
	}))
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := new(bytes.Buffer).ReadFrom(res.Body); err == nil {
		t.Error("half an answer looks like a whole one")
	}
}
