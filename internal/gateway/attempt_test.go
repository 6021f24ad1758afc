package gateway

import (
	"context"
	"errors"
	"fmt"
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

// TestFallback: what goes on to the next provider, what is tried again where
// there is no other, and what the caller is told.
func TestFallback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure providers.Failure
		next    bool // the next provider is asked
		again   bool // the only one is asked again
		code    fault.Code
	}{
		"connect":         {providers.Failure{Kind: providers.KindConnect}, true, true, fault.Upstream},
		"our own timeout": {providers.Failure{Kind: providers.KindTimeout}, true, false, fault.UpstreamTimeout},
		"408":             {providers.Failure{Kind: providers.KindTimeout, Status: 408}, true, true, fault.UpstreamTimeout},
		"409":             {providers.Failure{Kind: providers.KindServer, Status: 409}, true, true, fault.Upstream},
		"429":             {providers.Failure{Kind: providers.KindRateLimited, Status: 429}, true, true, fault.Overloaded},
		"429 for long":    {providers.Failure{Kind: providers.KindRateLimited, Status: 429, RetryAfter: time.Minute}, true, false, fault.Overloaded},
		"500":             {providers.Failure{Kind: providers.KindServer, Status: 500}, true, true, fault.Upstream},
		"503":             {providers.Failure{Kind: providers.KindOverloaded, Status: 503}, true, true, fault.Overloaded},
		"401":             {providers.Failure{Kind: providers.KindAuth, Status: 401}, true, false, fault.Upstream},
		"404":             {providers.Failure{Kind: providers.KindNoModel, Status: 404}, true, false, fault.Upstream},
		"400":             {providers.Failure{Kind: providers.KindInvalid, Status: 400, Param: "top_k"}, false, false, fault.InvalidParameter},
		"too long":        {providers.Failure{Kind: providers.KindInvalid, Status: 400, Err: errors.New("This model's maximum context length is 8192 tokens.")}, false, false, fault.ContextLengthExceeded},
		"garbage":         {providers.Failure{Kind: providers.KindProtocol}, true, false, fault.Upstream},
		"cut":             {providers.Failure{Kind: providers.KindCut}, true, false, fault.Upstream},
		"our own fault":   {providers.Failure{Kind: providers.KindLocal}, false, false, fault.Overloaded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := newRig(t, nil)
			for _, body := range []string{plainCall, streamedCall} {
				bad, good := doer("bad", fails(tt.failure)), doer("good", says(10, 5))
				two := base.serving(t, []providers.Provider{bad, good})
				two.upstreams[0].Weight = 1 << 40 // the first is asked first
				out := two.chat(body)
				if asked := good.calls() == 1; asked != tt.next || (out.err == nil) != tt.next {
					t.Errorf("the next was asked %d times: %v", good.calls(), out.err)
				}
				if tt.next && (out.Provider != "good" || !strings.Contains(out.Attempts, string(tt.failure.Kind)) || !strings.Contains(out.Attempts, `"ok"`)) {
					t.Errorf("%s answered after %s", out.Provider, out.Attempts)
				}
				if tt.next && (out.Charged != 20_000 || out.Source != "provider") {
					t.Errorf("charged %d by %s", out.Charged, out.Source)
				}
			}
			only := doer("only", fails(tt.failure))
			one := base.serving(t, []providers.Provider{only})
			out := one.chat(plainCall)
			if out.code != string(tt.code) || out.Charged != 0 || out.Source != "" {
				t.Errorf("got %q, charged %d by %q", out.code, out.Charged, out.Source)
			}
			want := 1
			if tt.again {
				want += sameAgain
			}
			if only.calls() != want || strings.Count(out.Attempts, `"provider"`) != want {
				t.Errorf("asked %d times, expected %d: %s", only.calls(), want, out.Attempts)
			}
			if f, _ := fault.As(out.err); tt.code == fault.Overloaded && f.RetryAfter < max(time.Second, tt.failure.RetryAfter) {
				t.Errorf("the caller may come again in %s", f.RetryAfter)
			}
			if strings.Contains(out.err.Error(), "as the test says") && !strings.Contains(fmt.Sprint(errors.Unwrap(out.err)), "as the test says") {
				t.Errorf("the provider's words reach the caller: %v", out.err)
			}
		})
	}
}

func TestRetryWaitsAsLongAsAsked(t *testing.T) {
	t.Parallel()
	p := doer("one", fails(providers.Failure{Kind: providers.KindOverloaded, Status: 503, RetryAfter: 700 * time.Millisecond}), says(1, 1))
	begun := time.Now()
	if out := newRig(t, []providers.Provider{p}).chat(plainCall); out.err != nil || p.calls() != 2 {
		t.Errorf("asked %d times: %v", p.calls(), out.err)
	}
	if took := time.Since(begun); took < 700*time.Millisecond {
		t.Errorf("asked again after %s", took)
	}
}

