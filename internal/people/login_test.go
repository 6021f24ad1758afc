package people_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

func TestLoginStartsASessionWithANewToken(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		// An attacker plants a made-up token, and the token of a session.
		planted := w.login("ada@example.com")
		in, err := w.Login(t.Context(), " Ada@Example.com ", password, planted.Token, browser)
		if err != nil {
			t.Fatal(err)
		}
		if in.Token == planted.Token || in.Session.ID == planted.Session.ID || w.alive(planted.Token) {
			t.Error("the session that the browser came with goes on")
		}
		if !w.alive(in.Token) || w.alive("planted") || w.alive("") || w.alive(in.Session.ID) {
			t.Error("another token than the new one works, or that does not")
		}
		var stored string
		if err := w.db.QueryRow(t.Context(), "SELECT token_hash FROM sessions WHERE id = $1", in.Session.ID).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stored, in.Token) || w.alive(stored) {
			t.Error("what is stored opens the session")
		}
		if !strings.HasSuffix(w.actions(), "person.signed_in person.signed_in") {
			t.Errorf("the log is %s", w.actions())
		}
	})
}

func TestUnknownAddressTakesAsLongAsAKnownOne(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.write(func(tx *db.Tx) error { // has no password
			return accounts.CreateUser(t.Context(), tx, &accounts.User{Email: "new@example.com", WorkspaceID: w.acme.ID, Role: accounts.Viewer}, w.clock())
		})
		var said []string
		for _, try := range [][2]string{{"ada@example.com", "wrong"}, {"eve@example.com", "wrong"}, {"new@example.com", "wrong"},
			{"new@example.com", ""}, {"ada@example.com", strings.Repeat("x", 257)}, {"eve@example.com", strings.Repeat("x", 10_000)}} {
			before := w.Hashes()
			_, err := w.Login(t.Context(), try[0], try[1], "", browser)
			want(t, err, fault.Authentication)
			if n := w.Hashes() - before; n != 1 {
				t.Errorf("%s: %d hashes", try[0], n)
			}
			f, _ := fault.As(err)
			said = append(said, f.Message)
		}
		for _, s := range said {
			if s != said[0] {
				t.Errorf("the answers differ: %q, %q", s, said[0])
			}
		}
	})
}

func TestGuessingIsSlowedButNeverLockedPermanently(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		guess := func(email string) error {
			_, err := w.Login(t.Context(), email, "wrong password", "", people.Browser{IP: "192.0.2.1"})
			return err
		}
		for _, email := range []string{"ada@example.com", "eve@example.com"} { // unknown accounts are throttled like known ones
			for range 5 {
				want(t, guess(email), fault.Authentication)
			}
			last := time.Duration(0)
			for range 8 {
				err := guess(email)
				want(t, err, fault.RateLimitExceeded)
				f, _ := fault.As(err)
				if f.RetryAfter < last || f.RetryAfter > 15*time.Minute {
					t.Errorf("wait %s after %s", f.RetryAfter, last)
				}
				last = f.RetryAfter
				if email == "ada@example.com" {
					// Meanwhile the right password is rejected here, but works
					// from elsewhere.
					_, err = w.Login(t.Context(), email, password, "", people.Browser{IP: "192.0.2.1"})
					want(t, err, fault.RateLimitExceeded)
					w.login(email)
				}
				w.advance(f.RetryAfter)
				want(t, guess(email), fault.Authentication)
			}
			if last != 15*time.Minute {
				t.Errorf("the wait ends at %s", last)
			}
			w.advance(15 * time.Minute)
		}
		here := func() {
			t.Helper()
			if _, err := w.Login(t.Context(), "ada@example.com", password, "", people.Browser{IP: "192.0.2.1"}); err != nil {
				t.Error(err)
			}
		}
		here() // success resets the counter
		for range 4 {
			want(t, guess("ada@example.com"), fault.Authentication)
		}
		here()
		if n := strings.Count(w.actions(), "person.login_throttled"); n != 1 {
			t.Errorf("the log tells %d times of it", n)
		}
	})
}

