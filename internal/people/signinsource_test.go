package people_test

import (
	"fmt"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// siege uses up all attempts at an account that unknown networks share.
func (w *fixture) siege(email string) {
	w.t.Helper()
	for i := range 50 {
		_, err := w.Login(w.t.Context(), email, "wrong password", "", network(1000+i/4))
		want(w.t, err, fault.Authentication)
	}
	_, err := w.Login(w.t.Context(), email, password, "", network(2000))
	want(w.t, err, fault.RateLimitExceeded)
}

// flood uses up the attempts of an address with unknown accounts.
func (w *fixture) flood(ip string) {
	w.t.Helper()
	for i := range 20 {
		_, err := w.Login(w.t.Context(), fmt.Sprintf("nobody%d@example.com", i), "wrong password", "", people.Browser{IP: ip})
		want(w.t, err, fault.Authentication)
	}
}

// comes signs in and returns the browser with its token.
func (w *fixture) comes(email string, from people.Browser) people.Browser {
	w.t.Helper()
	in, err := w.Login(w.t.Context(), email, password, "", from)
	if err != nil {
		w.t.Fatal(err)
	}
	from.Device = in.Device
	return from
}

func TestKnownDeviceIsNeverLockedOutByStrangers(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		laptop := w.comes("ada@example.com", browser)
		laptop.IP = "198.51.100.9" // from another network
		w.siege("ada@example.com")
		w.flood(laptop.IP)
		for range 6 { // the network's attempts are used up as well
			_, err := w.Login(t.Context(), "ada@example.com", "wrong password", "", people.Browser{IP: laptop.IP})
			want(t, err, fault.RateLimitExceeded)
		}
		if again := w.comes("ada@example.com", laptop); again.Device != laptop.Device {
			t.Error("the device's token changed")
		}
		// Other people get no more attempts.
		w.member("bob@example.com", accounts.Viewer)
		_, err := w.Login(t.Context(), "bob@example.com", password, "", laptop)
		want(t, err, fault.RateLimitExceeded)
		forged := laptop
		forged.Device += "x"
		_, err = w.Login(t.Context(), "ada@example.com", password, "", forged)
		want(t, err, fault.RateLimitExceeded)
	})
}

func TestKnownNetworkIsNotLockedOutByStrangersElsewhere(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		w.comes("ada@example.com", browser)
		w.siege("ada@example.com")
		w.comes("ada@example.com", browser) // without its token
		other := people.Browser{IP: "192.0.2.8"}
		_, err := w.Login(t.Context(), "ada@example.com", password, "", other)
		want(t, err, fault.RateLimitExceeded)
	})
}

func TestKnownDeviceAndNetworkCannotGuessWithoutLimit(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		laptop := w.comes("ada@example.com", browser)
		for name, from := range map[string]people.Browser{
			"device":  {IP: "198.51.100.9", Device: laptop.Device},
			"network": browser,
		} {
			for range 5 {
				_, err := w.Login(t.Context(), "ada@example.com", "wrong password", "", from)
				want(t, err, fault.Authentication)
			}
			from.UserAgent = "another"
			_, err := w.Login(t.Context(), "ada@example.com", password, "", from)
			if f, ok := fault.As(err); !ok || f.Code != fault.RateLimitExceeded || f.RetryAfter != 30*time.Second {
				t.Errorf("the sixth guess from a known %s: %v", name, err)
			}
		}
	})
}

func TestCodesOfAKnownDeviceStayLimitedAndIgnoreStrangers(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		in, err := w.Login(t.Context(), "ada@example.com", password, "", browser)
		if err != nil {
			t.Fatal(err)
		}
		laptop := browser
		laptop.Device = in.Device
		secret, _ := w.withApp(in.Session)
		w.advance(time.Minute)
		w.flood(laptop.IP)
		half := func() string {
			t.Helper()
			in, err := w.Login(t.Context(), "ada@example.com", password, "", laptop)
			if err != nil || in.Complete() {
				t.Fatalf("the password: %v", err)
			}
			return in.PendingToken
		}
		if _, err := w.FinishLogin(t.Context(), half(), w.code(secret), "", laptop); err != nil {
			t.Errorf("the right code from a known device behind a flooded address: %v", err)
		}
		for range 5 {
			_, err := w.FinishLogin(t.Context(), half(), "000000", "", laptop)
			want(t, err, fault.Authentication)
		}
		w.advance(29 * time.Second)
		_, err = w.FinishLogin(t.Context(), half(), w.code(secret), "", laptop)
		want(t, err, fault.RateLimitExceeded)
	})
}

func TestKnownSourcesAreFewAndExpire(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		w.member("ada@example.com", accounts.Owner)
		first := w.comes("ada@example.com", network(0))
		for i := range 25 {
			w.advance(time.Minute)
			w.comes("ada@example.com", network(i+1))
		}
		sources := func() (n int64) {
			if err := w.db.QueryRow(t.Context(), "SELECT count(*) FROM sign_in_sources").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := sources(); n != 40 {
			t.Errorf("%d sources are stored, want 20 devices and 20 networks", n)
		}
		w.siege("ada@example.com")
		_, err := w.Login(t.Context(), "ada@example.com", password, "", first)
		want(t, err, fault.RateLimitExceeded)
		last := network(25)
		w.comes("ada@example.com", last)

		w.advance(people.DeviceLifetime)
		w.siege("ada@example.com")
		_, err = w.Login(t.Context(), "ada@example.com", password, "", last)
		want(t, err, fault.RateLimitExceeded)
		w.write(func(tx *db.Tx) error {
			_, err := w.Purge(t.Context(), tx, 1000)
			return err
		})
		if n := sources(); n != 0 {
			t.Errorf("%d sources are left after they expired, want 0", n)
		}
	})
}