// TestRefusalOfAProvidersOwnGoesToTheCaller: what it can say better than the
// upstream, in words of ours.
func TestRefusalOfAProvidersOwnGoesToTheCaller(t *testing.T) {
	t.Parallel()
	p := doer("one", func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		return nil, fault.Invalid("n", "n must be 1 here")
	})
	if out := newRig(t, []providers.Provider{p, doer("two", says(1, 1))}).chat(`{"model":"small","models":["large"],"messages":[]}`); out.code != "invalid_parameter" && out.err != nil {
		t.Errorf("got %v", out.err)
	}
	odd := doer("one", func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		return nil, errors.New("odd")
	})
	if out := newRig(t, []providers.Provider{odd}).chat(plainCall); out.code != "upstream_error" {
		t.Errorf("got %v", out.err)
	}
}

// TestProviderIsToldBothNamesOfAModel: its own may be a deployment's, which says
// nothing of what the model takes.
func TestProviderIsToldBothNamesOfAModel(t *testing.T) {
	t.Parallel()
	p := doer("one", says(10, 5))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.Supply{{ID: "gpt-5", Upstream: "team-gpt-5", Price: dollars(1, 2)}}})
	if out := r.chat(strings.Replace(plainCall, "small", "gpt-5", 1)); out.err != nil || p.asked[0].Model != "team-gpt-5" || p.asked[0].ID != "gpt-5" {
		t.Errorf("it was told %+v, %v", p.asked, out.err)
	}
}

// TestClientThatLeaves pays for what a provider was given, and for nothing if
// none was.
func TestClientThatLeaves(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	waits := doer("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Answer, error) {
		leave()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r := newRig(t, []providers.Provider{waits})
	out := r.chatIn(ctx, plainCall)
	about := aboutTokens(int64(len(plainCall)) + frameTokens)
	if out.code != "canceled" || out.Source != "partial" || out.Input != about || out.Charged != credits.Micro(about*1000) {
		t.Errorf("%+v", out)
	}
	if out := r.chatIn(ctx, plainCall); out.code != "canceled" || out.Charged != 0 || waits.calls() != 1 {
		t.Errorf("one that had left before was asked %d times: %+v", waits.calls(), out)
	}

	ctx, leave = context.WithCancel(t.Context())
	refuses := doer("one", func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		leave()
		return nil, &providers.Failure{Kind: providers.KindConnect, Err: errors.New("refused")}
	})
	if out := newRig(t, []providers.Provider{refuses}).chatIn(ctx, plainCall); out.code != "canceled" || refuses.calls() != 1 {
		t.Errorf("%+v", out)
	}
}

func TestDeadlineIsATimeoutOfTheUpstream(t *testing.T) {
	t.Parallel()
	waits := doer("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Answer, error) {
		<-ctx.Done()
		return nil, &providers.Failure{Kind: providers.KindTimeout, Err: ctx.Err()}
	})
	r := newRig(t, []providers.Provider{waits})
	r.budget = nil // the store is not asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if out := r.chatIn(ctx, plainCall); out.code != "upstream_timeout" || out.Charged != 0 {
		t.Errorf("%+v", out)
	}
}

// TestPanicsLeaveNothingBehind: the edge turns a panic into an answer and
// settles the entry.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]doing{
		"in the call":     func(context.Context, *providers.ChatRequest) (*providers.Answer, error) { panic("as the test says") },
		"at the start":    streams(&fakeStream{panics: true}),
		"inside a stream": streams(&fakeStream{chunks: []providers.Chunk{said("a")}, panics: true}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, []providers.Provider{doer("one", do)})
			c := r.open()
			c.Body = []byte(streamedCall)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("there was no panic")
					}
				}()
				answer, err := r.Chat(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Stream.Close()
				_, _ = drain(answer.Stream)
			}()
			r.settle(c, &outcome{})
		})
	}
}

