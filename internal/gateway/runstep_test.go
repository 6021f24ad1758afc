package gateway

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// runStep makes a call as a run does, with part of its budget spent.
func (r *fixture) runStep(body string, limit, spent credits.Micro) (out outcome) {
	r.t.Helper()
	c := r.newCall()
	c.Body, c.Step, c.Allowance = []byte(body), true, &Allowance{Limit: limit, Spent: spent}
	out.Response, out.err = r.Chat(r.t.Context(), c)
	r.settle(c, &out)
	return out
}

// The limit is exact to the microcredit.
func TestRunStepIsLimitedToRemainingAllowance(t *testing.T) {
	t.Parallel()
	p := newFake("one", respondMaxOutput)
	r := newFixture(t, []providers.Provider{p})
	input := credits.Micro(int64(len(plainBody))+frameTokens) * 1000
	for name, tt := range map[string]struct {
		left      credits.Micro
		maxOutput int64 // sent to the provider; 0 for a refusal
	}{
		"full budget":        {input + 2_000_000, 1000},
		"more than needed":   {input + 9_000_000, 1000},
		"a microcredit less": {input + 1_999_999, 999},
		"half":               {input + 1_000_000, 500},
		"minimum":            {input + 2000*minOutput, minOutput},
		"below minimum":      {input + 2000*minOutput - 1, 0},
		"nothing":            {0, 0},
	} {
		before := p.calls()
		out := r.runStep(plainBody, 7*credits.Credit+tt.left, 7*credits.Credit)
		if tt.maxOutput == 0 {
			f, _ := fault.As(out.err)
			details, _ := f.Details.(limitDetails)
			if f.Code != fault.BudgetExceeded || details.LimitSource != spend.Run || details.Limit != 7*credits.Credit+tt.left || details.Spent != 7*credits.Credit ||
				details.ResetsAt != nil || p.calls() != before || out.Charged != 0 {
				t.Errorf("%s: got %v, %+v; want a refusal by the run's budget", name, out.err, f)
			}
			continue
		}
		if out.err != nil || out.Charged > tt.left || out.Reserved > tt.left || p.requests[before].MaxOutput != tt.maxOutput {
			t.Errorf("%s: with %s left, reserved %s and charged %s for max_tokens %d, want %d (%v)", name, tt.left, out.Reserved, out.Charged, p.requests[before].MaxOutput, tt.maxOutput, out.err)
		}
	}
	// The smaller budget counts.
	b, err := spend.ReadBalance(t.Context(), r.db, spend.Account{Level: spend.Key, ID: testKey}, spend.PeriodOf(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	few := input + 2000*100
	all := b.Spent + few
	r.keyBudget = &all
	if out := r.runStep(plainBody, 100*credits.Credit, 0); out.err != nil || out.Charged > few {
		t.Errorf("charged %s under the key's budget, want at most %s (%v)", out.Charged, few, out.err)
	}
	// Without budgets there is no limit.
	r.keyBudget = nil
	if out := r.chat(plainBody); out.err != nil {
		t.Error(out.err)
	}
}

func TestRunStepsCountTokensButNotRequests(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	r.current.Load().Rates.Live = limits.Limits{RequestsPerMinute: 1, TokensPerMinute: 200, InFlight: 9}
	for range 3 {
		if out := r.runStep(plainBody, credits.Credit*9, 0); out.err != nil {
			t.Fatal(out.err)
		}
	}
	if out := r.chat(plainBody); out.err != nil {
		t.Fatalf("first request: %v", out.err)
	}
	if out := r.chat(plainBody); out.code != string(fault.RateLimitExceeded) {
		t.Errorf("second request: got %v, want rate_limit_exceeded", out.err)
	}
	refused := false
	for range 20 {
		refused = refused || r.runStep(plainBody, credits.Credit*9, 0).code == string(fault.RateLimitExceeded)
	}
	if !refused {
		t.Error("tokens of steps do not count toward the rate limit")
	}
}

// respondMaxOutput uses all the output tokens that it may.
func respondMaxOutput(_ context.Context, req *providers.ChatRequest) (*providers.Response, error) {
	return &providers.Response{Body: []byte(`{"choices":[{"message":{"content":"x"}}]}`), Usage: providers.Usage{InputTokens: 10, OutputTokens: req.MaxOutput}}, nil
}
