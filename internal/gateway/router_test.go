package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/providers"
)

// models are what would be tried for a body, as provider/model.
func (r *rig) models(body string) ([]string, error) {
	r.t.Helper()
	req, err := readChat([]byte(body))
	if err != nil {
		return nil, err
	}
	list, err := r.route(r.env, req.models, catalog.Chat, req)
	var out []string
	for _, t := range list {
		out = append(out, t.provider.Name()+"/"+t.offer.ID)
	}
	return out, err
}

// shop is a provider with models of the table: one that is cheap and can do
// little, one in the middle, one dear, and one whose price nobody knows.
func shop() catalog.Supplier {
	none := []string{}
	return catalog.Supplier{Table: "openai", Models: []catalog.Supply{
		{ID: "cheap", Upstream: "gpt-4o-mini", Price: dollars(1, 1), ContextWindow: 1000, MaxOutputTokens: 100, Capabilities: none},
		{ID: "middle", Upstream: "gpt-4o", Price: dollars(2, 2), Capabilities: []string{"vision", "tools", "json_schema"}, ContextWindow: 100_000},
		{ID: "dear", Upstream: "gpt-4o", Price: dollars(9, 9), Capabilities: []string{"vision", "tools", "json_schema", "audio_input"}, ContextWindow: 100_000, MaxOutputTokens: 50_000},
		{ID: "odd/na me:ü%2f?", Upstream: "gpt-4o", Price: dollars(3, 3), ContextWindow: 10},
		{ID: "priceless"},
	}}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, shop())
	r.routes = map[string][]string{"mine": {"priceless", "dear", "cheap"}, "auto": {"auto:cheapest", "dear"}}
	const (
		image = `,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]`
		sound = `,"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}]`
		tools = `,"tools":[{"type":"function","function":{"name":"f"}}]`
		wants = `,"response_format":{"type":"json_schema","json_schema":{}}`
	)
	long := `,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 2000) + `"}]`
	for name, tt := range map[string]struct {
		body string
		want string // or the error's code
	}{
		"plain":                        {`"model":"cheap"`, "cheap"},
		"odd name":                     {`"model":"odd/na me:ü%2f?"`, "odd/na me:ü%2f?"},
		"not filtered":                 {`"model":"cheap"` + tools, "cheap"},
		"list":                         {`"model":"dear","models":["cheap","middle"]`, "dear cheap middle"},
		"list alone":                   {`"models":["middle","cheap"]`, "middle cheap"},
		"each once":                    {`"model":"dear","models":["cheap","dear","cheap"]`, "dear cheap"},
		"list with what can":           {`"model":"cheap","models":["middle"]` + tools, "middle"},
		"list of what cannot":          {`"model":"cheap","models":["nothing"]` + tools, "cheap"},
		"list with a stranger":         {`"model":"nothing","models":["cheap"]`, "cheap"},
		"list with one that is priced": {`"model":"priceless","models":["cheap"]`, "cheap"},
		"route":                        {`"model":"route/mine"`, "dear cheap"},
		"route with what can":          {`"model":"route/mine"` + tools, "dear"},
		"route to auto":                {`"model":"route/auto","max_tokens":50`, "cheap middle dear"},
		"cheapest":                     {`"model":"auto:cheapest","max_tokens":50` + long[:40] + `"}]`, "cheap middle dear"},
		"cheapest with tools":          {`"model":"auto:cheapest"` + tools, "middle dear"},
		"cheapest with an image":       {`"model":"auto:cheapest"` + image, "middle dear"},
		"cheapest with sound":          {`"model":"auto:cheapest"` + sound, "dear"},
		"cheapest with a schema":       {`"model":"auto:cheapest"` + wants, "middle dear"},
		"cheapest for much":            {`"model":"auto:cheapest"` + long, "middle dear"},
		"cheapest with a long answer":  {`"model":"auto:cheapest","max_tokens":20000`, "dear"},
		"strongest":                    {`"model":"auto:strongest"`, "dear middle cheap"},
		"nothing":                      {`"model":"nothing"`, "model_not_found"},
		"no route":                     {`"model":"route/none"`, "model_not_found"},
		"not priced":                   {`"model":"priceless"`, "model_not_priced"},
		"no name":                      {`"model":""`, "missing_parameter"},
		"not a name":                   {`"model":"a\u0000b"`, "invalid_parameter"},
		"not a line":                   {`"model":"a","models":["a\r\nb"]`, "invalid_parameter"},
		"long name":                    {`"model":"` + strings.Repeat("x", 257) + `"`, "invalid_parameter"},
	} {
		got, err := r.models("{" + tt.body + "}")
		text := strings.ReplaceAll(strings.Join(got, " "), "shop/", "")
		if f, ok := fault.As(err); ok {
			text = string(f.Code)
		}
		if text != tt.want {
			t.Errorf("%s: got %q, expected %q (%v)", name, text, tt.want, err)
		}
	}
}

