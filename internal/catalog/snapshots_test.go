package catalog_test

import (
	"testing"

	"turnpike/internal/catalog"
)

// TestOldModelsAreKnownByTheirSnapshots.
func TestOldModelsAreKnownByTheirSnapshots(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(catalog.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	for id, old := range map[string]bool{
		"o1": true, "o1-2024-12-17": true, "gpt-4o": true, "claude-3-haiku-20240307": true, "mistral-large-2402": true,
		"o3": false, "gpt-5.6": false, "claude-opus-4-5": false, "claude-opus-4-5-20251101": false, "mistral-large-2512": false,
		"tts-1": false, "grok-4-0709": false, // of a day without a year
	} {
		if m := c.Lookup(id); m == nil || m.Outdated != old {
			t.Errorf("%s: %+v", id, m)
		}
	}
}
