//go:build browser

package browser_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/pquerna/otp/totp"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

func start(t *testing.T) *harness.Server {
	t.Helper()
	return harness.Start(t, harness.Config(t, "sqlite"), harness.NewClock())
}

func TestSetupLinkCreatesOwner(t *testing.T) {
	t.Parallel()
	s := start(t)
	w, err := accounts.FindWorkspace(t.Context(), s.DB, accounts.DefaultWorkspace)
	if err != nil {
		t.Fatal(err)
	}
	var link *people.Link
	err = s.DB.Write(t.Context(), func(tx *db.Tx) (err error) {
		link, err = people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now}).NewSetupLink(t.Context(), tx, w.ID, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b := newTab(t, s)
	b.open(strings.TrimPrefix(link.URL(b.base), b.base))
	b.sees("Set up Turnpike")
	b.fill("Your name", "Olivia Owner")
	b.fill("Email address", "olivia@example.com")
	b.fill("Password", password)
	b.press("Create owner")
	b.sees("Home", "Test mode", "Olivia Owner")
	// The link works only once.
	b.allow(404)
	b.allow(401)
	b.allow(410)
	b.allow(400)
	b.allow(403)
	b.open(strings.TrimPrefix(link.URL(b.base), b.base))
	b.misses("Create owner")
}

func TestNextSignInAsksForAppCode(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := owner(t, s, s.Workspace(t, "acme"))
	b.open("/dashboard/account")
	b.press("Set up app")
	b.tap("Or enter the secret")
	secret := eval[string](b, `document.querySelector("#totp-secret").textContent.replaceAll(" ", "")`)
	code := func() string {
		t.Helper()
		out, err := totp.GenerateCode(secret, s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	b.fill("Code", code())
	b.press("Enable")
	b.sees("These are your recovery codes", "10 of 10 recovery codes are left")
	email := eval[string](b, `document.querySelector("input[name=email]").value`)
	b.clickOn(".menu.right summary")
	b.press("Sign out")
	b.sees("You are signed out")
	b.signIn(email)
	b.sees("Second factor")
	s.Clock.Turn(time.Minute) // a code works only once
	b.fill("Code", code())
	b.press("Sign in")
	b.sees("Home")
}

func TestPasskeySignsIn(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := owner(t, s, s.Workspace(t, "acme"))
	// A built-in authenticator that always approves.
	call(b, webauthn.Enable, webauthn.EnableParams{})
	call(b, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
		Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true}})
	b.open("/dashboard/account")
	b.fill("Name of the new passkey", "Olivia's laptop")
	b.press("Add a passkey")
	b.sees("Olivia's laptop")
	b.clickOn(".menu.right summary")
	b.press("Sign out")
	b.sees("You are signed out")
	b.press("Sign in with a passkey")
	b.sees("Home", "Olivia Owner")
	b.open("/dashboard/account")
	b.sees("by passkey")
}
