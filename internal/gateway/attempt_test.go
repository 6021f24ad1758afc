package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// It checks what goes on to the next provider, what is retried at the only one, and which code the
// client gets.
func TestProviderFailureFallsBackOrRetries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure providers.Failure
		next    bool // the next provider is called
		retry   bool // the only provider is retried
		code    fault.Code
	}{
		"connect":          {providers.Failure{Kind: providers.KindConnect}, true, true, fault.Upstream},
		"local timeout":    {providers.Failure{Kind: providers.KindTimeout}, true, false, fault.UpstreamTimeout},
		"408":              {providers.Failure{Kind: providers.KindTimeout, Status: 408}, true, true, fault.UpstreamTimeout},
		"409":              {providers.Failure{Kind: providers.KindServer, Status: 409}, true, true, fault.Upstream},
		"429":              {providers.Failure{Kind: providers.KindRateLimited, Status: 429}, true, true, fault.RateLimitExceeded},
		"long Retry-After": {providers.Failure{Kind: providers.KindRateLimited, Status: 429, RetryAfter: time.Minute}, true, false, fault.RateLimitExceeded},
		"500":              {providers.Failure{Kind: providers.KindServer, Status: 500}, true, true, fault.Upstream},
		"503":              {providers.Failure{Kind: providers.KindOverloaded, Status: 503}, true, true, fault.Overloaded},
		"401":              {providers.Failure{Kind: providers.KindAuth, Status: 401}, true, false, fault.Upstream},
		"404":              {providers.Failure{Kind: providers.KindNoModel, Status: 404}, true, false, fault.Upstream},
		"404 in its words": {providers.Failure{Kind: providers.KindNoModel, Status: 404, Message: "No such file."}, true, false, fault.ModelNotFound},
		"400":              {providers.Failure{Kind: providers.KindInvalid, Status: 400, Param: "top_k"}, false, false, fault.InvalidParameter},
		"too long":         {providers.Failure{Kind: providers.KindInvalid, Status: 400, Err: errors.New("This model's maximum context length is 8192 tokens.")}, false, false, fault.ContextLengthExceeded},
		"invalid response": {providers.Failure{Kind: providers.KindProtocol}, true, false, fault.Upstream},
		"cut":              {providers.Failure{Kind: providers.KindCut}, true, false, fault.Upstream},
		"local failure":    {providers.Failure{Kind: providers.KindLocal}, false, false, fault.Overloaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := newFixture(t, nil)
			for _, body := range []string{plainBody, streamBody} {
				bad, good := newFake("bad", fail(tt.failure)), newFake("good", respond(10, 5))
				two := base.withProviders(t, []providers.Provider{bad, good})
				two.current.Load().Upstreams[0].Weight = 1 << 40 // the first comes first
				out := two.chat(body)
				if called := good.calls() == 1; called != tt.next || (out.err == nil) != tt.next {
					t.Errorf("next provider called %d times, want %t (%v)", good.calls(), tt.next, out.err)
				}
				if tt.next && (out.Provider != "good" || !strings.Contains(out.Attempts, string(tt.failure.Kind)) || !strings.Contains(out.Attempts, `"ok"`)) {
					t.Errorf("%s upstreamResponse after %s", out.Provider, out.Attempts)
				}
				if tt.next && (out.Charged != 20_000 || out.Source != "provider") {
					t.Errorf("charged %d by %s, want 20000 by provider", out.Charged, out.Source)
				}
			}
			only := newFake("only", fail(tt.failure))
			one := base.withProviders(t, []providers.Provider{only})
			out := one.chat(plainBody)
			if out.code != string(tt.code) || out.Charged != 0 || out.Source != "" {
				t.Errorf("got %q, charged %d by %q; want %q and no charge", out.code, out.Charged, out.Source, tt.code)
			}
			want := 1
			if tt.retry {
				want += len(retryPauses)
			}
			if only.calls() != want || strings.Count(out.Attempts, `"provider"`) != want {
				t.Errorf("called %d times, want %d: %s", only.calls(), want, out.Attempts)
			}
			if f, _ := fault.As(out.err); (tt.code == fault.Overloaded || tt.code == fault.RateLimitExceeded) && f.RetryAfter < max(time.Second, tt.failure.RetryAfter) {
				t.Errorf("got Retry-After %s, want at least the provider's", f.RetryAfter)
			}
			if f, _ := fault.As(out.err); f.Final() != (tt.code == fault.InvalidParameter || tt.code == fault.ContextLengthExceeded || tt.code == fault.ModelNotFound || tt.failure.Kind == providers.KindAuth) {
				t.Errorf("%v is final: %t", f, f.Final())
			}
			if strings.Contains(out.err.Error(), "test failure") && !strings.Contains(fmt.Sprint(errors.Unwrap(out.err)), "test failure") {
				t.Errorf("the provider's message reaches the client: %v", out.err)
			}
		})
	}
}

