package api_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db/dbtest"
	"turnpike/test/fakes/upstreams"
	"turnpike/test/harness"
)

func TestCallsCutOffByShutdownAreSettled(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			upstream := upstreams.NewOpenAI(t, "sk-one")
			cfg := harness.Config(t, engine)
			cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(upstream.BaseURL()), APIKey: "sk-one", Weight: 1,
				Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "")}}}}
			s := harness.Start(t, cfg, harness.NewClock())
			key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
			if err := s.App.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.ShutdownTimeout = time.Millisecond
			for name, c := range map[string]struct {
				event string
				told  bool // false if waiting for the usage leaves no time for an error
			}{
				"a whole answer whose count does not come": {`{"choices":[{"index":0,"delta":{"content":"Yes."},"finish_reason":"stop"}]}`, false},
				"the beginning of one":                     {`{"choices":[{"index":0,"delta":{"content":"Yes, "},"finish_reason":null}]}`, true},
			} {
				stopping, err := app.Start(context.Background(), cfg, "test", time.Now)
				if err != nil {
					t.Fatal(err)
				}
				stopping.Serve()
				events := "data: " + c.event + "\n\n"
				upstream.Queue(upstreams.OpenAIReply{Body: events, Stall: len(events)})
				requestID, rest := cutOff(t, stopping, key)
				if told := strings.Contains(rest, `"code":"overloaded"`); told != c.told {
					t.Errorf("%s: the client read %q", name, rest)
				}
				var source *string
				err = s.DB.QueryRow(t.Context(), "SELECT usage_source FROM requests WHERE id = $1 AND settled", requestID).Scan(&source)
				if err != nil || source == nil || *source != "partial" {
					t.Errorf("%s is not settled as it was left: %v, %v", name, source, err)
				}
			}
		})
	}
}

func TestClientCutOffByShutdownIsToldToRetry(t *testing.T) {
	t.Parallel()
	upstream := upstreams.NewOpenAI(t, "sk-one")
	cfg := harness.Config(t, "sqlite")
	cfg.Providers = []config.Provider{{Name: "first", Type: config.OpenAI, BaseURL: config.Address(upstream.BaseURL()), APIKey: "sk-one", Weight: 1,
		Models: []config.ProviderModel{{ID: "small", Price: price("2", "8", "")}}}}
	s := harness.Start(t, cfg, harness.NewClock())
	key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Live)
	if err := s.App.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.ShutdownTimeout = time.Millisecond
	stopping, err := app.Start(context.Background(), cfg, "test", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	stopping.Serve()
	upstream.Queue(upstreams.OpenAIReply{Delay: time.Minute})
	go func() {
		for stopping.CallsInFlight() == 0 {
			time.Sleep(time.Millisecond)
		}
		_ = stopping.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), "POST", stopping.URL()+"/v1/chat/completions", strings.NewReader(`{"model":"small","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != 503 || !strings.Contains(string(text), "overloaded") || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q: %s", res.StatusCode, res.Header.Get("Retry-After"), text)
	}
	_ = stopping.Close() // waits for the other request
}

// cutOff starts a stream, stops the server, and returns everything after the
// stream's first event.
func cutOff(t *testing.T, stopping *app.App, key string) (requestID, rest string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", stopping.URL()+"/v1/chat/completions", strings.NewReader(`{"model":"small","stream":true,"messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	from := bufio.NewReader(res.Body)
	if line, err := from.ReadString('\n'); err != nil || !strings.Contains(line, "Yes") {
		t.Fatalf("%q, %v", line, err)
	}
	if stopping.Close() == nil {
		t.Error("nothing was cut off")
	}
	text, _ := io.ReadAll(from) // complete or not
	return res.Header.Get("X-Request-Id"), string(text)
}
