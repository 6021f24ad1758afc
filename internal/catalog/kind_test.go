package catalog_test

import (
	"math/big"
	"slices"
	"testing"

	"turnpike/internal/catalog"
)

// TestAPriceIsOneOfTheKind: a model whose price is not what its kind is sold by
// would be free. One of which nobody knows what it makes is charged by tokens,
// of which media have none.
func TestAPriceIsOneOfTheKind(t *testing.T) {
	t.Parallel()
	cent := big.NewRat(1, 100)
	tokens, picture, second, character := catalog.ListPrice{Input: cent, Output: cent}, catalog.ListPrice{PerImage: cent}, catalog.ListPrice{PerSecond: cent}, catalog.ListPrice{PerCharacter: cent}
	sold := map[catalog.Kind][]*catalog.ListPrice{
		"": {&tokens}, catalog.Chat: {&tokens}, catalog.Embedding: {&tokens}, catalog.Image: {&tokens, &picture},
		catalog.Video: {&second}, catalog.Speech: {&tokens, &second, &character},
	}
	for kind, right := range sold {
		for _, price := range []*catalog.ListPrice{&tokens, &picture, &second, &character} {
			want := slices.Contains(right, price)
			_, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Models: []catalog.Supply{{ID: "m", Kind: kind, Price: price}}}}})
			if (err == nil) != want {
				t.Errorf("%v of kind %q: %v", price, kind, err)
			}
			// A default does not say that all models of the provider are of its kind.
			c := load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Default: price, Models: []catalog.Supply{{ID: "m", Kind: kind}}}}})
			if o := c.Offer("box", "m"); o.Priced != want {
				t.Errorf("%v is the default, and priced is %t of kind %q", price, o.Priced, kind)
			}
		}
	}
	// One default may be there for all that a provider makes.
	all := catalog.ListPrice{Input: cent, Output: cent, PerImage: cent, PerSecond: cent, PerCharacter: cent}
	for kind := range sold {
		c := load(t, catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Default: &all, Models: []catalog.Supply{{ID: "m", Kind: kind}}}}})
		if !c.Offer("box", "m").Priced {
			t.Errorf("a default of all units is no price of kind %q", kind)
		}
	}
	// The table sells a chat by the picture, which no chat counts.
	if m := load(t, catalog.Terms{}).Lookup("lyria-3-clip-preview"); m == nil || m.Priced {
		t.Errorf("a chat that is sold by the picture: %+v", m)
	}
}
