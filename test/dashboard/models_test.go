package dashboard_test

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// TestModelsPageSearchesModelsAndCountsProviders: by name, kind and capability.
func TestModelsPageSearchesModelsAndCountsProviders(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Viewer)
		page := b.in(accounts.Test, "models")
		b.get(t, page+"?q=gpt-4o-mini").shows(t, "gpt-4o-mini", "playground?model=gpt-4o-mini")
		first := b.get(t, page).shows(t, "claude-", "per ")
		b.get(t, first.link(t, "More models")).is(t, 200).hides(t, first.find(t, `playground\?model=([^"]+)"`)+`"`)
		b.get(t, page+"?q=GPT-4o-mini+vision&kind=chat").shows(t, "gpt-4o-mini").hides(t, "claude-")
		b.get(t, page+"?q=no+such+model").shows(t, "No models match this search.")

		key, _ := s.Key(t, w, accounts.Test)
		chat(t, s, key, "")
		s.Eventually(t, func() bool {
			return strings.Contains(b.get(t, page).body, "healthy</span>")
		})
		b.get(t, page).shows(t, "provider%3Asimulator", "100%")
		b.get(t, b.in(accounts.Live, "models")).shows(t, "No provider is connected", "No models yet")
	})
}
