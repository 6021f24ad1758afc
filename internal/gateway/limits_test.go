package gateway

import (
	"strings"
	"testing"
	"time"

	"turnpike/internal/access"
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

func micro(n credits.Micro) *credits.Micro { return &n }

func number(n int64) *int64 { return &n }

// spentUnder returns what the key has spent under a limit in its current window.
func (r *fixture) spentUnder(l accounts.Limit) credits.Micro {
	r.t.Helper()
	b, err := spend.ReadBalance(r.t.Context(), r.db, spend.LimitAccount(spend.Key, testKey, l.ID), spend.PeriodIn(l.Window, time.Now()))
	if err != nil || b.Reserved != 0 {
		r.t.Errorf("balance of %s: %+v (%v)", l.ID, b, err)
	}
	return b.Spent
}

const largeBody = `{"model":"large","messages":[{"role":"user","content":"hi"}]}`

func TestLimitAppliesToItsModelsOnly(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	r.keyLimits = []accounts.Limit{
		{ID: "lim_all", Budget: micro(100 * credits.Credit), Window: accounts.WindowWeek},
		{ID: "lim_large", Models: catalog.Patterns{"lar*"}, Budget: micro(100 * credits.Credit), Window: accounts.WindowDay},
		{ID: "lim_other", Models: catalog.Patterns{"other"}, Budget: micro(0), Window: accounts.WindowLifetime}}
	small, large := r.chat(plainBody), r.chat(largeBody)
	if small.err != nil || large.err != nil {
		t.Fatalf("got %v and %v", small.err, large.err)
	}
	for i, want := range []credits.Micro{small.Charged + large.Charged, large.Charged, 0} {
		if got := r.spentUnder(r.keyLimits[i]); got != want {
			t.Errorf("%s: spent %s, want %s", r.keyLimits[i].ID, got, want)
		}
	}
}

// TestRefusalNamesTheLimit covers budgets and rates, of keys, projects and ancestors.
func TestRefusalNamesTheLimit(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p})
	large := catalog.Patterns{"large"}
	wants := func(body string, want fault.Error, says ...string) {
		t.Helper()
		out := r.chat(body)
		f, ok := fault.As(out.err)
		if !ok || f.Code != want.Code || f.Param != want.Param || f.Details != want.Details {
			t.Fatalf("got %#v (%v), want %#v", f, out.err, want)
		}
		for _, word := range says {
			if !strings.Contains(f.Message, word) {
				t.Errorf("the message %q lacks %q", f.Message, word)
			}
		}
	}
	r.keyLimits = []accounts.Limit{{ID: "lim_1", RequestsPerMinute: number(100)}, {ID: "lim_2", Models: large, Budget: micro(0), Window: accounts.WindowLifetime}}
	wants(largeBody, fault.Error{Code: fault.BudgetExceeded, Param: "limits[1].budget",
		Details: limitDetails{LimitSource: "model", Level: spend.Key, LimitID: "lim_2", Window: accounts.WindowLifetime}}, "lim_2", "of the key", "large", "so far", "limits[1].budget")
	r.keyLimits[1].Models, r.keyLimits[1].Window = nil, accounts.WindowDay
	midnight := spend.PeriodIn(accounts.WindowDay, time.Now()).End().Unix()
	out := r.chat(plainBody)
	if f, _ := fault.As(out.err); f == nil || *f.Details.(limitDetails).ResetsAt != midnight || f.Details.(limitDetails).LimitSource != "key" {
		t.Errorf("got %v, want a refusal by the key until %d", out.err, midnight)
	}
	r.keyLimits = []accounts.Limit{{ID: "lim_3", Models: large, TokensPerMinute: number(10)}}
	if out := r.chat(largeBody); out.err != nil { // more than a whole minute's tokens are served once
		t.Fatal(out.err)
	}
	wants(largeBody, fault.Error{Code: fault.RateLimitExceeded, Param: "limits[0].tokens_per_minute",
		Details: rateDetails{LimitSource: "model", Level: spend.Key, LimitID: "lim_3"}}, "lim_3", "of the key", "large", "10 tokens per minute")
	r.keyLimits = nil
	r.project = &accounts.Project{Tenant: accounts.Tenant{WorkspaceID: r.workspace}, ID: "shop", Limits: []accounts.Limit{{ID: "lim_4", Models: large, Budget: micro(0), Window: accounts.WindowLifetime}}}
	wants(largeBody, fault.Error{Code: fault.BudgetExceeded, Param: "limits[0].budget",
		Details: limitDetails{LimitSource: "model", Level: spend.Project, LimitID: "lim_4", Window: accounts.WindowLifetime}}, "of the project")
	if p.calls() != 1 {
		t.Errorf("provider called %d times, want 1", p.calls())
	}
	if out := r.chat(plainBody); out.err != nil {
		t.Errorf("another model: %v", out.err)
	}

	c := r.newCall()
	c.Body = []byte(largeBody)
	c.Project = ""
	r.project = nil
	c.Principal.Ancestors = []access.Ancestor{{KeyID: "key_parent", Limits: []accounts.Limit{{ID: "lim_5", Models: large, Budget: micro(0), Window: accounts.WindowLifetime}}}}
	var refused outcome
	refused.Response, refused.err = r.Chat(t.Context(), c)
	r.settle(c, &refused)
	if f, _ := fault.As(refused.err); f == nil || f.Details != (ancestorDetails{LimitSource: "ancestor_key"}) || strings.Contains(f.Message, "lim_5") {
		t.Errorf("got %v, want a refusal that tells nothing about the ancestor's limit", refused.err)
	}
}

