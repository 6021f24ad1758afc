package gateway

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
)

func TestOddRoutingFieldsAreRejected(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{`{"model":"m","tools":{}}`, `{"model":"m","n":0}`, `{"model":"m","n":129}`, `{"model":"m","max_tokens":0}`, `{"model":1}`, `[]`,
		`{"model":"m","model":"n"}`, "{\"model\":\"\xff\"}", `{"model":"m","models":[""]}`, `{"model":"m","models":[` + strings.Repeat(`"a",`, 16) + `"a"]}`} {
		if _, err := readChat([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func TestReservationCoversMostExpensiveTarget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields string
		price  int64 // microcredits per input token; output costs twice that
		output int64
		sent   int64 // to the provider
	}{
		"model's limit":         {`"model":"small"`, 1000, 1000, 1000},
		"max_tokens":            {`"model":"small","max_tokens":7`, 1000, 7, 7},
		"max_completion_tokens": {`"model":"small","max_completion_tokens":8`, 1000, 8, 8},
		"more than the model":   {`"model":"small","max_tokens":9223372036854775807`, 1000, 1000, 1000},
		"choices":               {`"model":"small","max_tokens":7,"n":3`, 1000, 21, 7},
		"most expensive":        {`"model":"small","models":["large"],"max_tokens":7`, 10_000, 7, 7},
	} {
		p := newFake("one", respond(10, 5))
		r := newFixture(t, []providers.Provider{p})
		body := "{" + tt.fields + `,"messages":[]}`
		out := r.chat(body)
		want := credits.Micro((int64(len(body))+frameTokens)*tt.price + 2*tt.price*tt.output)
		if out.err != nil || out.Reserved != want || out.Charged != 20_000 || p.requests[0].MaxOutput != tt.sent {
			t.Errorf("%s: reserved %d, want %d; sent max_tokens %d; %v", name, out.Reserved, want, p.requests[0].MaxOutput, out.err)
		}
	}
}

func TestDefaultOutputLimitLeavesRoomForInput(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.ListedModel{{ID: "small", Price: dollars(1, 2), ContextWindow: 8192, MaxOutputTokens: 8192}}})
	body := `{"model":"small","messages":[{"role":"user","content":"` + strings.Repeat("word ", 4000) + `"}]}`
	if out := r.chat(body); out.err != nil || p.requests[0].MaxOutput != 8192-estimateTokens(int64(len(body))+frameTokens) {
		t.Errorf("sent max_tokens %d: %v", p.requests[0].MaxOutput, out.err)
	}
	if out := r.chat(strings.Replace(body, "{", `{"max_tokens":8000,`, 1)); out.err != nil || p.requests[1].MaxOutput != 8000 {
		t.Errorf("client's limit became %d, want 8000: %v", p.requests[1].MaxOutput, out.err)
	}
	if out := r.chat(strings.Replace(body, "word", strings.Repeat("word ", 9), 1000)); out.err != nil || p.requests[2].MaxOutput != 8192 {
		t.Errorf("input that does not fit got %d, want 8192: %v", p.requests[2].MaxOutput, out.err)
	}
}

// A reservation of zero would make the response free.
func TestHugeOutputLimitDoesNotOverflow(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(10, 5))}, catalog.Supplier{Default: dollars(1, 2)})
	if out := r.chat(`{"model":"x","n":128,"max_tokens":9223372036854775807,"messages":[]}`); out.code != string(fault.InsufficientCredits) {
		t.Errorf("got %+v", out)
	}
	r.budget = nil
	if out := r.chat(`{"model":"x","n":128,"max_tokens":9223372036854775807,"messages":[]}`); out.err != nil || out.Charged != 20_000 {
		t.Errorf("got %+v", out)
	}
}

