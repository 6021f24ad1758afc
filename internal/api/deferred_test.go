package api

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestResponseIsSentBeforeDeferredWork(t *testing.T) {
	t.Parallel()
	wait, done := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(serverOf(func(c *Call) {
		c.modelCall(nil).Defer(func() {
			<-wait
			close(done)
		})
		c.write(http.StatusOK, jsonType, []byte(`{"all":"of it"}`))
	}))
	defer srv.Close()
	unblock := sync.OnceFunc(func() { close(wait) })
	defer unblock()
	res, err := (&http.Client{Timeout: 10 * time.Second}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != `{"all":"of it"}` || err != nil || len(res.TransferEncoding) > 0 {
		t.Errorf("got %q with transfer encoding %v and error %v, want the whole body and none", body, res.TransferEncoding, err)
	}
	unblock()
	<-done
}

// This test is not parallel, because it replaces the default logger.
func TestPanicInDeferredWorkIsLogged(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	w := httptest.NewRecorder()
	serverOf(func(c *Call) {
		c.modelCall(nil).Defer(func() { panic("boom") })
		c.write(http.StatusOK, jsonType, []byte(`{}`))
	}).ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))
	if w.Code != 200 || w.Body.String() != "{}" || !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), w.Header().Get("X-Request-Id")) {
		t.Errorf("got %d %s and the log %s, want 200 {} and the panic", w.Code, w.Body, &log)
	}
}
