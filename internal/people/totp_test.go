package people_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// half starts a sign-in that waits for the second factor.
func (w *fixture) half(email string) string {
	w.t.Helper()
	in, err := w.Login(w.t.Context(), email, password, "", browser)
	if err != nil {
		w.t.Fatal(err)
	}
	if in.Complete() || in.Token != "" || in.PendingToken == "" || w.alive(in.PendingToken) {
		w.t.Fatal("the password alone is enough")
	}
	return in.PendingToken
}

func TestAppCodeWorksOnce(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		other := w.login("ada@example.com")
		secret, _ := w.withApp(w.login("ada@example.com").Session)
		if w.alive(other.Token) {
			t.Error("a session that began with less goes on")
		}
		finish := func(half, code string) (*people.SignIn, error) {
			return w.FinishLogin(t.Context(), half, code, other.Token, browser)
		}
		_, err := finish(w.half("ada@example.com"), w.code(secret))
		want(t, err, fault.Authentication) // the code that enabled the app
		w.advance(30 * time.Second)
		half, code := w.half("ada@example.com"), w.code(secret)
		in, err := finish(half, code[:3]+" "+code[3:])
		if err != nil {
			t.Fatal(err)
		}
		if !w.alive(in.Token) || in.Session.Method != people.ByTOTP {
			t.Error("no session")
		}
		_, err = finish(half, code)
		want(t, err, fault.Authentication)
		for range 2 { // in the same step and in the next one, which would still accept it
			_, err = finish(w.half("ada@example.com"), code)
			want(t, err, fault.Authentication)
			w.advance(30 * time.Second)
		}
		if _, err = finish(w.half("ada@example.com"), w.code(secret)); err != nil {
			t.Error(err)
		}
	})
}

func TestConcurrentUseOfACodeSignsInOnce(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		secret, _ := w.withApp(w.login("ada@example.com").Session)
		w.advance(time.Minute)
		code := w.code(secret)
		halves := []string{w.half("ada@example.com"), w.half("ada@example.com"), w.half("ada@example.com"), w.half("ada@example.com")}
		var in atomic.Int64
		var wg sync.WaitGroup
		for _, half := range halves {
			wg.Go(func() {
				if _, err := w.FinishLogin(t.Context(), half, code, "", browser); err == nil {
					in.Add(1)
				}
			})
		}
		wg.Wait()
		if in.Load() != 1 {
			t.Errorf("%d sessions with one code", in.Load())
		}
	})
}

func TestClocksMayDifferByAStep(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		secret, _ := w.withApp(w.login("ada@example.com").Session)
		at := func(ahead time.Duration) string {
			w.advance(ahead)
			defer w.advance(-ahead)
			return w.code(secret)
		}
		w.advance(10 * time.Minute)
		for ahead, fits := range map[time.Duration]bool{-time.Minute: false, time.Minute: false} {
			_, err := w.FinishLogin(t.Context(), w.half("ada@example.com"), at(ahead), "", browser)
			if (err == nil) != fits {
				t.Errorf("%s ahead: %v", ahead, err)
			}
		}
		for _, ahead := range []time.Duration{-30 * time.Second, 30 * time.Second} {
			if _, err := w.FinishLogin(t.Context(), w.half("ada@example.com"), at(ahead), "", browser); err != nil {
				t.Errorf("%s ahead: %v", ahead, err)
			}
		}
	})
}

func TestGuessingCodesIsThrottled(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		secret, _ := w.withApp(w.login("ada@example.com").Session)
		w.advance(time.Minute)
		for range 5 { // with the right password each time, which resets the password's failures
			_, err := w.FinishLogin(t.Context(), w.half("ada@example.com"), "000000", "", browser)
			want(t, err, fault.Authentication)
		}
		half := w.half("ada@example.com")
		_, err := w.FinishLogin(t.Context(), half, w.code(secret), "", people.Browser{IP: "198.51.100.3"})
		want(t, err, fault.RateLimitExceeded)
		if !strings.Contains(w.actions(), "person.login_throttled") {
			t.Error("the log does not tell")
		}
		w.advance(30 * time.Second)
		if _, err := w.FinishLogin(t.Context(), half, w.code(secret), "", browser); err != nil {
			t.Error(err)
		}
	})
}

func TestPendingSignInExpires(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		id := w.member("ada@example.com", accounts.Owner)
		secret, _ := w.withApp(w.login("ada@example.com").Session)
		w.advance(time.Minute)
		late := w.half("ada@example.com")
		w.advance(10 * time.Minute)
		_, err := w.FinishLogin(t.Context(), late, w.code(secret), "", browser)
		want(t, err, fault.Authentication)
		_, err = w.FinishLogin(t.Context(), "nonsense", w.code(secret), "", browser)
		want(t, err, fault.Authentication)
		// A new password ends the pending sign-in.
		begun := w.half("ada@example.com")
		var link *people.Link
		w.write(func(tx *db.Tx) (err error) {
			link, err = w.NewPasswordLink(t.Context(), tx, id, people.ResetLimit)
			return err
		})
		if _, err := w.ResetPassword(t.Context(), link.Token, password, browser); err != nil {
			t.Fatal(err)
		}
		_, err = w.FinishLogin(t.Context(), begun, w.code(secret), "", browser)
		want(t, err, fault.Authentication)
		w.half("ada@example.com") // the second factor is still required
	})
}

