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

// TestBoundOfTheInput: never below what a provider can count, and what is no
// text does not count as text.
func TestBoundOfTheInput(t *testing.T) {
	t.Parallel()
	data := strings.Repeat("A", 200_000)
	message := func(part string) string {
		return `{"model":"m","messages":[{"role":"user","content":[` + part + `]}]}`
	}
	for name, tt := range map[string]struct {
		body   string
		extra  int64 // beyond the bytes and the frame
		vision bool
		audio  bool
	}{
		"text":                  {message(`{"type":"text","text":"hi"}`), 0, false, false},
		"image by address":      {message(`{"type":"image_url","image_url":{"url":"https://x/y.png"}}`), imageTokens, true, false},
		"two images":            {message(`{"type":"image_url","image_url":{"url":"https://x"}},{"type":"image_url","image_url":"https://x"}`), 2 * imageTokens, true, false},
		"image in full":         {message(`{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}`), imageTokens - 200_022, true, false},
		"escaped name":          {message(`{"type":"x","image\u005furl":{"url":"https://x/y.png"}}`), imageTokens, true, false},
		"sound":                 {message(`{"type":"input_audio","input_audio":{"data":"` + data + `","format":"wav"}}`), 200_000/bytesOfSound - 200_000, false, true},
		"text like an image":    {message(`{"type":"text","text":"data:image/png;base64,` + data + `"}`), 0, false, false},
		"message like an image": {`{"model":"m","messages":[{"role":"user","content":"data:image/png;base64,` + data + `"}]}`, 0, false, false},
		"text beside sound":     {message(`{"type":"input_audio","input_audio":{"data":""}},{"type":"text","text":"` + data + `"}`), 0, false, true},
		"tool like an image":    {`{"model":"m","tools":[{"function":{"name":"f","parameters":{"image_url":{"url":"data:image/png;base64,` + data + `"}}}}]}`, toolTokens, false, false},
		"no tools":              {`{"model":"m","tools":[ ],"functions":null}`, 0, false, false},
		"odd messages":          {`{"model":"m","messages":"image"}`, 0, false, false},
	} {
		r, err := readChat([]byte(tt.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := int64(len(tt.body)) + frameTokens + tt.extra; r.inputBound != want || r.needs.vision != tt.vision || r.needs.audio != tt.audio {
			t.Errorf("%s: bound %d, expected %d; needs %+v", name, r.inputBound, want, r.needs)
		}
	}
	for _, bad := range []string{`{"model":"m","tools":{}}`, `{"model":"m","n":0}`, `{"model":"m","n":129}`, `{"model":"m","max_tokens":0}`, `{"model":1}`, `[]`,
		`{"model":"m","model":"n"}`, "{\"model\":\"\xff\"}", `{"model":"m","models":[""]}`, `{"model":"m","models":[` + strings.Repeat(`"a",`, 16) + `"a"]}`} {
		if _, err := readChat([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestReservation: the dearest target, every choice, the caller's limit or ours.
func TestReservation(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields string
		price  int64 // micro for a token of input; output is twice that
		output int64
		told   int64 // what the provider is told
	}{
		"the model's limit":    {`"model":"small"`, 1000, 1000, 1000},
		"the caller's":         {`"model":"small","max_tokens":7`, 1000, 7, 7},
		"the caller's new one": {`"model":"small","max_completion_tokens":8`, 1000, 8, 8},
		"more than the model":  {`"model":"small","max_tokens":9223372036854775807`, 1000, 1000, 1000},
		"choices":              {`"model":"small","max_tokens":7,"n":3`, 1000, 21, 7},
		"the dearest":          {`"model":"small","models":["large"],"max_tokens":7`, 10_000, 7, 7},
	} {
		p := doer("one", says(10, 5))
		r := newRig(t, []providers.Provider{p})
		body := "{" + tt.fields + `,"messages":[]}`
		out := r.chat(body)
		want := credits.Micro((int64(len(body))+frameTokens)*tt.price + 2*tt.price*tt.output)
		if out.err != nil || out.Reserved != want || out.Charged != 20_000 || p.asked[0].MaxOutput != tt.told {
			t.Errorf("%s: reserved %d, expected %d; told %d; %v", name, out.Reserved, want, p.asked[0].MaxOutput, out.err)
		}
	}
}

// TestLimitLeavesRoomForTheInput: a model whose window is small refuses a limit
// of ours that does not fit.
func TestLimitLeavesRoomForTheInput(t *testing.T) {
	t.Parallel()
	p := doer("one", says(10, 5))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.Supply{{ID: "small", Price: dollars(1, 2), ContextWindow: 8192, MaxOutputTokens: 8192}}})
	body := `{"model":"small","messages":[{"role":"user","content":"` + strings.Repeat("word ", 4000) + `"}]}`
	if out := r.chat(body); out.err != nil || p.asked[0].MaxOutput != 8192-aboutTokens(int64(len(body))+frameTokens) {
		t.Errorf("told %d: %v", p.asked[0].MaxOutput, out.err)
	}
	if out := r.chat(strings.Replace(body, "{", `{"max_tokens":8000,`, 1)); out.err != nil || p.asked[1].MaxOutput != 8000 {
		t.Errorf("the caller's own limit became %d: %v", p.asked[1].MaxOutput, out.err)
	}
	if out := r.chat(strings.Replace(body, "word", strings.Repeat("word ", 9), 1000)); out.err != nil || p.asked[2].MaxOutput != 8192 {
		t.Errorf("what does not fit at all was told %d: %v", p.asked[2].MaxOutput, out.err)
	}
}

// TestLimitOfAnUnknownModelDoesNotOverflow: a reservation of nothing would make
// the answer free.
func TestLimitOfAnUnknownModelDoesNotOverflow(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(10, 5))}, catalog.Supplier{Default: dollars(1, 2)})
	if out := r.chat(`{"model":"x","n":128,"max_tokens":9223372036854775807,"messages":[]}`); out.code != string(fault.InsufficientCredits) {
		t.Errorf("%+v", out)
	}
	r.budget = nil
	if out := r.chat(`{"model":"x","n":128,"max_tokens":9223372036854775807,"messages":[]}`); out.err != nil || out.Charged != 20_000 {
		t.Errorf("%+v", out)
	}
}

