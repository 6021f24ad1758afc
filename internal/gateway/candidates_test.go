package gateway

import (
	"context"
	"errors"
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

// A local server next to OpenAI must not get a share of OpenAI's models.
func TestAnyModelProviderOnlyGetsUnlistedModels(t *testing.T) {
	t.Parallel()
	local := newFake("local", fail(providers.Failure{Kind: providers.KindNoModel, Status: 404}))
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1)), local}, tieredSupplier(), catalog.Supplier{Local: true})
	for model, want := range map[string]string{"dear": "acme/dear", "llama": "local/llama"} {
		for range 20 { // the order is random
			if got, err := r.routedModels(`{"model":"` + model + `"}`); err != nil || strings.Join(got, " ") != want {
				t.Fatalf("%s goes to %v (%v), want %s", model, got, err, want)
			}
		}
	}
	p := r.newCall().Principal
	if _, err := r.Model(t.Context(), Owner{Principal: p}, "llama"); !fault.Is(err, fault.ModelNotFound) {
		t.Errorf("unlisted model: got %v, want model_not_found", err)
	}
	models, err := r.Models(t.Context(), Owner{Principal: p})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models.Models {
		if m.Provider == "local" {
			t.Errorf("%s is listed", m.ID)
		}
	}
	out := r.chat(`{"model":"llama","messages":[]}`)
	if out.code != string(fault.ModelNotFound) {
		t.Errorf("model unknown to the provider: got %s", out.code)
	}
}

func TestCoolingModelIsTriedLast(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, tieredSupplier())
	r.current.Load().routes = map[string]*Route{"mine": {Spec: modelroutes.Spec{Models: []string{"dear", "cheap"}}}}
	r.current.Load().health.get(modelKey{"acme", "dear"}, time.Now).recordFailure(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: time.Minute}, time.Now())
	for _, body := range []string{`{"model":"dear","models":["cheap"]}`, `{"model":"route/mine"}`} {
		if got, err := r.routedModels(body); err != nil || !slices.Equal(got, []string{"acme/cheap", "acme/dear"}) {
			t.Errorf("%s tries %v (%v)", body, got, err)
		}
	}
}