func TestOldFailuresExpire(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		for range 12 {
			_, err := w.Login(t.Context(), "ada@example.com", "wrong password", "", browser)
			want(t, err, fault.Authentication)
			w.advance(4 * time.Minute) // four in any 15 minutes
		}
	})
}

func TestAddressThatTriesManyAccountsIsThrottled(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		spray := func(i int, ip string) error {
			_, err := w.Login(t.Context(), strings.Repeat("a", i+1)+"@example.com", "wrong password", "", people.Browser{IP: ip})
			return err
		}
		for i := range 20 {
			// Signing in to another account resets nothing.
			if _, err := w.Login(t.Context(), "ada@example.com", password, "", people.Browser{IP: "2001:db8::1"}); err != nil {
				t.Fatal(err)
			}
			want(t, spray(i, "2001:db8::"+string(rune('1'+i%9))), fault.Authentication)
		}
		want(t, spray(30, "2001:db8::abcd"), fault.RateLimitExceeded)
		want(t, spray(30, "2001:db8:0:1::1"), fault.Authentication) // another network
	})
}

// network returns one of an attacker's many networks.
func network(i int) people.Browser {
	return people.Browser{IP: fmt.Sprintf("2001:db8:%x::1", i)}
}

func TestAttackersDoNotLockOutTheOwner(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		guess := func(from people.Browser) error {
			_, err := w.Login(t.Context(), "ada@example.com", "wrong password", "", from)
			return err
		}
		// Attempts from one network don't block others.
		for range 100 {
			if err := guess(network(0)); fault.Is(err, fault.RateLimitExceeded) {
				w.advance(time.Second)
			}
			w.advance(10 * time.Second)
		}
		w.login("ada@example.com")
		// Attempts from many networks share a limit that recovers slowly.
		w.advance(time.Hour)
		for i := range 49 {
			want(t, guess(network(i/4)), fault.Authentication)
		}
		w.login("ada@example.com") // from a known network, which doesn't reset the limit
		want(t, guess(network(90)), fault.Authentication)
		want(t, guess(network(91)), fault.RateLimitExceeded)
		w.advance(30 * time.Second)
		w.login("ada@example.com")
		want(t, guess(network(92)), fault.Authentication)
		want(t, guess(network(93)), fault.RateLimitExceeded)
		w.advance(59 * time.Second)
		want(t, guess(network(93)), fault.RateLimitExceeded) // and the wait grows
		if n := strings.Count(w.actions(), "person.login_throttled"); n != 2 {
			t.Errorf("the log tells %d times of it", n)
		}
	})
}

func TestFailuresAreCountedAcrossNodes(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		nodes := []*people.People{w.People, people.New(w.db, w.ring, people.Options{Now: w.clock, Cost: cheap})}
		for i := range 5 {
			_, err := nodes[i%2].Login(t.Context(), "ada@example.com", "wrong password", "", browser)
			want(t, err, fault.Authentication)
		}
		for _, node := range nodes {
			_, err := node.Login(t.Context(), "ada@example.com", password, "", browser)
			want(t, err, fault.RateLimitExceeded)
		}
	})
}

func TestSignInDoesNotResetTheCounterOfAnAddress(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		spray := func(i int) error {
			_, err := w.Login(t.Context(), fmt.Sprintf("p%d@example.com", i), "wrong password", "", browser)
			return err
		}
		for i := range 20 {
			want(t, spray(i), fault.Authentication)
		}
		w.advance(30 * time.Second)
		w.login("ada@example.com")
		want(t, spray(20), fault.Authentication)
		want(t, spray(21), fault.RateLimitExceeded)
	})
}

// The fifth failure of an unknown account writes as many rows as that of a
// known one.
func TestFailuresOfUnknownAccountsCostAsMuch(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		rows := func() (n int64) {
			err := w.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM admin_actions) + (SELECT count(*) FROM login_failures)").Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		var wrote []int64
		for i, email := range []string{"ada@example.com", "eve@example.com"} {
			var before int64
			for range 5 {
				before = rows()
				_, err := w.Login(t.Context(), email, "wrong password", "", network(i))
				want(t, err, fault.Authentication)
			}
			wrote = append(wrote, rows()-before)
		}
		if wrote[0] != 1 || wrote[1] != 1 {
			t.Errorf("rows written at the fifth failure: %v", wrote)
		}
	})
}

