package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// TestWhatIsSetAsideIsNotSpent: a refusal says apart what was charged and what
// calls under way hold, and whether it would fit without them.
func TestWhatIsSetAsideIsNotSpent(t *testing.T) {
	t.Parallel()
	gate, entered := make(chan struct{}), make(chan struct{})
	waits := func(ctx context.Context, req *providers.ChatRequest) (*providers.Answer, error) {
		close(entered)
		<-gate
		return says(10, 5)(ctx, req)
	}
	r := newRig(t, []providers.Provider{doer("one", waits, says(10, 5))})
	r.Gateway.rates.Live = limits.Limits{InFlight: 9}
	input := credits.Micro(len(plainCall)+frameTokens) * 1000
	budget := input + 1000*2000 // what one call sets aside
	r.keyBudget = &budget
	held := r.open()
	held.Body = []byte(plainCall)
	done := make(chan outcome)
	go func() {
		var out outcome
		out.Answer, out.err = r.Chat(t.Context(), held)
		done <- out
	}()
	<-entered
	refused := func(body string, passing bool) {
		t.Helper()
		c := r.open()
		c.Body = []byte(body)
		_, err := r.Chat(t.Context(), c)
		f, ok := fault.As(err)
		if !ok || f.Code != fault.BudgetExceeded {
			t.Fatalf("%s: %v", body, err)
		}
		details, _ := f.Details.(limitDetails)
		if details.Spent != 0 || details.Reserved != budget || details.Limit != budget || spend.Passing(err) != passing {
			t.Errorf("%s: %+v, passing %t", body, details, spend.Passing(err))
		}
		if strings.Contains(f.Message, "used "+budget.String()) || strings.Contains(f.Message, "try again") != passing || !strings.Contains(f.Message, "set aside for calls under way") {
			t.Errorf("%s: %s", body, f.Message)
		}
	}
	refused(plainCall, true)
	refused(`{"model":"small","max_tokens":7,"messages":[]}`, true)
	refused(`{"model":"small","max_tokens":1000,"n":2,"messages":[]}`, false)      // never fits
	refused(`{"model":"large","messages":[{"role":"user","content":"hi"}]}`, true) // its answer may be bounded
	close(gate)
	out := <-done
	r.settle(held, &out)
	if out := r.chat(`{"model":"small","max_tokens":1000,"n":2,"messages":[]}`); spend.Passing(out.err) || out.code != string(fault.BudgetExceeded) {
		t.Errorf("with nothing under way: %v", out.err)
	}
}

// TestABudgetOfNothingRefusesWhatIsFree: 0 blocks, whoever's it is.
func TestABudgetOfNothingRefusesWhatIsFree(t *testing.T) {
	t.Parallel()
	p := doer("local", says(10, 5))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Local: true, Models: []catalog.Supply{{ID: "plain"}}})
	body, zero := `{"model":"plain","messages":[]}`, credits.Micro(0)
	if out := r.step(body, 0, 0); out.code != string(fault.BudgetExceeded) || spend.Passing(out.err) {
		t.Errorf("a run's: %v", out.err)
	}
	r.keyBudget = &zero
	if out := r.chat(body); out.code != string(fault.BudgetExceeded) || spend.Passing(out.err) {
		t.Errorf("a key's: %v", out.err)
	}
	r.keyBudget, r.budget = nil, &zero
	if out := r.chat(body); out.code != string(fault.InsufficientCredits) || spend.Passing(out.err) {
		t.Errorf("a workspace's: %v", out.err)
	}
	if p.calls() != 0 {
		t.Errorf("the provider was asked %d times", p.calls())
	}
	r.budget = nil
	if out := r.step(body, 1, 0); out.err != nil {
		t.Errorf("a run with a budget: %v", out.err)
	}
}

// TestACallBelongsToTheMonthInWhichItCame, also when its reservation is made in
// the next: what is recovered, or corrected, goes by the log.
func TestACallBelongsToTheMonthInWhichItCame(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))})
	came := spend.PeriodOf(time.Now()).Begins().Add(-time.Millisecond)
	c := r.open()
	c.Body = []byte(plainCall)
	c.Record = r.log.Open(audit.Entry{RequestID: ids.New(ids.Request), WorkspaceID: r.workspace, Environment: string(r.env), KeyID: testKey, CreatedAt: came})
	var out outcome
	out.Answer, out.err = r.Chat(t.Context(), c)
	r.settle(c, &out)
	for period, want := range map[spend.Period]credits.Micro{spend.PeriodOf(came): out.Charged, spend.PeriodOf(time.Now()): 0} {
		b, err := spend.Read(t.Context(), r.db, spend.Account{Level: spend.Workspace, ID: r.workspace}, period)
		if err != nil || b.Spent != want || out.Charged == 0 {
			t.Errorf("%s has %s, expected %s (%v)", period, b.Spent, want, err)
		}
	}
}
