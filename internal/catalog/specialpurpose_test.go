package catalog_test

import (
	"testing"

	"turnpike/internal/catalog"
)

// TestCodeModelsAreSpecialPurpose alone: the router leaves them aside.
func TestCodeModelsAreSpecialPurpose(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(catalog.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	for id, special := range map[string]bool{
		"codestral-latest": true, "devstral-medium-latest": true, "gpt-5-codex": true, "grok-code-fast-1": true, "deepseek-coder": true, "codestral-embed": true,
		"mistral-large-latest": false, "gpt-5": false, "grok-4.3": false, "deepseek-chat": false, "mistral-embed": false,
	} {
		m := c.Lookup(id)
		if m == nil {
			t.Errorf("the table does not have %s", id)
			continue
		}
		if m.SpecialPurpose() != special {
			t.Errorf("%s: %t", id, m.SpecialPurpose())
		}
	}
}