// TestStrictCallsNobodyUnrecorded: while the log cannot be written no provider
// is asked, and afterwards nothing is left set aside.
func TestStrictCallsNobodyUnrecorded(t *testing.T) {
	t.Parallel()
	p := doer("one", says(10, 5))
	r := newRig(t, []providers.Provider{p})
	r.strict = true
	if out := r.chat(plainCall); out.err != nil || p.calls() != 1 {
		t.Fatalf("%+v", out)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`); out.err != nil || out.Charged != 0 || out.Source != "provider" {
		t.Errorf("%+v", out)
	}

	r.env = accounts.Live
	caps := []spend.Cap{{Account: spend.Account{Level: spend.Workspace, ID: r.workspace}, Limit: r.budget}}
	lease, err := r.ledger.Reserve(t.Context(), caps, 50*credits.Credit, time.Now()) // the call must not need the store for its own
	if err != nil {
		t.Fatal(err)
	}
	lease.Release()
	held, done := make(chan struct{}), make(chan struct{})
	go func() {
		_ = r.db.Write(context.Background(), func(*db.Tx) error {
			close(held)
			<-done
			return nil
		})
	}()
	<-held
	c := r.open()
	c.Body = []byte(plainCall)
	var out outcome
	out.Answer, out.err = r.Chat(t.Context(), c)
	close(done)
	if r.settle(c, &out); !errors.Is(out.err, db.ErrUnavailable) || p.calls() != 1 || out.Charged != 0 || out.Reserved == 0 {
		t.Errorf("the provider was asked %d times: %+v", p.calls(), out)
	}
	if seen := r.observed(); len(seen) != 3 || seen[2].Failure != string(fault.StorageUnavailable) {
		t.Errorf("the calls are observed as %+v", seen)
	}
}

// TestNobodyCoolsDownForWhatIsOurOwnFault: the provider is asked first again as
// soon as there are descriptors.
func TestNobodyCoolsDownForWhatIsOurOwnFault(t *testing.T) {
	t.Parallel()
	p := doer("p", fails(providers.Failure{Kind: providers.KindLocal}))
	r := newRig(t, []providers.Provider{p})
	for range 3 {
		out := r.chat(plainCall)
		if f, ok := fault.As(out.err); !ok || !strings.Contains(f.Message, "file descriptors") || out.Charged != 0 {
			t.Errorf("charged %d: %v", out.Charged, out.err)
		}
	}
	for at, h := range r.healths.listed {
		if h.rank(time.Now()) != 0 {
			t.Errorf("%v cools down", at)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	server := &providers.Failure{Kind: providers.KindServer}
	h := &health{}
	h.failed(server, now)
	if h.rank(now) != 0 {
		t.Error("one failure cools")
	}
	h.failed(server, now)
	if h.rank(now) != 1 || h.rank(now.Add(5*time.Second)) != 0 {
		t.Error("two failures do not cool for five seconds")
	}
	h.worked(now.Add(-time.Second))
	if h.rank(now) != 1 {
		t.Error("a call from before the failure has ended the cool-down")
	}
	h.worked(now.Add(time.Second))
	if h.rank(now) != 0 {
		t.Error("a call after the failure has not ended the cool-down")
	}
	h.failed(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: time.Minute}, now)
	if h.rank(now.Add(59*time.Second)) != 1 || h.rank(now.Add(time.Minute)) != 0 {
		t.Error("it does not cool for as long as the provider asked")
	}
	h.failed(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: 24 * time.Hour}, now)
	if h.rank(now.Add(maxCoolDown)) != 0 {
		t.Error("it cools for as long as anybody asks")
	}
	h = &health{}
	if h.refused(); h.expected() != noPace {
		t.Error("a model that refuses is tried again to learn of it")
	}
	if h.begun(time.Second); h.expected() != time.Second {
		t.Error("the first answer is not what is expected")
	}
	if h.begun(2 * time.Second); h.expected() != 1200*time.Millisecond {
		t.Errorf("expected is %s", h.expected())
	}
}

func TestHealthsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	s := healths{listed: map[spot]*health{{"a", "known"}: {}}, others: map[spot]*health{}}
	known, failing := s.of(spot{"a", "known"}, clock), s.of(spot{"a", "failing"}, clock)
	failing.failed(&providers.Failure{Kind: providers.KindAuth}, now)
	for i := range 3 * maxOthers {
		s.of(spot{"a", fmt.Sprint(i)}, clock)
		if len(s.others) > maxOthers {
			t.Fatalf("%d are remembered", len(s.others))
		}
	}
	if s.of(spot{"a", "known"}, clock) != known || s.of(spot{"a", "failing"}, clock) != failing {
		t.Error("made-up names push out what is known")
	}
}

// TestStreamsThatBreakCoolDown: a provider that begins well and always breaks
// off is failing too.
func TestStreamsThatBreakCoolDown(t *testing.T) {
	t.Parallel()
	p := doer("one", streams(&fakeStream{chunks: []providers.Chunk{said("a")}, end: &providers.Failure{Kind: providers.KindCut, Err: errors.New("cut")}}))
	r := newRig(t, []providers.Provider{p})
	for range 2 {
		if out := r.chat(streamedCall); out.code != "upstream_error" || len(out.chunks) != 1 {
			t.Errorf("%+v", out)
		}
	}
	if h := r.healths.of(spot{"one", "small"}, time.Now); h.rank(time.Now()) != 1 {
		t.Error("it does not cool down")
	}
}