func TestAutoTakesTheMiddleTheFastestAndWhatWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, shop())
	first := func(model string) string {
		got, err := r.models(`{"model":"` + model + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	at := func(model string) *health { return r.healths.of(spot{"shop", model}, time.Now) }
	if got := first(Auto); got != "shop/middle" {
		t.Errorf("auto is %s", got)
	}
	at("cheap").begun(2 * time.Second)
	if got := first(AutoFastest); got != "shop/middle" {
		t.Errorf("a slow one is known, and the fastest is %s", got)
	}
	at("middle").refused()
	at("dear").begun(100 * time.Millisecond)
	if got := first(AutoFastest); got != "shop/dear" {
		t.Errorf("the fastest is %s", got)
	}
	at("dear").failed(&providers.Failure{Kind: providers.KindOverloaded}, time.Now())
	if got, _ := r.models(`{"model":"auto:strongest"}`); !slices.Equal(got, []string{"shop/middle", "shop/cheap", "shop/dear"}) {
		t.Errorf("one that fails comes before others: %v", got)
	}
}

func TestWeightsShareTheCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("one", says(1, 1)), doer("three", says(1, 1))})
	r.upstreams[1].Weight = 3
	n := 0
	for range 4000 {
		got, err := r.models(plainCall)
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		if got[0] == "three/small" {
			n++
		}
	}
	if n < 2850 || n > 3150 { // five standard deviations
		t.Errorf("one of weight 3 got %d of 4000", n)
	}
	r.healths.of(spot{"three", "small"}, time.Now).failed(&providers.Failure{Kind: providers.KindAuth}, time.Now())
	for range 50 {
		if got, _ := r.models(plainCall); got[0] != "one/small" {
			t.Fatal("one that fails comes first")
		}
	}
}

func TestWhoHasNoProvider(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if out := r.chat(plainCall); out.code != "no_provider" {
		t.Errorf("got %v", out.err)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini-2031-07-18","messages":[{"role":"user","content":"hi"}]}`); out.err != nil || out.Model != "gpt-4o-mini-2031-07-18" {
		t.Errorf("got %v", out.err)
	}
	if got, err := r.models(`{"model":"auto:cheapest"}`); err != nil || len(got) != autoTries {
		t.Errorf("got %v, %v", got, err)
	}
	if out := r.chat(`{"model":"text-embedding-3-small","messages":[]}`); out.code != "model_not_found" {
		t.Errorf("got %v", out.err)
	}
}

func TestNamesThatNobodyLists(t *testing.T) {
	t.Parallel()
	p := doer("local", says(10, 10))
	r := newRig(t, []providers.Provider{p}, catalog.Supplier{Local: true})
	for _, name := range []string{"llama3:8b", "hf.co/a/b:Q4_K_M", "モデル", "../../etc", "a b?c#d"} {
		if out := r.chat(`{"model":"` + name + `","messages":[]}`); out.err != nil || out.Model != name || out.ModelRan != name || out.Charged != 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if p.asked[0].MaxOutput != 0 {
		t.Errorf("an unknown model was told %d tokens", p.asked[0].MaxOutput)
	}
}
