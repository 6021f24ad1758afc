package gateway

import (
	"context"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// The refusal also tells whether the request would fit after the calls in progress.
func TestRefusalSeparatesSpentFromReserved(t *testing.T) {
	t.Parallel()
	release, entered := make(chan struct{}), make(chan struct{})
	waits := func(ctx context.Context, req *providers.ChatRequest) (*providers.Response, error) {
		close(entered)
		<-release
		return respond(10, 5)(ctx, req)
	}
	r := newFixture(t, []providers.Provider{newFake("one", waits, respond(10, 5))})
	r.current.Load().Rates.Live = limits.Limits{InFlight: 9}
	input := credits.Micro(len(plainBody)+frameTokens) * 1000
	budget := input + 1000*2000 // what one call reserves
	r.keyBudget = &budget
	held := r.newCall()
	held.Body = []byte(plainBody)
	done := make(chan outcome)
	go func() {
		var out outcome
		out.Response, out.err = r.Chat(t.Context(), held)
		done <- out
	}()
	<-entered
	wantRefusal := func(body string, transient bool) {
		t.Helper()
		c := r.newCall()
		c.Body = []byte(body)
		_, err := r.Chat(t.Context(), c)
		f, ok := fault.As(err)
		if !ok || f.Code != fault.BudgetExceeded {
			t.Fatalf("%s: %v", body, err)
		}
		details, _ := f.Details.(limitDetails)
		if details.Spent != 0 || details.Reserved != budget || details.Limit != budget || spend.Transient(err) != transient {
			t.Errorf("%s: %+v, transient %t", body, details, spend.Transient(err))
		}
		if strings.Contains(f.Message, "used "+budget.String()) || strings.Contains(f.Message, "Retry when") != transient || !strings.Contains(f.Message, "for requests in progress") {
			t.Errorf("%s: %s", body, f.Message)
		}
	}
	wantRefusal(plainBody, true)
	wantRefusal(`{"model":"small","max_tokens":7,"messages":[]}`, true)
	wantRefusal(`{"model":"small","max_tokens":1000,"n":2,"messages":[]}`, false)      // never fits
	wantRefusal(`{"model":"large","messages":[{"role":"user","content":"hi"}]}`, true) // its output may be limited
	close(release)
	out := <-done
	r.settle(held, &out)
	if out := r.chat(`{"model":"small","max_tokens":1000,"n":2,"messages":[]}`); spend.Transient(out.err) || out.code != string(fault.BudgetExceeded) {
		t.Errorf("without calls in progress: %v", out.err)
	}
}

func TestZeroBudgetBlocksFreeModels(t *testing.T) {
	t.Parallel()
	p := newFake("local", respond(10, 5))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Local: true, Models: []catalog.ListedModel{{ID: "plain"}}})
	body, zero := `{"model":"plain","messages":[]}`, credits.Micro(0)
	if out := r.runStep(body, 0, 0); out.code != string(fault.BudgetExceeded) || spend.Transient(out.err) {
		t.Errorf("run: %v", out.err)
	}
	r.keyBudget = &zero
	if out := r.chat(body); out.code != string(fault.BudgetExceeded) || spend.Transient(out.err) {
		t.Errorf("key: %v", out.err)
	}
	r.keyBudget, r.budget = nil, &zero
	if out := r.chat(body); out.code != string(fault.InsufficientCredits) || spend.Transient(out.err) {
		t.Errorf("workspace: %v", out.err)
	}
	if p.calls() != 0 {
		t.Errorf("provider called %d times", p.calls())
	}
	r.budget = nil
	if out := r.runStep(body, 1, 0); out.err != nil {
		t.Errorf("run with a budget: %v", out.err)
	}
}

// Recovery and corrections go by the log entry, also if the reservation is made in the next month.
func TestCallIsChargedToMonthOfArrival(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	arrived := spend.PeriodOf(time.Now()).Start().Add(-time.Millisecond)
	c := r.newCall()
	c.Body = []byte(plainBody)
	c.Record = r.log.Open(audit.Entry{RequestID: ids.New(ids.Request), Tenant: accounts.Tenant{WorkspaceID: r.workspace, Environment: r.env}, KeyID: testKey, CreatedAt: arrived})
	var out outcome
	out.Response, out.err = r.Chat(t.Context(), c)
	r.settle(c, &out)
	for period, want := range map[spend.Period]credits.Micro{spend.PeriodOf(arrived): out.Charged, spend.PeriodOf(time.Now()): 0} {
		b, err := spend.ReadBalance(t.Context(), r.db, spend.Account{Level: spend.Workspace, ID: r.workspace}, period)
		if err != nil || b.Spent != want || out.Charged == 0 {
			t.Errorf("%s: got %s, want %s (%v)", period, b.Spent, want, err)
		}
	}
}