// TestALimitThatNoModelHasIsBounded: what is set aside for a call, and charged
// should the server die, is what an answer can come to.
func TestALimitThatNoModelHasIsBounded(t *testing.T) {
	t.Parallel()
	p := doer("one", says(10, 5))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Models: []catalog.Supply{{ID: "any", Price: dollars(1, 2)}, {ID: "window", Price: dollars(1, 2), ContextWindow: 8192}}})
	r.budget, r.Gateway.rates.Live = nil, limits.Limits{InFlight: 1}
	for i, tt := range []struct {
		model string
		told  int64
	}{{"any", mostAnswer}, {"window", 8192}} {
		body := `{"model":"` + tt.model + `","n":128,"max_tokens":1000000000000,"messages":[]}`
		out := r.chat(body)
		if p.calls() != i+1 {
			t.Fatalf("%s: %v", tt.model, out.err)
		}
		want := credits.Micro((int64(len(body))+frameTokens)*1000 + 128*tt.told*2000)
		if out.err != nil || out.Reserved != want || p.asked[i].MaxOutput != tt.told {
			t.Errorf("%s: told %d, reserved %s of %s: %v", tt.model, p.asked[i].MaxOutput, out.Reserved, want, out.err)
		}
	}
	if out := r.chat(`{"model":"window","max_tokens":8000,"messages":[]}`); out.err != nil || p.asked[2].MaxOutput != 8000 {
		t.Errorf("a limit that fits became %d: %v", p.asked[2].MaxOutput, out.err)
	}
}

