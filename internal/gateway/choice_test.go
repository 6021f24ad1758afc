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
	"turnpike/internal/providers"
)

// TestWhoTakesAnyNameGetsWhatNobodyNames and nothing else: a local server beside
// OpenAI must not get a share of OpenAI's models.
func TestWhoTakesAnyNameGetsWhatNobodyNames(t *testing.T) {
	t.Parallel()
	local := doer("local", fails(providers.Failure{Kind: providers.KindNoModel, Status: 404}))
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1)), local}, shop(), catalog.Supplier{Local: true})
	for model, want := range map[string]string{"dear": "shop/dear", "llama": "local/llama"} {
		for range 20 { // the order is drawn
			if got, err := r.models(`{"model":"` + model + `"}`); err != nil || strings.Join(got, " ") != want {
				t.Fatalf("%s goes to %v (%v), expected %s", model, got, err, want)
			}
		}
	}
	p := r.open().Principal
	if _, err := r.Model(p, "llama"); !fault.Is(err, fault.ModelNotFound) {
		t.Errorf("a model that nobody lists: %v", err)
	}
	for _, m := range r.Models(p) {
		if m.Provider == "local" {
			t.Errorf("%s is listed", m.ID)
		}
	}
	out := r.chat(`{"model":"llama","messages":[]}`)
	if out.code != string(fault.ModelNotFound) {
		t.Errorf("a model that the provider does not have either: %s", out.code)
	}
}

// TestAListBeginsWithWhatWorks: a provider that fails is tried last, whatever
// its place.
func TestAListBeginsWithWhatWorks(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, shop())
	r.routes = map[string][]string{"mine": {"dear", "cheap"}}
	r.healths.of(spot{"shop", "dear"}, time.Now).failed(&providers.Failure{Kind: providers.KindRateLimited, RetryAfter: time.Minute}, time.Now())
	for _, body := range []string{`{"model":"dear","models":["cheap"]}`, `{"model":"route/mine"}`} {
		if got, err := r.models(body); err != nil || !slices.Equal(got, []string{"shop/cheap", "shop/dear"}) {
			t.Errorf("%s tries %v (%v)", body, got, err)
		}
	}
}

// TestTheRouterChoosesWhatIsForGeneralUse of the table, and whatever the
// operator lists.
func TestTheRouterChoosesWhatIsForGeneralUse(t *testing.T) {
	t.Parallel()
	table := newRig(t, []providers.Provider{doer("openai", says(1, 1))}, catalog.Supplier{Table: "openai"})
	for _, name := range []string{Auto, AutoCheapest, AutoStrongest, AutoFastest} {
		got, err := table.models(`{"model":"` + name + `"}`)
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
		if len(table.choice[choiceKey{accounts.Test, kind}]) == 0 {
			t.Errorf("no model of the kind %q is for general use", kind)
		}
	}
	if got, err := table.models(`{"model":"auto:strongest"}`); err != nil || !strings.HasPrefix(got[0], "openai/gpt-5.6") {
		t.Errorf("the strongest is %v (%v), and not the dearest that reasons and is not old", got, err)
	}
	if got, err := table.models(`{"model":"o1-pro"}`); err != nil || len(got) != 1 {
		t.Errorf("by its name: %v, %v", got, err)
	}
	own := newRig(t, []providers.Provider{doer("mine", says(1, 1))}, catalog.Supplier{Table: "openai", Models: []catalog.Supply{{ID: "o1-pro"}}})
	if got, err := own.models(`{"model":"auto"}`); err != nil || !slices.Equal(got, []string{"mine/o1-pro"}) {
		t.Errorf("of what the operator lists: %v, %v", got, err)
	}
	google := newRig(t, []providers.Provider{doer("gemini", says(1, 1))}, catalog.Supplier{Table: "gemini"})
	for kind, no := range map[catalog.Kind]string{catalog.Image: "deep-research", catalog.Embedding: "flash"} {
		for _, one := range google.choice[choiceKey{accounts.Test, kind}] {
			if strings.Contains(one.offer.ID, no) {
				t.Errorf("%s is chosen for the kind %q", one.offer.ID, kind)
			}
		}
	}
}

// TestOfOnePriceTheLaterVersionIsChosen, and no preview before what stays.
func TestOfOnePriceTheLaterVersionIsChosen(t *testing.T) {
	t.Parallel()
	var supplies []catalog.Supply
	for _, id := range []string{"m-2", "m-3-preview", "m-3", "m-1"} {
		supplies = append(supplies, catalog.Supply{ID: id, Kind: catalog.Chat, Price: dollars(1, 1)})
	}
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, catalog.Supplier{Models: supplies})
	if got, err := r.models(`{"model":"auto:strongest"}`); err != nil || !slices.Equal(got, []string{"shop/m-3", "shop/m-2", "shop/m-1"}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestNoModelStandsInForItself: a snapshot would be asked when its model fails.
func TestNoModelStandsInForItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("openai", says(1, 1))}, catalog.Supplier{Table: "openai"})
	for _, kind := range listed {
		for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
			for _, one := range r.choice[choiceKey{env, kind}] {
				for _, other := range r.choice[choiceKey{env, kind}] {
					if stamp, ok := strings.CutPrefix(one.offer.ID, other.offer.ID+"-20"); ok && strings.Trim(stamp, "0123456789-") == "" {
						t.Errorf("%s: %s stands in for %s", env, one.offer.ID, other.offer.ID)
					}
				}
			}
		}
	}
	own := newRig(t, []providers.Provider{doer("mine", says(1, 1))}, catalog.Supplier{Table: "openai", Models: []catalog.Supply{{ID: "gpt-4o"}, {ID: "gpt-4o-2024-11-20"}}})
	if got := own.choice[choiceKey{accounts.Live, catalog.Chat}]; len(got) != 2 {
		t.Errorf("of two that the operator lists %d are chosen from", len(got))
	}
}

