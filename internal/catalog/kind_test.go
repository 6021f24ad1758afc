package catalog_test

import (
	"math/big"
	"slices"
	"testing"

	"turnpike/internal/catalog"
)

// A model whose price doesn't match its kind would be free.
func TestPriceMustMatchTheKind(t *testing.T) {
	t.Parallel()
	cent := big.NewRat(1, 100)
	tokens, image, second, character := catalog.ListPrice{Input: cent, Output: cent}, catalog.ListPrice{PerImage: cent}, catalog.ListPrice{PerSecond: cent}, catalog.ListPrice{PerCharacter: cent}
	search := catalog.ListPrice{PerSearch: cent}
	sold := map[catalog.Kind][]*catalog.ListPrice{
		"": {&tokens}, catalog.Chat: {&tokens}, catalog.Embedding: {&tokens}, catalog.Moderation: {&tokens}, catalog.Rerank: {&tokens, &search}, catalog.Image: {&tokens, &image},
		catalog.Video: {&second}, catalog.Speech: {&tokens, &second, &character},
	}
	for kind, right := range sold {
		for _, price := range []*catalog.ListPrice{&tokens, &image, &second, &character, &search} {
			want := slices.Contains(right, price)
			_, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Models: []catalog.ListedModel{{ID: "m", Kind: kind, Price: price}}}}})
			if (err == nil) != want {
				t.Errorf("%v of kind %q: %v", price, kind, err)
			}
			// A default does not say that all models of the provider are of its kind.
			c := load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Default: price, Models: []catalog.ListedModel{{ID: "m", Kind: kind}}}}})
			if o := c.Offer("box", "m"); o.Priced != want {
				t.Errorf("%v is the default, and priced is %t of kind %q", price, o.Priced, kind)
			}
		}
	}
	// One default may be there for all that a provider makes.
	all := catalog.ListPrice{Input: cent, Output: cent, PerImage: cent, PerSecond: cent, PerCharacter: cent, PerSearch: cent}
	for kind := range sold {
		c := load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Default: &all, Models: []catalog.ListedModel{{ID: "m", Kind: kind}}}}})
		if !c.Offer("box", "m").Priced {
			t.Errorf("a default of all units is no price of kind %q", kind)
		}
	}
	// The table sells a chat by the image, which no chat counts.
	if m := load(t, catalog.Terms{}).Lookup("lyria-3-clip-preview"); m == nil || m.Priced {
		t.Errorf("a chat that is sold by the image: %+v", m)
	}
}

// The table only has their prices of text; audio costs many times as much.
func TestAudioChatModelsAreUnpriced(t *testing.T) {
	t.Parallel()
	c := load(t, catalog.Terms{})
	for id, want := range map[string]bool{"gpt-audio": false, "gpt-4o-audio-preview": false, "gpt-4o-audio-preview-2024-10-01": false, "gpt-4o": true, "gemini-2.5-pro": true} {
		if m := c.Lookup(id); m == nil || m.Priced != want {
			t.Errorf("%s: %+v", id, m)
		}
	}
	priced := catalog.Supplier{Name: "openai", Models: []catalog.ListedModel{{ID: "gpt-audio", Price: &catalog.ListPrice{Input: big.NewRat(32, 1), Output: big.NewRat(64, 1)}}}}
	if o := load(t, catalog.Terms{Suppliers: []catalog.Supplier{priced}}).Offer("openai", "gpt-audio"); !o.Priced {
		t.Error("an operator cannot give it a price")
	}
}
