package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/fault"
)

func TestCanceledRequestHasTheCodeOfItsCause(t *testing.T) {
	t.Parallel()
	stopping := fault.New(fault.Overloaded, "The server is stopping. Retry.")
	for want, cause := range map[fault.Code]error{fault.RequestTimeout: nil, fault.Overloaded: stopping} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		e := NewExchange(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx), nil, time.Now())
		if f := e.Fault(fmt.Errorf("list keys: %w", ctx.Err())); f.Code != want {
			t.Errorf("canceled with cause %v: got %s, want %s", cause, f.Code, want)
		}
	}
}

func TestDatabaseTimeoutIsStorageUnavailable(t *testing.T) {
	t.Parallel()
	e := NewExchange(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), nil, time.Now())
	if f := e.Fault(fmt.Errorf("list keys: %w", context.DeadlineExceeded)); f.Code != fault.StorageUnavailable {
		t.Errorf("got %s, want storage_unavailable", f.Code)
	}
	if f := e.Fault(errors.New("unexpected")); f.Code != fault.Internal || strings.Contains(f.Message, "unexpected") {
		t.Errorf("got %s %q, want internal_error without the cause", f.Code, f.Message)
	}
}

func TestPanicAfterTheResponseStartedDropsTheConnection(t *testing.T) {
	t.Parallel()
	for _, started := range []bool{false, true} {
		e := NewExchange(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), nil, time.Now())
		e.Started = started
		failed, dropped := false, false
		func() {
			defer func() { dropped = recover() == http.ErrAbortHandler }()
			e.HandlePanic("boom", func(error) { failed = true })
		}()
		if !failed || dropped != started {
			t.Errorf("started %t: got failed %t and dropped %t, want true and %t", started, failed, dropped, started)
		}
	}
}

func TestSanitizeMasksSecretsAndInvalidText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/v1/keys/tp_live_abcDEF123?":     "/v1/keys/tp_live_***?",
		"tp_test_a tp_scoped_b":           "tp_test_*** tp_scoped_***",
		"a\x00b\xffc":                     "a\uFFFDb\uFFFDc",
		strings.Repeat("é", 300)[:511+64]: strings.Repeat("é", 256),
		"plain":                           "plain",
	} {
		if got := Sanitize(in, 512); got != want {
			t.Errorf("Sanitize(%q) = %q, want %q", in, got, want)
		}
	}
	// Secrets are masked before the text is cut.
	if got := Sanitize(strings.Repeat("x", 500)+"tp_live_abcdefghijklmnop", 512); strings.Contains(got, "abc") {
		t.Errorf("part of a secret is left: %q", got[490:])
	}
}
