package access

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

func TestKeysAreFilteredByStatus(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		ring, err := keyring.New(make([]byte, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		keys := NewKeys(ring, func() time.Time { return now })
		w := &accounts.Workspace{Name: "acme"}
		by := Caller{Actor: audit.Operator}
		hour, week := now.Add(time.Hour), now.Add(7*24*time.Hour)
		// Create a key for each expiry, with and without a rotation grace
		// period, and each of them again as revoked.
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(t.Context(), tx, w, now); err != nil {
				return err
			}
			for _, ends := range []*time.Time{nil, &hour, &week} {
				for _, grace := range []time.Duration{0, time.Minute, 3 * time.Hour} {
					for _, revoked := range []bool{false, true} {
						k := &Key{Tenant: w.In(accounts.Test), Name: fmt.Sprint(ends != nil, grace, revoked), Scopes: []string{"*"}, ExpiresAt: ends, Project: "p"}
						if _, err := keys.Create(t.Context(), tx, by, k); err != nil {
							return err
						}
						if _, err := keys.Rotate(t.Context(), tx, by, k, Rotation{Grace: grace}); err != nil {
							return err
						}
						if revoked {
							if err := keys.Revoke(t.Context(), tx, by, k); err != nil {
								return err
							}
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		started := now
		for _, after := range []time.Duration{0, 2 * time.Hour, 8 * 24 * time.Hour} {
			now = started.Add(after)
			all, _, err := keys.List(t.Context(), d, visibility.Filter{Tenant: w.In(accounts.Test)}, db.Page{Limit: 100})
			if err != nil || len(all) != 18 {
				t.Fatalf("%d keys (%v)", len(all), err)
			}
			for _, state := range States {
				var want []string
				for _, k := range all {
					if k.Status(now) == state {
						want = append(want, k.ID)
					}
				}
				found, _, err := keys.Search(t.Context(), d, visibility.Filter{Tenant: w.In(accounts.Test)}, KeyFilter{State: state, Project: "p"}, db.Page{Limit: 100})
				if err != nil || !slices.Equal(idsOf(found), want) {
					t.Errorf("%s after %s: %v, not %v (%v)", state, after, idsOf(found), want, err)
				}
			}
			if found, _, err := keys.Search(t.Context(), d, visibility.Filter{Tenant: w.In(accounts.Test)}, KeyFilter{Project: "other"}, db.Page{Limit: 100}); err != nil || len(found) != 0 {
				t.Errorf("%d keys of another project (%v)", len(found), err)
			}
		}

		now = started
		ending, err := keys.EndingSoon(t.Context(), d, visibility.Filter{Tenant: w.In(accounts.Test)}, started.Add(2*time.Hour), 10)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, k := range ending {
			names = append(names, k.Name)
		}
		// The three keys whose old secret ends in a minute come first, then the
		// keys that end in an hour.
		want := []string{"false 1m0s false", "true 1m0s false", "true 1m0s false", "true 0s false", "true 3h0m0s false"}
		if fmt.Sprint(names) != fmt.Sprint(want) {
			t.Errorf("ending are %q, not %q", names, want)
		}
	})
}

func idsOf(list []*Key) []string {
	var out []string
	for _, k := range list {
		out = append(out, k.ID)
	}
	return out
}

func TestTokensOfAKeyAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		ring, err := keyring.New(make([]byte, keyring.Size))
		if err != nil {
			t.Fatal(err)
		}
		tokens := NewTokens(ring, func() time.Time { return f.now })
		parent := &Principal{Tenant: accounts.Tenant{WorkspaceID: f.key.WorkspaceID, Environment: accounts.Test}, KeyID: f.key.ID, Grant: grantOf(registry...)}
		var minted []string
		err = d.Write(t.Context(), func(tx *db.Tx) error {
			for range 5 {
				made := &Token{Scopes: []string{"models:read"}, Metadata: []byte(`{"user":"u"}`)}
				if _, err := tokens.Mint(t.Context(), tx, parent, made, time.Minute); err != nil {
					return err
				}
				minted = append([]string{made.ID}, minted...)
			}
			_, err := tokens.Revoke(t.Context(), tx, Caller{Actor: audit.Operator}, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: f.key.WorkspaceID, Environment: "test"}}, minted[0])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var got, states []string
		page := db.Page{Limit: 2}
		for {
			list, more, err := tokens.ListByKey(t.Context(), d, f.key.ID, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				got = append(got, x.ID)
				states = append(states, x.Status(f.now))
			}
			if !more {
				break
			}
			page.After = got[len(got)-1]
		}
		if !slices.Equal(got, minted) || states[0] != "revoked" || states[1] != "active" {
			t.Errorf("%v %v, not %v", got, states, minted)
		}
		if list, _, err := tokens.ListByKey(t.Context(), d, "key_other", db.Page{Limit: 2}); err != nil || len(list) != 0 {
			t.Errorf("%d tokens of another key (%v)", len(list), err)
		}
		list, _, _ := tokens.ListByKey(t.Context(), d, f.key.ID, db.Page{Limit: 5})
		if list[1].Status(f.now.Add(time.Minute)) != "expired" {
			t.Error("a token is past its end and not expired")
		}
	})
}
