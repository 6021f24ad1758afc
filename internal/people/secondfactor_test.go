package people_test

import (
	"testing"

	"turnpike/internal/accounts"
)

func TestProviderProvesSecondFactorOnlyWithAMRClaim(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.withoutPassword("ada@example.com", accounts.Owner)
		for what, c := range map[string]struct {
			methods any
			proved  bool
		}{
			"nothing": {nil, false}, "a password": {[]string{"pwd"}, false}, "more than one factor": {[]string{"pwd", "mfa"}, true},
			"no list": {"mfa", false}, "no words": {[]int{1}, false},
		} {
			a := w.begin(i, o, "1", "ada@example.com")
			if c.methods != nil {
				i.claims["amr"] = c.methods
			}
			in, err := w.FinishOIDC(t.Context(), o, a, browser)
			if err != nil {
				t.Fatal(what, err)
			}
			stored, err := w.LookUpSession(t.Context(), w.db, in.Token)
			if err != nil {
				t.Fatal(what, err)
			}
			if got := stored.SecondFactorAt != nil; got != c.proved {
				t.Errorf("the provider says %s: second factor proved is %t, want %t", what, got, c.proved)
			}
		}
	})
}