func TestRetryHonorsRetryAfter(t *testing.T) {
	t.Parallel()
	p := newFake("one", fail(providers.Failure{Kind: providers.KindOverloaded, Status: 503, RetryAfter: 700 * time.Millisecond}), respond(1, 1))
	r := newFixture(t, []providers.Provider{p})
	if out := r.chat(plainBody); out.err != nil || p.calls() != 2 || !slices.Equal(*r.pauses, []time.Duration{700 * time.Millisecond}) {
		t.Errorf("called %d times with pauses %v, want 2 with 700ms (%v)", p.calls(), *r.pauses, out.err)
	}
}

func TestProviderValidationErrorReachesClient(t *testing.T) {
	t.Parallel()
	p := newFake("one", func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		return nil, fault.Invalid("n", "n must be 1.")
	})
	if out := newFixture(t, []providers.Provider{p}).chat(plainBody); out.code != "invalid_parameter" {
		t.Errorf("got %v", out.err)
	}
	odd := newFake("one", func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		return nil, errors.New("odd")
	})
	if out := newFixture(t, []providers.Provider{odd}).chat(plainBody); out.code != "upstream_error" {
		t.Errorf("got %v", out.err)
	}
}

// The upstream name may be a deployment's, which doesn't tell what the model supports.
func TestProviderReceivesUpstreamNameAndModelID(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.ListedModel{{ID: "gpt-5", Upstream: "team-gpt-5", Price: dollars(1, 2)}}})
	if out := r.chat(strings.Replace(plainBody, "small", "gpt-5", 1)); out.err != nil || p.requests[0].Model != "team-gpt-5" || p.requests[0].ID != "gpt-5" {
		t.Errorf("provider got %+v, want team-gpt-5 and gpt-5 (%v)", p.requests, out.err)
	}
}

func TestDisconnectedClientPaysForInputOnlyIfSent(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	waits := newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
		leave()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := newFixture(t, []providers.Provider{waits})
	out := r.chatIn(ctx, plainBody)
	about := estimateTokens(int64(len(plainBody)) + frameTokens)
	if out.code != "canceled" || out.Source != "partial" || out.Input != about || out.Charged != credits.Micro(about*1000) {
		t.Errorf("got %+v", out)
	}
	if out := r.chatIn(ctx, plainBody); out.code != "canceled" || out.Charged != 0 || waits.calls() != 1 {
		t.Errorf("client that had already left: %d calls, %+v", waits.calls(), out)
	}

	ctx, leave = context.WithCancel(t.Context())
	refuses := newFake("one", func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		leave()
		return nil, &providers.Failure{Kind: providers.KindConnect, Err: errors.New("refused")}
	})
	if out := newFixture(t, []providers.Provider{refuses}).chatIn(ctx, plainBody); out.code != "canceled" || refuses.calls() != 1 {
		t.Errorf("got %+v", out)
	}
}