// TestTestKeysAreGivenWhatLiveKeysWillBe, and before there is a provider a model
// that one would expect.
func TestTestKeysAreGivenWhatLiveKeysWillBe(t *testing.T) {
	t.Parallel()
	chosen := func(r *rig, env accounts.Environment, name string) string {
		list, err := r.route(env, []string{name}, catalog.Chat, &request{})
		if err != nil || len(list) == 0 {
			t.Fatal(list, err)
		}
		return list[0].offer.ID
	}
	live := newRig(t, []providers.Provider{doer("claude", says(1, 1))}, catalog.Supplier{Table: "anthropic"})
	unknown := newRig(t, []providers.Provider{doer("local", says(1, 1))}, catalog.Supplier{Models: []catalog.Supply{{ID: "of-no-table", Price: dollars(1, 1)}}})
	for _, name := range []string{Auto, AutoCheapest, AutoStrongest, AutoFastest} {
		if real, test := chosen(live, accounts.Live, name), chosen(live, accounts.Test, name); real != test {
			t.Errorf("%s is %s for live keys and %s for test keys", name, real, test)
		}
		for what, r := range map[string]*rig{"no provider": newRig(t, nil), "one of its own models": unknown} {
			if maker := r.catalog.Lookup(chosen(r, accounts.Test, name)).Provider; !slices.Contains(makersOfMost, maker) {
				t.Errorf("%s: %s is a model of %s", what, name, maker)
			}
		}
	}
}

// TestWhatOneFormatCannotSayAnotherMay.
func TestWhatOneFormatCannotSayAnotherMay(t *testing.T) {
	t.Parallel()
	cannot := doer("one", func(context.Context, *providers.ChatRequest) (*providers.Answer, error) {
		return nil, fault.Invalid("logprobs", "logprobs are not possible with this model's provider")
	})
	r := newRig(t, []providers.Provider{cannot, doer("two", says(10, 5))},
		catalog.Supplier{Models: []catalog.Supply{{ID: "a", Price: dollars(1, 1)}}}, catalog.Supplier{Models: []catalog.Supply{{ID: "b", Price: dollars(1, 1)}}})
	out := r.chat(`{"model":"a","models":["b"],"messages":[]}`)
	if out.err != nil || out.ModelRan != "b" || !strings.Contains(out.Attempts, `"unsupported"`) {
		t.Errorf("%s by %q after %s (%v)", out.code, out.ModelRan, out.Attempts, out.err)
	}
	if out := r.chat(`{"model":"a","messages":[]}`); out.code != string(fault.InvalidParameter) {
		t.Errorf("with nobody else: %s", out.code)
	}
}

// TestAnotherModelMayTakeMore: what is too long for a model goes on to the next
// in the list, and not to the same model elsewhere.
func TestAnotherModelMayTakeMore(t *testing.T) {
	t.Parallel()
	long := providers.Failure{Kind: providers.KindInvalid, Status: 400, Err: errors.New("prompt is too long: 250000 tokens > 200000 maximum")}
	small := catalog.Supplier{Models: []catalog.Supply{{ID: "a", Price: dollars(1, 1)}}}
	one, two := doer("one", fails(long)), doer("two", fails(long))
	r := newRig(t, []providers.Provider{one, two, doer("three", says(10, 5))}, small, small,
		catalog.Supplier{Models: []catalog.Supply{{ID: "b", Price: dollars(1, 1)}}})
	out := r.chat(`{"model":"a","models":["b"],"messages":[]}`)
	if out.err != nil || out.ModelRan != "b" || one.calls()+two.calls() != 1 || !strings.Contains(out.Attempts, `"too_long"`) {
		t.Errorf("%s by %q after %s (%v)", out.code, out.ModelRan, out.Attempts, out.err)
	}
	if out := r.chat(`{"model":"a","messages":[]}`); out.code != string(fault.ContextLengthExceeded) {
		t.Errorf("with nobody else: %s", out.code)
	}
}

// TestCapabilitiesOfTheOperatorCount for a model that the table does not know.
func TestCapabilitiesOfTheOperatorCount(t *testing.T) {
	t.Parallel()
	r := newRig(t, []providers.Provider{doer("shop", says(1, 1))}, catalog.Supplier{Models: []catalog.Supply{
		{ID: "blind", Price: dollars(1, 1), Capabilities: []string{"tools"}}, {ID: "seeing", Price: dollars(1, 1), Capabilities: []string{"vision"}}}})
	got, err := r.models(`{"model":"blind","models":["seeing"],"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`)
	if err != nil || !slices.Equal(got, []string{"shop/seeing"}) {
		t.Errorf("a picture goes to %v (%v)", got, err)
	}
}

// TestAModelOfAnotherKindIsCalledThat.
func TestAModelOfAnotherKindIsCalledThat(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.env = accounts.Test
	_, err := r.models(`{"model":"text-embedding-3-small"}`)
	if f, ok := fault.As(err); !ok || f.Code != fault.ModelNotFound || !strings.Contains(f.Message, `"embedding"`) {
		t.Errorf("embeddings in a chat: %v", err)
	}
}
