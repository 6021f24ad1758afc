package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"turnpike/internal/providers"
)

func TestFailureKindFollowsTheStatus(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]providers.Kind{
		400: providers.KindInvalid, 413: providers.KindInvalid, 422: providers.KindInvalid,
		401: providers.KindAuth, 402: providers.KindAuth, 403: providers.KindAuth,
		404: providers.KindNoModel, 408: providers.KindTimeout, 409: providers.KindServer,
		429: providers.KindRateLimited, 503: providers.KindOverloaded, 529: providers.KindOverloaded,
		500: providers.KindServer, 502: providers.KindServer, 504: providers.KindServer, 524: providers.KindServer,
		302: providers.KindProtocol, 405: providers.KindProtocol, 999: providers.KindProtocol,
	} {
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":"why"}`)
		})
		_, err := post(t.Context(), NewClient(Timeouts{}), url)
		var f *providers.Failure
		if !errors.As(err, &f) || f.Kind != want || f.Status != status || f.RetryAfter != 7*time.Second {
			t.Errorf("%d is %#v, want %s", status, err, want)
		}
	}
}

func TestRetryAfterIsReadInEveryFormat(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after, ms string
		want      time.Duration
	}{
		"none":            {"", "", 0},
		"seconds":         {"20", "", 20 * time.Second},
		"fraction":        {"0.5", "", 500 * time.Millisecond},
		"milliseconds":    {"2", "1500", 1500 * time.Millisecond},
		"date":            {"Thu, 01 Jan 2026 12:00:30 GMT", "", 30 * time.Second},
		"date gone by":    {"Thu, 01 Jan 2026 11:00:00 GMT", "", 0},
		"negative":        {"-5", "", 0},
		"endless":         {"inf", "", maxRetryAfter},
		"not a number":    {"NaN", "", 0},
		"words":           {"soon", "", 0},
		"far too long":    {"999999999999999999999", "", maxRetryAfter},
		"unreadable ms":   {"3", "x", 3 * time.Second},
		"date far in the": {"Thu, 01 Jan 2099 12:00:00 GMT", "", maxRetryAfter},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Retry-After-Ms", c.ms)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestProviderExplainsItsError(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(400)
		_, _ = io.WriteString(w, "the body")
	})
	_, err := NewClient(Timeouts{}).Post(t.Context(), url, nil, nil, func(f *providers.Failure, body []byte) string {
		f.Param = "temperature"
		return fmt.Sprintf("%d with %s", f.Status, body)
	})
	var f *providers.Failure
	if !errors.As(err, &f) || f.Param != "temperature" || f.Err.Error() != "400 with the body" {
		t.Errorf("got %#v", err)
	}
}

func TestErrorsDoNotContainSecrets(t *testing.T) {
	t.Parallel()
	const customers = "tp_live_0123456789abcdefghijABCDEFGHIJ"
	echo := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(401)
		_, _ = fmt.Fprintf(w, "%s and %v are not accepted", customers, r.Header)
	}
	// The log's length limit cuts the key in half.
	longEcho := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(401)
		_, _ = io.WriteString(w, strings.Repeat("x", maxLogged-len(apiKey)/2)+apiKey)
	}
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, url := range map[string]string{
		"echo":           serve(t, echo) + "?key=" + apiKey,
		"long echo":      serve(t, longEcho),
		"refused":        closed.URL + "/?key=" + apiKey,
		"not a URL":      "http://[" + apiKey,
		"wrong protocol": strings.Replace(serve(t, echo), "http:", "https:", 1) + "?key=" + apiKey,
		"unknown host":   "http://user:" + apiKey + "@nowhere.invalid",
	} {
		_, err := post(t.Context(), NewClient(Timeouts{}), url)
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, secret := range []string{apiKey[:8], customers[8:], "another-one"} {
			if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, secret) {
				t.Errorf("%s: the error has %s in it: %s", name, secret, text)
			}
		}
	}
}
