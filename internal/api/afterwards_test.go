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

func TestAnswerLeavesBeforeWhatCanWait(t *testing.T) {
	t.Parallel()
	wait, done := make(chan struct{}), make(chan struct{})
	srv := httptest.NewServer(edge(func(c *Call) {
		c.modelCall(nil).Defer(func() {
			<-wait
			close(done)
		})
		c.write(http.StatusOK, jsonType, []byte(`{"all":"of it"}`))
	}))
	defer srv.Close()
	goOn := sync.OnceFunc(func() { close(wait) })
	defer goOn()
	res, err := (&http.Client{Timeout: 10 * time.Second}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); string(body) != `{"all":"of it"}` || err != nil || len(res.TransferEncoding) > 0 {
		t.Errorf("%q came as %v, and %v", body, res.TransferEncoding, err)
	}
	goOn()
	<-done
}

// This test is not parallel: the log is the process's.
func TestPanicOfWhatCanWaitIsLogged(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	w := httptest.NewRecorder()
	edge(func(c *Call) {
		c.modelCall(nil).Defer(func() { panic("boom") })
		c.write(http.StatusOK, jsonType, []byte(`{}`))
	}).ServeHTTP(w, httptest.NewRequest("GET", "/x", nil))
	if w.Code != 200 || w.Body.String() != "{}" || !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), w.Header().Get("X-Request-Id")) {
		t.Errorf("answered %d %s, and logged %s", w.Code, w.Body, &log)
	}
}
