package gateway

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
	"turnpike/internal/spend"
)

// N1: a workspace beyond its limit of unbilled credits gets 402 until the month ends, except at providers whose
// operator ignores them.
func TestStoppedWorkspaceIsRefused(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p})
	period := spend.PeriodOf(time.Now())
	stop := &accounts.UnbilledStop{Period: string(period), Limit: 100 * credits.Credit, Unbilled: 101 * credits.Credit}
	budgets := r.Budgets
	r.Budgets = func(ctx context.Context, t accounts.Tenant, project string) (*accounts.Workspace, *accounts.Project, error) {
		w, found, err := budgets(ctx, t, project)
		if err == nil {
			w.UnbilledStop = stop
		}
		return w, found, err
	}
	out := r.chat(plainBody)
	f, ok := fault.As(out.err)
	if !ok || f.Code != fault.InsufficientCredits || p.calls() != 0 {
		t.Fatalf("got %v", out.err)
	}
	if d, ok := f.Details.(limitDetails); !ok || d.LimitSource != "unbilled" || d.Limit != stop.Limit || d.Spent != stop.Unbilled || d.ResetsAt == nil || *d.ResetsAt != period.End().Unix() {
		t.Errorf("got details %+v", f.Details)
	}
	r.current.Load().Upstreams[0].IgnoreUnbilled = true
	if out := r.chat(plainBody); out.err != nil {
		t.Errorf("at a provider that is ignored: %v", out.err)
	}
	r.current.Load().Upstreams[0].IgnoreUnbilled = false
	stop.Period = "2020-01"
	if out := r.chat(plainBody); out.err != nil {
		t.Errorf("in a later month: %v", out.err)
	}
	stop.Period, r.env = string(period), accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`); out.err != nil {
		t.Errorf("test key: %v", out.err)
	}
}