// TestWhatIsLeftBoundsTheAnswer: a caller who named no limit gets as much as
// there is, under the budget that has least.
func TestWhatIsLeftBoundsTheAnswer(t *testing.T) {
	t.Parallel()
	input := credits.Micro(len(plainCall)+frameTokens) * 1000
	p := doer("one", says(10, 100))
	r := newRig(t, []providers.Provider{p})
	*r.budget = input + 300*2000
	out := r.chat(plainCall)
	if out.err != nil || p.asked[0].MaxOutput != 300 || out.Reserved != *r.budget || out.Charged != 210_000 {
		t.Fatalf("told %d, reserved %d: %+v", p.asked[0].MaxOutput, out.Reserved, out)
	}
	key := input + 50*2000
	r.keyBudget = &key
	*r.budget += 210_000
	r.budget = new(*r.budget)
	if out = r.chat(plainCall); out.err == nil || out.code != string(fault.BudgetExceeded) { // 210,000 of the key's are used
		t.Fatalf("%+v", out)
	}
	key += 210_000
	out = r.chat(plainCall)
	if out.err != nil || p.asked[1].MaxOutput != 50 || out.Reserved != key-210_000 {
		t.Fatalf("told %d, reserved %d: %+v", p.asked[1].MaxOutput, out.Reserved, out)
	}
	if out := r.chat(`{"model":"small","max_tokens":900,"messages":[]}`); out.err == nil || p.calls() != 2 {
		t.Error("a caller's own limit was changed")
	}
	if out := r.chat(plainCall); out.err == nil || p.calls() != 2 {
		t.Error("nothing is left, and there is an answer")
	}
	zero := credits.Micro(0)
	r.budget, r.keyBudget = &zero, nil
	if out := r.chat(plainCall); out.code != string(fault.InsufficientCredits) {
		t.Errorf("a budget of nothing gave %v", out.err)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}`); out.err != nil {
		t.Errorf("a test call has a budget: %v", out.err)
	}
}

// TestRefusedCallsGiveTheirTokensBack to the rate limit.
func TestRefusedCallsGiveTheirTokensBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", fails(providers.Failure{Kind: providers.KindAuth}))})
	for range 20 {
		if out := r.chat(`{"model":"small","n":100,"max_tokens":1000,"messages":[]}`); out.code != string(fault.Upstream) { // 100,000 of a million a minute
			t.Fatalf("%+v", out)
		}
	}
	zero := credits.Micro(0)
	r.budget = &zero
	for range 20 {
		if out := r.chat(`{"model":"small","n":100,"max_tokens":1000,"messages":[]}`); out.code != string(fault.InsufficientCredits) {
			t.Fatalf("%+v", out)
		}
	}
}

// TestAModelThatCostsNothingKeepsToItsOwnLimit: nobody knows the window of a
// local model that is not described, and a server with a smaller one than our
// default refuses it.
func TestAModelThatCostsNothingKeepsToItsOwnLimit(t *testing.T) {
	t.Parallel()
	p := doer("local", says(10, 5))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Local: true, Models: []catalog.Supply{{ID: "plain"}, {ID: "known", ContextWindow: 4096}, {ID: "paid", Price: dollars(1, 1)}}})
	for i, tt := range []struct {
		body string
		told int64
	}{
		{`{"model":"plain","messages":[]}`, 0},
		{`{"model":"plain","messages":[],"max_tokens":100}`, 100},
		{`{"model":"known","messages":[]}`, 4096 - aboutTokens(int64(len(`{"model":"known","messages":[]}`))+frameTokens)},
		{`{"model":"paid","messages":[]}`, r.defaultMaxOutput},
	} {
		if out := r.chat(tt.body); out.err != nil {
			t.Fatalf("%s: %v", tt.body, out.err)
		}
		if told := p.asked[i].MaxOutput; told != tt.told {
			t.Errorf("%s: told %d, expected %d", tt.body, told, tt.told)
		}
	}
}
