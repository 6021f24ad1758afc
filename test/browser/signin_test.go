//go:build browser

package browser_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"

	"turnpike/internal/config"
	"turnpike/test/harness"
)

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// provider is an OpenID Connect provider that redirects across a second host and back,
// as large ones do.
func provider(t *testing.T, clock *harness.Clock, email string) *httptest.Server {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var nonce string
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": server.URL, "authorization_endpoint": server.URL + "/authorize", "token_endpoint": server.URL + "/token",
			"jwks_uri": server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1",
			"x": b64(point[1:33]), "y": b64(point[33:])}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(server.URL, "127.0.0.1", "localhost", 1)+"/elsewhere?"+r.URL.RawQuery, http.StatusSeeOther)
	})
	mux.HandleFunc("GET /elsewhere", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		nonce = r.FormValue("nonce")
		http.Redirect(w, r, r.FormValue("redirect_uri")+"?code=good&state="+url.QueryEscape(r.FormValue("state")), http.StatusSeeOther)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		now := clock.Now()
		claims, _ := json.Marshal(map[string]any{"iss": server.URL, "aud": "turnpike", "sub": "1", "email": email, "email_verified": true, // cannot fail
			"nonce": nonce, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()})
		text := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(claims)
		sum := sha256.Sum256([]byte(text))
		x, y, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer",
			"id_token": text + "." + b64(append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...))})
	})
	return server
}

func TestProviderSignInFollowsRedirectsAcrossHosts(t *testing.T) {
	t.Parallel()
	clock := harness.NewClock()
	cfg := harness.Config(t, "sqlite")
	cfg.OIDC = config.OIDC{Issuer: provider(t, clock, "olivia@example.com").URL, ClientID: "turnpike", Name: "Acme ID"}
	s := harness.Start(t, cfg, clock)
	addOwner(t, s, s.Workspace(t, "acme"))
	b := newTab(t, s)
	b.base = s.URL // the provider redirects there
	// People with a password link the provider first.
	b.signIn("olivia@example.com")
	b.open("/dashboard/account")
	b.press("Link your account at Acme ID")
	b.sees("Your account")
	b.misses("Link your account at Acme ID")
	b.clickOn(".menu.right summary")
	b.press("Sign out")
	b.open("/dashboard/login?next=/dashboard/account")
	b.press("Sign in with Acme ID")
	b.sees("Your account", "by sign-in provider")
}

func TestPasskeyConfirmsIdentity(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := owner(t, s, s.Workspace(t, "acme"))
	yes := true
	call(b, webauthn.Enable, webauthn.EnableParams{})
	call(b, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{Options: &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
		Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: yes, HasUserVerification: yes, IsUserVerified: yes, AutomaticPresenceSimulation: yes}})
	b.open("/dashboard/account")
	b.fill("Name of the new passkey", "the laptop")
	b.press("Add a passkey")
	b.sees("the laptop")
	s.Clock.Turn(31 * time.Minute)
	// Another passkey needs a confirmation. The script redirects there.
	b.fill("Name of the new passkey", "the phone")
	b.press("Add a passkey")
	b.sees("Confirm your identity")
	b.press("Use a passkey")
	b.sees("Your account")
	// The same device can't register twice.
	b.fill("Name of the new passkey", "the phone")
	b.tap("Add a passkey")
	b.sees("This device already has a passkey for your account.")
}

func TestPasswordCanBeShown(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := newTab(t, s)
	b.open("/dashboard/login")
	b.fill("Password", "a few words")
	shown := func() string {
		return b.value("input[name=password]", "type") + " " + b.read(`document.querySelector("[data-reveal]").getAttribute("aria-pressed")`)
	}
	if got := shown(); got != "password false" {
		t.Errorf("at first: got %s", got)
	}
	b.clickOn("[data-reveal]")
	if got := shown(); got != "text true" {
		t.Errorf("after a click: got %s", got)
	}
	if field, button := eval[[]float64](b, `(() => { const r = document.querySelector("input[name=password]").getBoundingClientRect(); return [r.top, r.bottom, r.right]; })()`),
		eval[[]float64](b, `(() => { const r = document.querySelector("[data-reveal]").getBoundingClientRect(); return [r.top, r.bottom, r.right]; })()`); button[0] < field[0]-1 || button[1] > field[1]+1 || button[2] > field[2]+1 {
		t.Errorf("the button at %v is outside of the field at %v", button, field)
	}
	b.clickOn("[data-reveal]")
	if got := shown(); got != "password false" {
		t.Errorf("after two clicks: got %s", got)
	}
}
