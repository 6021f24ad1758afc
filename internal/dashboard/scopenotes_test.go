package dashboard

import (
	"testing"

	"turnpike/internal/access"
)

func TestEveryScopeIsExplained(t *testing.T) {
	t.Parallel()
	for _, s := range access.Scopes() {
		if scopeNotes[s] == "" {
			t.Errorf("scopeNotes doesn't explain %s", s)
		}
	}
}