func TestDeadlineIsReportedAsUpstreamTimeout(t *testing.T) {
	t.Parallel()
	waits := newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
		<-ctx.Done()
		return nil, &providers.Failure{Kind: providers.KindTimeout, Err: ctx.Err()}
	})
	r := newFixture(t, []providers.Provider{waits})
	r.budget = nil // don't read the database
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if out := r.chatIn(ctx, plainBody); out.code != "upstream_timeout" || out.Charged != 0 {
		t.Errorf("got %+v", out)
	}
}

func TestProviderPanicReleasesReservationAndSlot(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]chatFunc{
		"in the call":     func(context.Context, *providers.ChatRequest) (*providers.Response, error) { panic("test failure") },
		"at the start":    respondStream(&fakeStream{panics: true}),
		"inside a stream": respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a")}, panics: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, []providers.Provider{newFake("one", do)})
			c := r.newCall()
			c.Body = []byte(streamBody)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				response, err := r.Chat(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Stream.Close()
				_, _ = readAll(response.Stream)
			}()
			r.settle(c, &outcome{})
		})
	}
}

func TestStrictModeNeverCallsProviderBeforeLogging(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p})
	r.current.Load().Strict = true
	if out := r.chat(plainBody); out.err != nil || p.calls() != 1 {
		t.Fatalf("got %+v", out)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`); out.err != nil || out.Charged != 0 || out.Source != "provider" {
		t.Errorf("got %+v", out)
	}

	r.env = accounts.Live
	caps := []spend.Cap{{Account: spend.Account{Level: spend.Workspace, ID: r.workspace}, Limit: r.budget}}
	warmUp, err := r.leases.Reserve(t.Context(), caps, 50*credits.Credit, time.Now()) // so that the call needs no lease of its own
	if err != nil {
		t.Fatal(err)
	}
	warmUp.Release()
	held, done := make(chan struct{}), make(chan struct{})
	go func() {
		_ = r.db.Write(context.Background(), func(*db.Tx) error {
			close(held)
			<-done
			return nil
		})
	}()
	<-held
	c := r.newCall()
	c.Body = []byte(plainBody)
	var out outcome
	out.Response, out.err = r.Chat(t.Context(), c)
	close(done)
	if r.settle(c, &out); !errors.Is(out.err, db.ErrUnavailable) || p.calls() != 1 || out.Charged != 0 || out.Reserved == 0 {
		t.Errorf("provider called %d times, want 1: %+v", p.calls(), out)
	}
	if seen := r.observed(); len(seen) != 3 || seen[2].Failure != string(fault.StorageUnavailable) {
		t.Errorf("observed %+v", seen)
	}
}

func TestLocalFailureDoesNotCoolDownProvider(t *testing.T) {
	t.Parallel()
	p := newFake("p", fail(providers.Failure{Kind: providers.KindLocal}))
	r := newFixture(t, []providers.Provider{p})
	for range 3 {
		out := r.chat(plainBody)
		if f, ok := fault.As(out.err); !ok || !strings.Contains(f.Message, "file descriptors") || out.Charged != 0 {
			t.Errorf("charged %d: %v", out.Charged, out.err)
		}
	}
	for key, h := range r.current.Load().health.listed {
		if h.rank(time.Now()) != 0 {
			t.Errorf("%v is cooling down", key)
		}
	}
}

// TestProviderStatsHaveNoProviderText: its words may quote a request of another customer, or a key.
func TestProviderStatsHaveNoProviderText(t *testing.T) {
	t.Parallel()
	p := newFake("p", fail(providers.Failure{Kind: providers.KindServer, Status: 500, Err: errors.New("sk-secret is broken")}))
	r := newFixture(t, []providers.Provider{p})
	if got := r.ProviderStats(); len(got) != 0 {
		t.Errorf("before the first call: %+v", got)
	}
	r.chat(plainBody)
	got := r.ProviderStats()["p"]
	if e := got.LastError; e == nil || e.Status != 500 || e.Model != "small" || e.At.IsZero() || e.Message != "The model provider failed." {
		t.Errorf("the last error is %+v", e)
	}
	if got.Responses != 0 {
		t.Errorf("a failure counts as a response: %+v", got)
	}
	h := r.current.Load().health.get(modelKey{"p", "small"}, time.Now)
	for i := range 100 {
		h.recordFirstByte(time.Duration(i+1) * time.Millisecond)
	}
	// The last 64 responses took 37 to 100 ms.
	if got := r.ProviderStats()["p"]; got.Responses != keptLatencies || got.P50 != 68*time.Millisecond || got.P95 != 96*time.Millisecond {
		t.Errorf("the statistics are %+v", got)
	}
	invented := r.current.Load().health.get(modelKey{"p", "name of a customer"}, time.Now)
	invented.recordFailure(&providers.Failure{Kind: providers.KindTimeout}, time.Now().Add(time.Hour))
	if e := r.ProviderStats()["p"].LastError; e.Model != "" || e.Message != "The model provider timed out." {
		t.Errorf("the last error is %+v", e)
	}
}

func TestHealthCooldownAndLatency(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	server := &providers.Failure{Kind: providers.KindServer}
	h := &health{}
	h.recordFailure(server, now)
	if h.rank(now) != 0 {
		t.Error("cooling down after one failure")
	}
	h.recordFailure(server, now)
	if h.rank(now) != 1 || h.rank(now.Add(5*time.Second)) != 0 {
		t.Error("two failures do not cool down for 5 seconds")
	}
	h.recordSuccess(now.Add(-time.Second))
	if h.rank(now) != 1 {
		t.Error("a call from before the failure ended the cooldown")
	}
	h.recordSuccess(now.Add(time.Second))
	if h.rank(now) != 0 {
		t.Error("a call after the failure did not end the cooldown")
	}
	h.recordFailure(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: time.Minute}, now)
	if h.rank(now.Add(59*time.Second)) != 1 || h.rank(now.Add(time.Minute)) != 0 {
		t.Error("the cooldown does not follow Retry-After")
	}
	h.recordFailure(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: 24 * time.Hour}, now)
	if h.rank(now.Add(maxCooldown)) != 0 {
		t.Error("the cooldown exceeds the maximum")
	}
	h = &health{}
	if h.recordRejection(); h.expectedLatency() != latencyUnknown {
		t.Error("a rejecting model counts as fast")
	}
	if h.recordFirstByte(time.Second); h.expectedLatency() != time.Second {
		t.Error("the first latency is not the expected one")
	}
	if h.recordFirstByte(2 * time.Second); h.expectedLatency() != 1200*time.Millisecond {
		t.Errorf("got latency %s, want 1.2s", h.expectedLatency())
	}
}

func TestUnlistedModelsDoNotEvictListedHealth(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	s := healthTable{listed: map[modelKey]*health{{"a", "known"}: {}}, unlisted: map[modelKey]*health{}}
	known, failing := s.get(modelKey{"a", "known"}, clock), s.get(modelKey{"a", "failing"}, clock)
	failing.recordFailure(&providers.Failure{Kind: providers.KindAuth}, now)
	for i := range 3 * maxUnlisted {
		s.get(modelKey{"a", fmt.Sprint(i)}, clock)
		if len(s.unlisted) > maxUnlisted {
			t.Fatalf("%d unlisted models are kept", len(s.unlisted))
		}
	}
	if s.get(modelKey{"a", "known"}, clock) != known || s.get(modelKey{"a", "failing"}, clock) != failing {
		t.Error("invented names evict listed or failing models")
	}
}

func TestBrokenStreamsCoolDownProvider(t *testing.T) {
	t.Parallel()
	p := newFake("one", respondStream(&fakeStream{chunks: []providers.Chunk{textChunk("a")}, end: &providers.Failure{Kind: providers.KindCut, Err: errors.New("cut")}}))
	r := newFixture(t, []providers.Provider{p})
	for range 2 {
		if out := r.chat(streamBody); out.code != "upstream_error" || len(out.chunks) != 1 {
			t.Errorf("got %+v", out)
		}
	}
	if h := r.current.Load().health.get(modelKey{"one", "small"}, time.Now); h.rank(time.Now()) != 1 {
		t.Error("not cooling down")
	}
}