func TestRecoveryCodesWorkOnceEach(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		id := w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		_, codes := w.withApp(in.Session)
		if len(codes) != 10 {
			t.Fatalf("%d codes", len(codes))
		}
		got, err := w.FinishLogin(t.Context(), w.half("ada@example.com"), " "+strings.ToUpper(codes[3]), "", browser)
		if err != nil || got.Session.Method != people.ByRecoveryCode {
			t.Fatal(got, err)
		}
		_, err = w.FinishLogin(t.Context(), w.half("ada@example.com"), codes[3], "", browser)
		want(t, err, fault.Authentication)
		if f, err := w.GetSecondFactor(t.Context(), w.db, id); err != nil || !f.Enabled || f.RecoveryCodesLeft != 9 {
			t.Errorf("%+v, %v", f, err)
		}
		w.write(func(tx *db.Tx) (err error) {
			_, err = w.RenewRecoveryCodes(t.Context(), tx, got.Session, browser)
			return err
		})
		_, err = w.FinishLogin(t.Context(), w.half("ada@example.com"), codes[4], "", browser)
		want(t, err, fault.Authentication) // replaced
	})
}

func TestAppIsChangedOnlyAfterConfirmation(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		secret, _ := w.withApp(in.Session)
		start := func(tx *db.Tx) error {
			_, err := w.StartTOTP(t.Context(), tx, in.Session, "Turnpike")
			return err
		}
		want(t, w.try(start), fault.InvalidState) // an enabled app can't be replaced
		w.advance(31 * time.Minute)
		disable := func(tx *db.Tx) error { return w.DisableTOTP(t.Context(), tx, in.Session, browser) }
		for _, change := range []func(tx *db.Tx) error{start, disable} {
			if err := w.try(change); !errors.Is(err, people.ErrConfirmationRequired) {
				t.Errorf("without confirmation: %v", err)
			}
		}
		if _, err := w.Confirm(t.Context(), in.Session, people.Proof{Code: w.code(secret)}, browser); err != nil {
			t.Fatal(err)
		}
		_, err := w.Confirm(t.Context(), in.Session, people.Proof{Code: w.code(secret)}, browser)
		want(t, err, fault.Authentication) // used
		w.write(disable)
		w.login("ada@example.com")
		if log := w.actions(); !strings.Contains(log, "totp.enabled") || !strings.Contains(log, "totp.disabled") {
			t.Errorf("the log is %s", log)
		}
	})
}

func TestPasswordAloneDoesNotConfirmWithAnApp(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in := w.login("ada@example.com")
		secret, recovery := w.withApp(in.Session)
		w.advance(31 * time.Minute)
		for range 6 { // it isn't a guess and doesn't count as one
			_, err := w.Confirm(t.Context(), in.Session, people.Proof{Password: password}, browser)
			want(t, err, fault.Authentication)
		}
		const better = "another fine password"
		if _, err := w.ChangePassword(t.Context(), in.Session, password, better, browser); err != nil {
			t.Fatal(err)
		}
		if err := w.RequireConfirmed(in.Session); !errors.Is(err, people.ErrConfirmationRequired) {
			t.Errorf("changing the password confirms: %v", err)
		}
		for _, code := range []string{w.code(secret), recovery[0]} {
			if _, err := w.Confirm(t.Context(), in.Session, people.Proof{Code: code}, browser); err != nil {
				t.Fatal(err)
			}
			if err := w.RequireConfirmed(in.Session); err != nil {
				t.Error(err)
			}
			w.advance(31 * time.Minute)
		}
		for range 5 {
			_, err := w.ChangePassword(t.Context(), in.Session, "wrong", password, browser)
			want(t, err, fault.Authentication)
		}
		if n := strings.Count(w.actions(), "person.login_throttled"); n != 1 {
			t.Errorf("the log tells %d times of wrong proofs", n)
		}
	})
}

func TestAppSecretIsEncrypted(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		id := w.member("ada@example.com", accounts.Owner)
		secret, codes := w.withApp(w.login("ada@example.com").Session)
		var stored, hash string
		err := w.db.QueryRow(t.Context(), `SELECT t.secret, (SELECT max(hash) FROM recovery_codes WHERE user_id = $1) FROM totp t WHERE t.user_id = $1`, id).Scan(&stored, &hash)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(stored, secret) || strings.Contains(strings.Join(codes, " "), hash) {
			t.Error("a secret is stored in the clear")
		}
	})
}

func TestEnrollmentIsShownUntilTheFirstCode(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		s := w.login("ada@example.com").Session
		_, err := w.PendingTOTP(t.Context(), w.db, s, "Turnpike")
		want(t, err, fault.InvalidState)
		var begun *people.Enrollment
		w.write(func(tx *db.Tx) (err error) {
			begun, err = w.StartTOTP(t.Context(), tx, s, "Turnpike")
			return err
		})
		if again, err := w.PendingTOTP(t.Context(), w.db, s, "Turnpike"); err != nil || *again != *begun {
			t.Errorf("%+v, %v; begun was %+v", again, err, begun)
		}
		w.advance(31 * time.Minute)
		_, err = w.PendingTOTP(t.Context(), w.db, s, "Turnpike")
		if !errors.Is(err, people.ErrConfirmationRequired) {
			t.Errorf("shown to who has not confirmed: %v", err)
		}
		s = w.login("ada@example.com").Session
		w.withApp(s)
		_, err = w.PendingTOTP(t.Context(), w.db, s, "Turnpike")
		want(t, err, fault.InvalidState)
	})
}