func TestOutputLimitIsClampedToModel(t *testing.T) {
	t.Parallel()
	p := newFake("one", respond(10, 5))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.ListedModel{{ID: "any", Price: dollars(1, 2)}, {ID: "window", Price: dollars(1, 2), ContextWindow: 8192}}})
	r.budget, r.current.Load().Rates.Live = nil, limits.Limits{InFlight: 1}
	for i, tt := range []struct {
		model string
		sent  int64
	}{{"any", maxUnknownOutput}, {"window", 8192}} {
		body := `{"model":"` + tt.model + `","n":128,"max_tokens":1000000000000,"messages":[]}`
		out := r.chat(body)
		if p.calls() != i+1 {
			t.Fatalf("%s: %v", tt.model, out.err)
		}
		want := credits.Micro((int64(len(body))+frameTokens)*1000 + 128*tt.sent*2000)
		if out.err != nil || out.Reserved != want || p.requests[i].MaxOutput != tt.sent {
			t.Errorf("%s: sent max_tokens %d, reserved %s, want %s: %v", tt.model, p.requests[i].MaxOutput, out.Reserved, want, out.err)
		}
	}
	if out := r.chat(`{"model":"window","max_tokens":8000,"messages":[]}`); out.err != nil || p.requests[2].MaxOutput != 8000 {
		t.Errorf("a limit that fits became %d, want 8000: %v", p.requests[2].MaxOutput, out.err)
	}
}

func TestRemainingBudgetLimitsOutput(t *testing.T) {
	t.Parallel()
	input := credits.Micro(len(plainBody)+frameTokens) * 1000
	p := newFake("one", respond(10, 100))
	r := newFixture(t, []providers.Provider{p})
	*r.budget = input + 300*2000
	out := r.chat(plainBody)
	if out.err != nil || p.requests[0].MaxOutput != 300 || out.Reserved != *r.budget || out.Charged != 210_000 {
		t.Fatalf("sent max_tokens %d, reserved %d: %+v", p.requests[0].MaxOutput, out.Reserved, out)
	}
	key := input + 50*2000
	r.keyBudget = &key
	*r.budget += 210_000
	r.budget = new(*r.budget)
	if out = r.chat(plainBody); out.err == nil || out.code != string(fault.BudgetExceeded) { // 210,000 of the key's are used
		t.Fatalf("got %+v", out)
	}
	key += 210_000
	out = r.chat(plainBody)
	if out.err != nil || p.requests[1].MaxOutput != 50 || out.Reserved != key-210_000 {
		t.Fatalf("sent max_tokens %d, reserved %d: %+v", p.requests[1].MaxOutput, out.Reserved, out)
	}
	if out := r.chat(`{"model":"small","max_tokens":900,"messages":[]}`); out.err == nil || p.calls() != 2 {
		t.Error("the client's limit was changed")
	}
	if out := r.chat(plainBody); out.err == nil || p.calls() != 2 {
		t.Error("got a response with nothing left")
	}
	zero := credits.Micro(0)
	r.budget, r.keyBudget = &zero, nil
	if out := r.chat(plainBody); out.code != string(fault.InsufficientCredits) {
		t.Errorf("budget of 0: got %v", out.err)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`); out.err != nil {
		t.Errorf("test call was refused: %v", out.err)
	}
}

func TestFailedCallsReturnRateLimitTokens(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", fail(providers.Failure{Kind: providers.KindAuth}))})
	for range 20 {
		if out := r.chat(`{"model":"small","n":100,"max_tokens":1000,"messages":[]}`); out.code != string(fault.Upstream) { // 100,000 of a million a minute
			t.Fatalf("got %+v", out)
		}
	}
	zero := credits.Micro(0)
	r.budget = &zero
	for range 20 {
		if out := r.chat(`{"model":"small","n":100,"max_tokens":1000,"messages":[]}`); out.code != string(fault.InsufficientCredits) {
			t.Fatalf("got %+v", out)
		}
	}
}

// A server whose window is smaller than the default limit would reject it.
func TestFreeModelWithUnknownWindowGetsNoDefaultLimit(t *testing.T) {
	t.Parallel()
	p := newFake("local", respond(10, 5))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Local: true, Models: []catalog.ListedModel{{ID: "plain"}, {ID: "known", ContextWindow: 4096}, {ID: "paid", Price: dollars(1, 1)}}})
	for i, tt := range []struct {
		body string
		sent int64
	}{
		{`{"model":"plain","messages":[]}`, 0},
		{`{"model":"plain","messages":[],"max_tokens":100}`, 100},
		{`{"model":"known","messages":[]}`, 4096 - estimateTokens(int64(len(`{"model":"known","messages":[]}`))+frameTokens)},
		{`{"model":"paid","messages":[]}`, r.current.Load().DefaultMaxOutput},
	} {
		if out := r.chat(tt.body); out.err != nil {
			t.Fatalf("%s: %v", tt.body, out.err)
		}
		if sent := p.requests[i].MaxOutput; sent != tt.sent {
			t.Errorf("%s: sent max_tokens %d, want %d", tt.body, sent, tt.sent)
		}
	}
}