// TestFallbackAvoidsExhaustedLimit covers that a call is charged to the limits of the model that ran, and no
// fallback escapes its limits.
func TestFallbackAvoidsExhaustedLimit(t *testing.T) {
	t.Parallel()
	const both = `{"models":["large","small"],"messages":[{"role":"user","content":"hi"}]}`
	tooLong := fail(providers.Failure{Kind: providers.KindTooLong}) // another model may do, and this one stays healthy
	large := accounts.Limit{ID: "lim_large", Models: catalog.Patterns{"large"}}
	small := accounts.Limit{ID: "lim_small", Models: catalog.Patterns{"small"}}
	budget := func(l accounts.Limit, n credits.Micro) accounts.Limit {
		l.Budget, l.Window = &n, accounts.WindowMonth
		return l
	}
	rate := func(l accounts.Limit) accounts.Limit {
		l.RequestsPerMinute = number(1)
		return l
	}
	for name, tt := range map[string]struct {
		limits []accounts.Limit
		do     []chatFunc
		want   []string // the models that ran, or the code of the refusal
	}{
		"the first has a budget": {[]accounts.Limit{budget(large, 0)}, []chatFunc{respond(10, 5)}, []string{"small"}},
		"the second has none":    {[]accounts.Limit{budget(small, 0)}, []chatFunc{respond(10, 5)}, []string{"large"}},
		"none of them does":      {[]accounts.Limit{budget(small, 0), budget(large, 0)}, []chatFunc{respond(10, 5)}, []string{string(fault.BudgetExceeded)}},
		"the rate of the first":  {[]accounts.Limit{rate(large)}, []chatFunc{respond(10, 5)}, []string{"large", "small", "small"}},
		"the rate of both":       {[]accounts.Limit{rate(large), rate(small)}, []chatFunc{respond(10, 5)}, []string{"large", "small", string(fault.RateLimitExceeded)}},
		"the rate of a fallback": {[]accounts.Limit{rate(small)}, []chatFunc{tooLong, respond(10, 5), tooLong}, []string{"small", string(fault.RateLimitExceeded)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t, []providers.Provider{newFake("one", tt.do...)})
			r.keyLimits = tt.limits
			for i, want := range tt.want {
				if out := r.chat(both); out.code != want && (out.err != nil || out.Model != want) {
					t.Errorf("call %d: got %v, want %s", i, out.err, want)
				}
			}
		})
	}
	t.Run("charged to the model that ran", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, []providers.Provider{newFake("one", tooLong, respond(10, 5))})
		r.keyLimits = []accounts.Limit{budget(large, 100*credits.Credit), budget(small, 100*credits.Credit)}
		out := r.chat(both)
		if out.err != nil || out.Charged == 0 || r.spentUnder(r.keyLimits[0]) != 0 || r.spentUnder(r.keyLimits[1]) != out.Charged {
			t.Errorf("charged %s for %s: %v", out.Charged, out.ModelRan, out.err)
		}
		var stored string
		err := r.db.QueryRow(t.Context(), "SELECT accounts FROM requests WHERE credits > 0").Scan(&stored)
		if err != nil || strings.Contains(stored, "lim_large") || !strings.Contains(stored, "lim_small") {
			t.Errorf("the log has the accounts %s (%v)", stored, err)
		}
	})
}

func TestTemporaryRaiseEndsByItself(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))})
	r.current.Load().Rates.Live = limits.Limits{}
	end := time.Now()
	r.keyBudget, r.keyRaise = micro(1), &accounts.Raise{Budget: credits.Credit, Until: end}
	for at, want := range map[time.Time]string{end.Add(-time.Microsecond): "", end: string(fault.BudgetExceeded)} {
		c := r.newCall()
		c.Body = []byte(plainBody)
		c.Record = r.log.Open(audit.Entry{RequestID: ids.New(ids.Request), Tenant: c.Principal.Tenant, KeyID: testKey, CreatedAt: at})
		var out outcome
		out.Response, out.err = r.Chat(t.Context(), c)
		r.settle(c, &out)
		if out.code != want {
			t.Errorf("at %s of a raise until %s: got %q, want %q", at, end, out.code, want)
		}
	}
}
