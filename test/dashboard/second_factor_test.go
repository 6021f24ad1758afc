package dashboard_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

// addPasskey registers a passkey in the browser's session.
func (b *browser) addPasskey(t testing.TB) *authenticator {
	t.Helper()
	device := newAuthenticator(t, b)
	challenge, token := b.begin(t, "/dashboard/account/passkeys/start")
	made := device.create(t, challenge, token)
	made.Set("passkey_name", "laptop")
	b.post(t, "/dashboard/account/passkeys", made).redirectsTo(t, "/dashboard/account#passkeys")
	return device
}

func TestAdminCanRequireSecondFactor(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, viewer := member(t, s, w, accounts.Admin), member(t, s, w, accounts.Viewer)
		settings, home := admin.in(accounts.Test, "settings"), viewer.in(accounts.Test, "")
		require := url.Values{"require_second_factor": {"yes"}}
		// The person who turns it on needs one first.
		admin.post(t, settings+"/second-factor", require).rejects(t, http.StatusBadRequest, "this would lock you out")
		viewer.post(t, settings+"/second-factor", require).rejects(t, http.StatusForbidden, "Only owners and admins")
		viewer.get(t, home).is(t, http.StatusOK)
		admin.setUpApp(t)
		admin.post(t, settings+"/second-factor", require).redirectsTo(t, settings)
		admin.get(t, settings).shows(t, "Second factor required.", "<dd>required</dd>")
		admin.get(t, admin.in(accounts.Live, "log")).shows(t, "workspace.updated", "require_second_factor")

		// A member without one sees nothing until they set one up.
		viewer.get(t, home).redirectsTo(t, "/dashboard/second-factor?next="+url.QueryEscape(home))
		viewer.get(t, "/dashboard/second-factor").shows(t, "Set up an authenticator app")
		viewer.get(t, "/dashboard/account").is(t, http.StatusOK)
		viewer.setUpApp(t)
		viewer.get(t, home).is(t, http.StatusOK)
		viewer.get(t, "/dashboard/second-factor?next="+url.QueryEscape(home)).redirectsTo(t, home)
		// Without the app, the workspace is closed again.
		viewer.post(t, "/dashboard/account/app/disable", nil).redirectsTo(t, "/dashboard/account")
		viewer.get(t, home).redirectsTo(t, "/dashboard/second-factor*")

		admin.post(t, settings+"/second-factor", url.Values{"require_second_factor": {"no"}}).redirectsTo(t, settings)
		viewer.get(t, home).is(t, http.StatusOK)
		if n := actions(t, s, w, "workspace.updated"); n != 2 {
			t.Errorf("the admin log has %d entries of the change, want 2", n)
		}
	})
}

func TestPasskeyCountsAsSecondFactorAndPasswordDoesNot(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, localhost(s), w, accounts.Owner)
		home := b.in(accounts.Test, "")
		device := b.addPasskey(t)
		s.RequireSecondFactor(t, w, true)
		b.get(t, home).is(t, http.StatusOK) // this session has just created the passkey

		// The password signs in, but doesn't open the workspace.
		b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login")
		b.signIn(t)
		b.get(t, home).redirectsTo(t, "/dashboard/second-factor*")
		b.get(t, "/dashboard/second-factor").shows(t, "Use a passkey").hides(t, "Set up an authenticator app")
		b.post(t, "/dashboard/confirm", url.Values{"password": {password}}).redirectsTo(t, "/dashboard/")
		b.get(t, home).redirectsTo(t, "/dashboard/second-factor*")
		challenge, token := b.begin(t, "/dashboard/confirm/passkey/start")
		b.post(t, "/dashboard/confirm/passkey?next="+url.QueryEscape(home), device.get(t, challenge, token)).redirectsTo(t, home)
		b.get(t, home).is(t, http.StatusOK)

		b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login")
		challenge, token = b.begin(t, "/dashboard/login/passkey/start")
		b.post(t, "/dashboard/login/passkey", device.get(t, challenge, token)).redirectsTo(t, "/dashboard/")
		b.get(t, home).is(t, http.StatusOK)
	})
}

func TestAuthenticatorAppSatisfiesRequiredSecondFactor(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		secret, recovery := b.setUpApp(t)
		s.RequireSecondFactor(t, w, true)
		for _, typed := range []func() string{func() string { return code(t, s, secret) }, func() string { return recovery[0] }} {
			s.Clock.Turn(time.Minute)
			b.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login")
			b.post(t, "/dashboard/login", credentials(b, password)).redirectsTo(t, "/dashboard/login/code?next=*")
			b.post(t, "/dashboard/login/code", url.Values{"code": {typed()}}).redirectsTo(t, "/dashboard/")
			b.get(t, b.in(accounts.Test, "")).is(t, http.StatusOK)
		}
		// The operator removes the factor: the session loses access.
		members := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error { return members.RemoveSecondFactor(t.Context(), tx, b.person.ID) })
		if err != nil {
			t.Fatal(err)
		}
		b.get(t, b.in(accounts.Test, "")).redirectsTo(t, "/dashboard/second-factor*")
	})
}
