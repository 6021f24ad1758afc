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

// step makes a call as a run does, with so much of its budget spent.
func (r *rig) step(body string, limit, spent credits.Micro) (out outcome) {
	r.t.Helper()
	c := r.open()
	c.Body, c.Step, c.Allowance = []byte(body), true, &Allowance{Limit: limit, Spent: spent}
	out.Answer, out.err = r.Chat(r.t.Context(), c)
	r.settle(c, &out)
	return out
}

// TestAllowance: a step is bounded to what its run has left, to the last
// microcredit, and refused when that is too little.
func TestAllowance(t *testing.T) {
	t.Parallel()
	// A model that uses all that it may.
	p := doer("one", greedily)
	r := newRig(t, []providers.Provider{p})
	input := credits.Micro(int64(len(plainCall))+frameTokens) * 1000
	for name, tt := range map[string]struct {
		left credits.Micro
		told int64 // of output; none for a refusal
	}{
		"all":                 {input + 2_000_000, 1000},
		"more than all":       {input + 9_000_000, 1000},
		"a microcredit less":  {input + 1_999_999, 999},
		"half":                {input + 1_000_000, 500},
		"the least":           {input + 2000*leastOutput, leastOutput},
		"less than the least": {input + 2000*leastOutput - 1, 0},
		"nothing":             {0, 0},
	} {
		asked := p.calls()
		out := r.step(plainCall, 7*credits.Credit+tt.left, 7*credits.Credit)
		if tt.told == 0 {
			f, _ := fault.As(out.err)
			details, _ := f.Details.(limitDetails)
			if f.Code != fault.BudgetExceeded || details.LimitSource != spend.Run || details.Limit != 7*credits.Credit+tt.left || details.Spent != 7*credits.Credit ||
				details.ResetsAt != nil || p.calls() != asked || out.Charged != 0 {
				t.Errorf("%s: %v %+v", name, out.err, f)
			}
			continue
		}
		if out.err != nil || out.Charged > tt.left || out.Reserved > tt.left || p.asked[asked].MaxOutput != tt.told {
			t.Errorf("%s: of %s, %s were reserved and %s charged, for %d tokens: %v", name, tt.left, out.Reserved, out.Charged, p.asked[asked].MaxOutput, out.err)
		}
	}
	// A budget that is smaller still is the one that counts.
	b, err := spend.Read(t.Context(), r.db, spend.Account{Level: spend.Key, ID: testKey}, spend.PeriodOf(time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	few := input + 2000*100
	all := b.Spent + few
	r.keyBudget = &all
	if out := r.step(plainCall, 100*credits.Credit, 0); out.err != nil || out.Charged > few {
		t.Errorf("under the key's budget %s were charged: %v", out.Charged, out.err)
	}
	// One that has no limit has none.
	r.keyBudget = nil
	if out := r.chat(plainCall); out.err != nil {
		t.Error(out.err)
	}
}

// TestStepsAreNoRequests to a key's limits, but their tokens count.
func TestStepsAreNoRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	r.Gateway.rates.Live = limits.Limits{RequestsPerMinute: 1, TokensPerMinute: 200, InFlight: 9}
	for range 3 {
		if out := r.step(plainCall, credits.Credit*9, 0); out.err != nil {
			t.Fatal(out.err)
		}
	}
	if out := r.chat(plainCall); out.err != nil {
		t.Fatalf("the first request: %v", out.err)
	}
	if out := r.chat(plainCall); out.code != string(fault.RateLimitExceeded) {
		t.Errorf("the second request: %v", out.err)
	}
	refused := false
	for range 20 {
		refused = refused || r.step(plainCall, credits.Credit*9, 0).code == string(fault.RateLimitExceeded)
	}
	if !refused {
		t.Error("the tokens of steps do not count")
	}
}

// greedily answers with all the tokens that it may, and few of input.
func greedily(_ context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
	return &providers.Answer{Body: []byte(`{"choices":[{"message":{"content":"x"}}]}`), Usage: providers.Usage{InputTokens: 10, OutputTokens: req.MaxOutput}}, nil
}