func TestAutoChoosesGeneralPurposeModels(t *testing.T) {
	t.Parallel()
	table := newFixture(t, []providers.Provider{newFake("openai", respond(1, 1))}, catalog.Supplier{Table: "openai"})
	for _, name := range []string{Auto, AutoCheapest, AutoStrongest, AutoFastest} {
		got, err := table.routedModels(`{"model":"` + name + `"}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, model := range got {
			if strings.Contains(model, "-pro") || strings.Contains(model, "search") || strings.Contains(model, "audio") || strings.Contains(model, "preview") {
				t.Errorf("%s chooses %s", name, model)
			}
		}
	}
	for _, kind := range []catalog.Kind{catalog.Image, catalog.Speech, catalog.Embedding} {
		if len(table.current.Load().candidates[candidateKey{accounts.Test, kind}]) == 0 {
			t.Errorf("no candidate of kind %q", kind)
		}
	}
	if got, err := table.routedModels(`{"model":"auto:strongest"}`); err != nil || !strings.HasPrefix(got[0], "openai/gpt-5.6") {
		t.Errorf("the strongest is %v (%v), want the dearest recent model with reasoning", got, err)
	}
	if got, err := table.routedModels(`{"model":"o1-pro"}`); err != nil || len(got) != 1 {
		t.Errorf("o1-pro by name: %v, %v", got, err)
	}
	own := newFixture(t, []providers.Provider{newFake("mine", respond(1, 1))}, catalog.Supplier{Table: "openai", Models: []catalog.ListedModel{{ID: "o1-pro"}}})
	if got, err := own.routedModels(`{"model":"auto"}`); err != nil || !slices.Equal(got, []string{"mine/o1-pro"}) {
		t.Errorf("listed by the operator: %v, %v", got, err)
	}
	google := newFixture(t, []providers.Provider{newFake("gemini", respond(1, 1))}, catalog.Supplier{Table: "gemini"})
	for kind, no := range map[catalog.Kind]string{catalog.Image: "deep-research", catalog.Embedding: "flash"} {
		for _, one := range google.current.Load().candidates[candidateKey{accounts.Test, kind}] {
			if strings.Contains(one.offer.ID, no) {
				t.Errorf("%s is a candidate of kind %q", one.offer.ID, kind)
			}
		}
	}
}

func TestAutoPrefersLaterVersionAtSamePrice(t *testing.T) {
	t.Parallel()
	var supplies []catalog.ListedModel
	for _, id := range []string{"m-2", "m-3-preview", "m-3", "m-1"} {
		supplies = append(supplies, catalog.ListedModel{ID: id, Kind: catalog.Chat, Price: dollars(1, 1)})
	}
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, catalog.Supplier{Models: supplies})
	if got, err := r.routedModels(`{"model":"auto:strongest"}`); err != nil || !slices.Equal(got, []string{"acme/m-3", "acme/m-2", "acme/m-1"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestAutoNeverFallsBackToSnapshotOfSameModel(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("openai", respond(1, 1))}, catalog.Supplier{Table: "openai"})
	for _, kind := range callableKinds {
		for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
			for _, one := range r.current.Load().candidates[candidateKey{env, kind}] {
				for _, other := range r.current.Load().candidates[candidateKey{env, kind}] {
					if stamp, ok := strings.CutPrefix(one.offer.ID, other.offer.ID+"-20"); ok && strings.Trim(stamp, "0123456789-") == "" {
						t.Errorf("%s: %s is a candidate next to %s", env, one.offer.ID, other.offer.ID)
					}
				}
			}
		}
	}
	own := newFixture(t, []providers.Provider{newFake("mine", respond(1, 1))}, catalog.Supplier{Table: "openai", Models: []catalog.ListedModel{{ID: "gpt-4o"}, {ID: "gpt-4o-2024-11-20"}}})
	if got := own.current.Load().candidates[candidateKey{accounts.Live, catalog.Chat}]; len(got) != 2 {
		t.Errorf("got %d candidates of 2 that the operator lists", len(got))
	}
}

func TestAutoChoosesSameModelForTestAndLiveKeys(t *testing.T) {
	t.Parallel()
	chosen := func(r *fixture, env accounts.Environment, name string) string {
		list, err := r.current.Load().route(t.Context(), anyone(env), []string{name}, catalog.Chat, &request{})
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		return list[0].offer.ID
	}
	live := newFixture(t, []providers.Provider{newFake("claude", respond(1, 1))}, catalog.Supplier{Table: "anthropic"})
	unknown := newFixture(t, []providers.Provider{newFake("local", respond(1, 1))}, catalog.Supplier{Models: []catalog.ListedModel{{ID: "of-no-table", Price: dollars(1, 1)}}})
	for _, name := range []string{Auto, AutoCheapest, AutoStrongest, AutoFastest} {
		if liveModel, testModel := chosen(live, accounts.Live, name), chosen(live, accounts.Test, name); liveModel != testModel {
			t.Errorf("%s is %s for live keys and %s for test keys", name, liveModel, testModel)
		}
		for what, r := range map[string]*fixture{"no provider": newFixture(t, nil), "only an unknown model": unknown} {
			if provider := r.current.Load().Catalog.Lookup(chosen(r, accounts.Test, name)).Provider; !slices.Contains(mainProviders, provider) {
				t.Errorf("%s: %s is a model of %s", what, name, provider)
			}
		}
	}
}

func TestUnsupportedRequestFallsBackToNextModel(t *testing.T) {
	t.Parallel()
	cannot := newFake("one", func(context.Context, *providers.ChatRequest) (*providers.Response, error) {
		return nil, fault.Invalid("logprobs", "logprobs are not supported.")
	})
	r := newFixture(t, []providers.Provider{cannot, newFake("two", respond(10, 5))},
		catalog.Supplier{Models: []catalog.ListedModel{{ID: "a", Price: dollars(1, 1)}}}, catalog.Supplier{Models: []catalog.ListedModel{{ID: "b", Price: dollars(1, 1)}}})
	out := r.chat(`{"model":"a","models":["b"],"messages":[]}`)
	if out.err != nil || out.ModelRan != "b" || !strings.Contains(out.Attempts, `"unsupported"`) {
		t.Errorf("%s by %q after %s (%v)", out.code, out.ModelRan, out.Attempts, out.err)
	}
	if out := r.chat(`{"model":"a","messages":[]}`); out.code != string(fault.InvalidParameter) {
		t.Errorf("without a fallback: got %s", out.code)
	}
}

func TestTooLongRequestFallsBackToAnotherModel(t *testing.T) {
	t.Parallel()
	long := providers.Failure{Kind: providers.KindInvalid, Status: 400, Err: errors.New("prompt is too long: 250000 tokens > 200000 maximum")}
	small := catalog.Supplier{Models: []catalog.ListedModel{{ID: "a", Price: dollars(1, 1)}}}
	one, two := newFake("one", fail(long)), newFake("two", fail(long))
	r := newFixture(t, []providers.Provider{one, two, newFake("three", respond(10, 5))}, small, small,
		catalog.Supplier{Models: []catalog.ListedModel{{ID: "b", Price: dollars(1, 1)}}})
	out := r.chat(`{"model":"a","models":["b"],"messages":[]}`)
	if out.err != nil || out.ModelRan != "b" || one.calls()+two.calls() != 1 || !strings.Contains(out.Attempts, `"too_long"`) {
		t.Errorf("%s by %q after %s (%v)", out.code, out.ModelRan, out.Attempts, out.err)
	}
	if out := r.chat(`{"model":"a","messages":[]}`); out.code != string(fault.ContextLengthExceeded) {
		t.Errorf("without a fallback: got %s", out.code)
	}
}

func TestOperatorCapabilitiesAreUsedForRouting(t *testing.T) {
	t.Parallel()
	r := newFixture(t, []providers.Provider{newFake("acme", respond(1, 1))}, catalog.Supplier{Models: []catalog.ListedModel{
		{ID: "blind", Price: dollars(1, 1), Capabilities: []string{"tools"}}, {ID: "seeing", Price: dollars(1, 1), Capabilities: []string{"vision"}}}})
	got, err := r.routedModels(`{"model":"blind","models":["seeing"],"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`)
	if err != nil || !slices.Equal(got, []string{"acme/seeing"}) {
		t.Errorf("image goes to %v (%v), want acme/seeing", got, err)
	}
}

func TestModelOfWrongKindErrorNamesItsKind(t *testing.T) {
	t.Parallel()
	r := newFixture(t, nil)
	r.env = accounts.Test
	_, err := r.routedModels(`{"model":"text-embedding-3-small"}`)
	if f, ok := fault.As(err); !ok || f.Code != fault.ModelNotFound || !strings.Contains(f.Message, `"embedding"`) {
		t.Errorf("embedding model in a chat: got %v", err)
	}
}
