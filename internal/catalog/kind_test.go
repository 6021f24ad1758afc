package catalog_test

import (
	"math/big"
	"testing"

	"turnpike/internal/catalog"
)

// TestAPriceOfMediaNeedsAKind: a model of which nobody knows what it makes
// would be charged by tokens, of which media have none.
func TestAPriceOfMediaNeedsAKind(t *testing.T) {
	t.Parallel()
	cent := big.NewRat(1, 100)
	for _, price := range []catalog.ListPrice{{PerImage: cent}, {PerSecond: cent}, {PerCharacter: cent}} {
		for kind, sold := range map[catalog.Kind]bool{"": false, catalog.Image: true} {
			_, err := catalog.Load(catalog.Terms{Suppliers: []catalog.Supplier{{Name: "box", Models: []catalog.Supply{{ID: "nobody-knows", Kind: kind, Price: &price}}}}})
			if (err == nil) != sold {
				t.Errorf("%+v of kind %q: %v", price, kind, err)
			}
		}
	}
}
