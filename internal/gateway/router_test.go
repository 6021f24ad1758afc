package gateway

import (
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/modelroutes"
	"turnpike/internal/providers"
)

// routedModels returns the targets of a body, as provider/model.
func (r *fixture) routedModels(body string) ([]string, error) {
	r.t.Helper()
	req, err := readChat([]byte(body))
	if err != nil {
		return nil, err
	}
	list, err := r.current.Load().route(r.t.Context(), anyone(r.env), req.models, catalog.Chat, req)
	var out []string
	for _, t := range list {
		out = append(out, t.provider.Name()+"/"+t.offer.ID)
	}
	return out, err
}

// tieredSupplier has a cheap model with few capabilities, a middle one, a dear one, one with an
// odd name, and one without a price.
func tieredSupplier() catalog.Supplier {
	none := []string{}
	return catalog.Supplier{Table: "openai", Models: []catalog.ListedModel{
		{ID: "cheap", Upstream: "gpt-4o-mini", Price: dollars(1, 1), ContextWindow: 1000, MaxOutputTokens: 100, Capabilities: none},
		{ID: "middle", Upstream: "gpt-4o", Price: dollars(2, 2), Capabilities: []string{"vision", "tools", "json_schema"}, ContextWindow: 100_000},
		{ID: "dear", Upstream: "gpt-4o", Price: dollars(9, 9), Capabilities: []string{"vision", "tools", "json_schema", "audio_input"}, ContextWindow: 100_000, MaxOutputTokens: 50_000},
		{ID: "odd/na me:ü%2f?", Upstream: "gpt-4o", Price: dollars(3, 3), ContextWindow: 10},
		{ID: "priceless"},
	}}
}

func TestRouterResolvesNamesAndCapabilities(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, tieredSupplier())
	r.current.Load().routes = map[string]*Route{"mine": {Spec: modelroutes.Spec{Models: []string{"priceless", "dear", "cheap"}}}, "auto": {Spec: modelroutes.Spec{Models: []string{"auto:cheapest", "dear"}}}}
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
		"plain":                       {`"model":"cheap"`, "cheap"},
		"odd name":                    {`"model":"odd/na me:ü%2f?"`, "odd/na me:ü%2f?"},
		"not filtered":                {`"model":"cheap"` + tools, "cheap"},
		"list":                        {`"model":"dear","models":["cheap","middle"]`, "dear cheap middle"},
		"list alone":                  {`"models":["middle","cheap"]`, "middle cheap"},
		"each once":                   {`"model":"dear","models":["cheap","dear","cheap"]`, "dear cheap"},
		"list with a capable one":     {`"model":"cheap","models":["middle"]` + tools, "middle"},
		"list of incapable ones":      {`"model":"cheap","models":["nothing"]` + tools, "cheap"},
		"list with an unknown one":    {`"model":"nothing","models":["cheap"]`, "cheap"},
		"list with an unpriced one":   {`"model":"priceless","models":["cheap"]`, "cheap"},
		"route":                       {`"model":"route/mine"`, "dear cheap"},
		"route with a capable one":    {`"model":"route/mine"` + tools, "dear"},
		"route to auto":               {`"model":"route/auto","max_tokens":50`, "cheap middle dear"},
		"cheapest":                    {`"model":"auto:cheapest","max_tokens":50` + long[:40] + `"}]`, "cheap middle dear"},
		"cheapest with tools":         {`"model":"auto:cheapest"` + tools, "middle dear"},
		"cheapest with an image":      {`"model":"auto:cheapest"` + image, "middle dear"},
		"cheapest with audio":         {`"model":"auto:cheapest"` + sound, "dear"},
		"cheapest with a schema":      {`"model":"auto:cheapest"` + wants, "middle dear"},
		"cheapest for a long input":   {`"model":"auto:cheapest"` + long, "middle dear"},
		"cheapest with a long output": {`"model":"auto:cheapest","max_tokens":20000`, "dear"},
		"strongest":                   {`"model":"auto:strongest"`, "dear middle cheap"},
		"nothing":                     {`"model":"nothing"`, "model_not_found"},
		"no route":                    {`"model":"route/none"`, "model_not_found"},
		"not priced":                  {`"model":"priceless"`, "model_not_priced"},
		"no name":                     {`"model":""`, "missing_parameter"},
		"not a name":                  {`"model":"a\u0000b"`, "invalid_parameter"},
		"not a line":                  {`"model":"a","models":["a\r\nb"]`, "invalid_parameter"},
		"long name":                   {`"model":"` + strings.Repeat("x", 257) + `"`, "invalid_parameter"},
	} {
		got, err := r.routedModels("{" + tt.body + "}")
		text := strings.ReplaceAll(strings.Join(got, " "), "acme/", "")
		if f, ok := fault.As(err); ok {
			text = string(f.Code)
		}
		if text != tt.want {
			t.Errorf("%s: got %q, expected %q (%v)", name, text, tt.want, err)
		}
	}
}

