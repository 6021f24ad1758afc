package dashboard_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

type foundObject struct{ Kind, Name, Detail, URL string }

func (b *browser) find(t *testing.T, text string) (out []foundObject) {
	t.Helper()
	a := b.get(t, b.in(accounts.Live, "find?q="+url.QueryEscape(text))).is(t, 200)
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		t.Fatalf("%q: %v", a.body, err)
	}
	return out
}

// TestPaletteFindsObjectsByName: of this workspace and environment, and of what the role can read.
func TestPaletteFindsObjectsByName(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "other")
		owner := member(t, s, w, accounts.Owner)
		_, keyID := s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Live), Name: "Lantern shop", Scopes: []string{"*"}})
		s.KeyOf(t, &access.Key{Tenant: w.In(accounts.Test), Name: "Lantern test", Scopes: []string{"*"}})
		s.KeyOf(t, &access.Key{Tenant: other.In(accounts.Live), Name: "Lantern elsewhere", Scopes: []string{"*"}})
		owner.post(t, owner.in(accounts.Live, "projects"), url.Values{"id": {"lanterns"}, "name": {"Lamps"}})

		got := owner.find(t, "lANTERN")
		if len(got) != 2 || got[0].Name != "Lantern shop" || got[0].URL != owner.in(accounts.Live, "keys/"+keyID) || got[1].Name != "Lamps" || got[1].Detail != "lanterns" {
			t.Errorf("an owner finds %+v", got)
		}
		if got := owner.find(t, " "+keyID); len(got) == 0 || got[0].Name != keyID || got[0].URL != owner.in(accounts.Live, "keys/"+keyID) {
			t.Errorf("the ID of a key finds %+v", got)
		}
		stranger := member(t, s, other, accounts.Owner)
		if got := stranger.find(t, keyID); len(got) != 0 {
			t.Errorf("the ID of another workspace's key finds %+v", got)
		}
		if got := owner.find(t, "nothing like it"); len(got) != 0 {
			t.Errorf("there is %+v", got)
		}
	})
}