func TestConcurrentGuessesAreCountedLikeSequentialOnes(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		before := w.Hashes()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if _, err := w.Login(t.Context(), "ada@example.com", "wrong password", "", people.Browser{}); err == nil {
					t.Error("a wrong password is right")
				}
			})
		}
		wg.Wait()
		if n := w.Hashes() - before; n != 5 {
			t.Errorf("%d guesses were compared", n)
		}
	})
}

func TestOverloadedLoginsAreRejectedWithoutCounting(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		release := w.FillHashQueue()
		for range 7 {
			_, err := w.Login(t.Context(), "ada@example.com", password, "", browser)
			want(t, err, fault.Overloaded)
		}
		release()
		w.login("ada@example.com")
	})
}

func TestPasswordsAreRehashedWhenTheCostChanges(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		id := w.member("ada@example.com", accounts.Owner)
		stored := func() (hash string) {
			if err := w.db.QueryRow(t.Context(), "SELECT password_hash FROM users WHERE id = $1", id).Scan(&hash); err != nil {
				t.Fatal(err)
			}
			return hash
		}
		if !strings.HasPrefix(stored(), "$argon2id$v=19$m=64,t=1,p=1$") {
			t.Errorf("stored: %s", stored())
		}
		w.login("ada@example.com")
		unchanged := stored()
		if w.login("ada@example.com"); stored() != unchanged {
			t.Error("hashed anew for nothing")
		}
		dearer := people.New(w.db, w.ring, people.Options{Now: w.clock, Cost: people.Cost{Memory: 128, Passes: 2, Lanes: 1}})
		if _, err := dearer.Login(t.Context(), "ada@example.com", password, "", browser); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(stored(), "$argon2id$v=19$m=128,t=2,p=1$") {
			t.Errorf("stored: %s", stored())
		}
		w.login("ada@example.com") // both nodes read the hashes of both
	})
}

func TestPersonWithoutWorkspaceCannotSignIn(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		bob := w.member("bob@example.com", accounts.Viewer)
		in := w.login("bob@example.com")
		w.write(func(tx *db.Tx) error {
			return w.RemoveMember(t.Context(), tx, in.Session.Caller(browser), w.acme.ID, bob)
		})
		_, err := w.Login(t.Context(), "bob@example.com", password, "", browser)
		want(t, err, fault.Authentication)
	})
}

func TestConfirmationExpiresAfterThirtyMinutes(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		w.advance(30 * time.Minute)
		if err := w.RequireConfirmed(in.Session); err != nil {
			t.Error(err)
		}
		w.advance(time.Second)
		if err := w.RequireConfirmed(in.Session); !errors.Is(err, people.ErrConfirmationRequired) {
			t.Errorf("after thirty minutes: %v", err)
		}
		_, err := w.Confirm(t.Context(), in.Session, people.Proof{Password: "wrong"}, browser)
		want(t, err, fault.Authentication)
		_, err = w.Confirm(t.Context(), in.Session, people.Proof{}, browser)
		want(t, err, fault.Authentication)
		_, err = w.Confirm(t.Context(), in.Session, people.Proof{Code: "123456"}, browser)
		want(t, err, fault.Authentication)
		token, err := w.Confirm(t.Context(), in.Session, people.Proof{Password: password}, browser)
		if err != nil {
			t.Fatal(err)
		}
		if w.alive(in.Token) || !w.alive(token) {
			t.Error("the token was not replaced")
		}
		if err := w.RequireConfirmed(in.Session); err != nil {
			t.Error(err)
		}
		for range 4 {
			_, err = w.Confirm(t.Context(), in.Session, people.Proof{Password: "wrong"}, browser)
			want(t, err, fault.Authentication)
		}
		_, _ = w.Confirm(t.Context(), in.Session, people.Proof{Password: "wrong"}, browser)
		_, err = w.Confirm(t.Context(), in.Session, people.Proof{Password: password}, browser)
		want(t, err, fault.RateLimitExceeded)
		if !strings.Contains(w.actions(), "person.login_throttled") {
			t.Error("the log does not tell of wrong proofs")
		}
	})
}