func TestAutoPrefersMedianFastestAndHealthy(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, tieredSupplier())
	first := func(model string) string {
		got, err := r.routedModels(`{"model":"` + model + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	at := func(model string) *health { return r.current.Load().health.get(modelKey{"acme", model}, time.Now) }
	if got := first(Auto); got != "acme/middle" {
		t.Errorf("auto is %s, want acme/middle", got)
	}
	at("cheap").recordFirstByte(2 * time.Second)
	if got := first(AutoFastest); got != "acme/middle" {
		t.Errorf("the fastest is %s although cheap is slow, want acme/middle", got)
	}
	at("middle").recordRejection()
	at("dear").recordFirstByte(100 * time.Millisecond)
	if got := first(AutoFastest); got != "acme/dear" {
		t.Errorf("the fastest is %s, want acme/dear", got)
	}
	at("dear").recordFailure(&providers.Failure{Kind: providers.KindOverloaded}, time.Now())
	if got, _ := r.routedModels(`{"model":"auto:strongest"}`); !slices.Equal(got, []string{"acme/middle", "acme/cheap", "acme/dear"}) {
		t.Errorf("one that fails comes before unlisted: %v", got)
	}
}

func TestWeightsDistributeCalls(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("one", respond(1, 1)), newFake("three", respond(1, 1))})
	r.current.Load().Upstreams[1].Weight = 3
	n := 0
	for range 4000 {
		got, err := r.routedModels(plainBody)
		if err != nil || len(got) != 2 {
			t.Fatal(got, err)
		}
		if got[0] == "three/small" {
			n++
		}
	}
	if n < 2850 || n > 3150 { // five standard deviations
		t.Errorf("weight 3 of 4 got %d of 4000, want about 3000", n)
	}
	r.current.Load().health.get(modelKey{"three", "small"}, time.Now).recordFailure(&providers.Failure{Kind: providers.KindAuth}, time.Now())
	for range 50 {
		if got, _ := r.routedModels(plainBody); got[0] != "one/small" {
			t.Fatal("a cooling provider comes first")
		}
	}
}

func TestLiveKeyWithoutProviderIsRejected(t *testing.T) {
	t.Parallel()
	r := newFixture(t, nil)
	if out := r.chat(plainBody); out.code != "no_provider" {
		t.Errorf("got %v", out.err)
	}
	r.env = accounts.Test
	if out := r.chat(`{"model":"gpt-4o-mini-2031-07-18","messages":[{"role":"user","content":"hi"}]}`); out.err != nil || out.Model != "gpt-4o-mini-2031-07-18" {
		t.Errorf("got %v", out.err)
	}
	if got, err := r.routedModels(`{"model":"auto:cheapest"}`); err != nil || len(got) != autoTargets {
		t.Errorf("got %v, %v", got, err)
	}
	if out := r.chat(`{"model":"text-embedding-3-small","messages":[]}`); out.code != "model_not_found" {
		t.Errorf("got %v", out.err)
	}
}

func TestLocalProviderAcceptsUnlistedNames(t *testing.T) {
	t.Parallel()
	p := newFake("local", respond(10, 10))
	r := newFixture(t, []providers.Provider{p}, catalog.Supplier{Local: true})
	for _, name := range []string{"llama3:8b", "hf.co/a/b:Q4_K_M", "モデル", "../../etc", "a b?c#d"} {
		if out := r.chat(`{"model":"` + name + `","messages":[]}`); out.err != nil || out.Model != name || out.ModelRan != name || out.Charged != 0 {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if p.requests[0].MaxOutput != 0 {
		t.Errorf("an unknown model got max_tokens %d, want none", p.requests[0].MaxOutput)
	}
}
