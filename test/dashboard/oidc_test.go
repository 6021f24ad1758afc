package dashboard_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/test/fakes/safehttptest"
	"turnpike/test/harness"
)

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// issuer is an OpenID Connect provider that signs in the person the test chooses.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	clock *harness.Clock

	mu        sync.Mutex
	email     string
	subject   string           // the ID there; default: the email address
	asked     url.Values       // of the last sign-in
	authTime  func() time.Time // time of the last authentication; nil: not reported
	nonce     string
	challenge string
}

func newIssuer(t *testing.T, clock *harness.Clock) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, clock: clock}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1",
			"x": b64(point[1:33]), "y": b64(point[33:])}}})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// authorize signs everyone in and redirects back.
func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	i.asked = q
	i.nonce, i.challenge = q.Get("nonce"), q.Get("code_challenge")
	http.Redirect(w, r, q.Get("redirect_uri")+"?code=good&state="+url.QueryEscape(q.Get("state")), http.StatusSeeOther)
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("code") == "switch" {
		safehttptest.Switching(w, r)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	verifier := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	id, secret, _ := r.BasicAuth()
	if r.FormValue("code") != "good" || b64(verifier[:]) != i.challenge || id != "turnpike" || secret != "the-client-secret" {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	now := i.clock.Now()
	said := map[string]any{"iss": i.URL, "aud": "turnpike", "sub": cmp.Or(i.subject, i.email), "email": i.email, "email_verified": true, "name": "Ada",
		"nonce": i.nonce, "iat": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	if i.authTime != nil {
		said["auth_time"] = i.authTime().Unix()
	}
	claims, _ := json.Marshal(said)
	text := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	x, y, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer",
		"id_token": text + "." + b64(append(x.FillBytes(make([]byte, 32)), y.FillBytes(make([]byte, 32))...))})
}

// withIssuer runs fn with a server that uses an issuer.
func withIssuer(t *testing.T, fn func(t *testing.T, s *harness.Server, i *issuer)) {
	t.Helper()
	clock := harness.NewClock()
	i := newIssuer(t, clock)
	cfg := harness.Config(t, "sqlite")
	cfg.OIDC = config.OIDC{Issuer: i.URL, ClientID: "turnpike", ClientSecret: "the-client-secret", Name: "Acme ID"}
	fn(t, harness.Start(t, cfg, clock), i)
}

// toProvider clicks the button, goes to the provider and returns the path that it
// redirects to.
func (b *browser) toProvider(t testing.TB, i *issuer, next, email string) string {
	t.Helper()
	return b.press(t, i, "/dashboard/login/oidc?next="+url.QueryEscape(next), email)
}

// press is toProvider for any button.
func (b *browser) press(t testing.TB, i *issuer, button, email string) string {
	t.Helper()
	i.mu.Lock()
	i.email = email
	i.mu.Unlock()
	a := b.post(t, html.UnescapeString(button), nil).shows(t, "Go to Acme ID")
	address := html.UnescapeString(a.find(t, `href="(http[^"]+/authorize[^"]*)"`))
	if refresh := a.header.Get("Refresh"); refresh != "0; url="+address {
		t.Errorf("the page goes on to %q, and its link to %q", refresh, address)
	}
	if strings.Contains(a.body, "the-client-secret") || !strings.Contains(a.header.Get("Content-Security-Policy"), "form-action 'self';") {
		t.Error("the page gives away the secret, or its policy is weaker than others'")
	}
	resp, err := b.client.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	back := resp.Header.Get("Location")
	if !strings.HasPrefix(back, b.s.URL+"/dashboard/login/oidc/callback?") {
		t.Fatalf("the provider leads back to %s", back)
	}
	return strings.TrimPrefix(back, b.s.URL)
}

func TestProviderSignsInMembersAndInvitedPeople(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		b := newBrowser(t, s)
		b.workspace = s.Workspace(t, "acme")
		b.person = addMember(t, s, b.workspace, "ada@example.com", accounts.Owner)
		b.link(t, i)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, "/dashboard/login").shows(t, "Sign in with Acme ID")
		back := b.toProvider(t, i, "/dashboard/account", "ada@example.com")
		b.get(t, back).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "by sign-in provider", "ada@example.com", i.URL)
		first := b.token(t)
		// The callback works once, and only in the browser that started.
		b.get(t, back).rejects(t, http.StatusUnauthorized, "took too long or was already completed")
		back = b.toProvider(t, i, "/dashboard/account", "ada@example.com")
		eve := newBrowser(t, s)
		eve.get(t, back).rejects(t, http.StatusUnauthorized, "took too long or was already completed")
		eve.signedIn(t, false)
		b.get(t, back).redirectsTo(t, "/dashboard/account")
		if b.token(t) == first {
			t.Error("the token is the same")
		}
		// Unknown people are rejected, invited people are accepted.
		eve.get(t, eve.toProvider(t, i, "", "eve@example.com")).rejects(t, http.StatusUnauthorized, "ask an owner to invite you")
		eve.signedIn(t, false)
		invite(t, s, b.workspace, "eve@example.com", accounts.Viewer)
		eve.get(t, eve.toProvider(t, i, "//evil.example", "eve@example.com")).redirectsTo(t, "/dashboard/")
		eve.get(t, "/dashboard/account").shows(t, "viewer", "You have no password yet")
		// People without a password confirm by signing in again, and can then set one.
		s.Clock.Turn(31 * time.Minute)
		eve.header.Set("Referer", s.URL+"/dashboard/account")
		to := eve.post(t, "/dashboard/account/password", url.Values{"password": {password}}).redirectsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount*")
		button := eve.get(t, to).shows(t, "Confirm at Acme ID").hides(t, `name="password"`).find(t, `action="(/dashboard/login/oidc\?confirm=[^"]+)"`)
		eve.get(t, eve.press(t, i, button, "eve@example.com")).redirectsTo(t, "/dashboard/account")
		eve.post(t, "/dashboard/account/password", url.Values{"password": {password}}).redirectsTo(t, "/dashboard/account")
		// An authenticator app is still required.
		b.signIn(t)
		b.setUpApp(t)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "/dashboard/account", "ada@example.com")).redirectsTo(t, "/dashboard/login/code?next=%2Fdashboard%2Faccount")
	})
}

// link signs in with the password and links the account at the provider.
func (b *browser) link(t testing.TB, i *issuer) {
	t.Helper()
	b.signIn(t)
	page := b.get(t, "/dashboard/account").shows(t, "Link your account at Acme ID").hides(t, i.URL)
	before := b.token(t)
	b.get(t, b.press(t, i, page.find(t, `action="(/dashboard/login/oidc\?next=[^"]+)"`), b.person.Email)).redirectsTo(t, "/dashboard/account")
	b.get(t, "/dashboard/account").shows(t, "Your account at Acme ID is linked", i.URL, "by password").hides(t, "Link your account at")
	if b.token(t) == before {
		t.Error("the token is the same")
	}
}

func TestProviderAccountIsLinkedBySignedInPerson(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		b := newBrowser(t, s)
		b.person = addMember(t, s, w, "ada@example.com", accounts.Owner)
		const first = "sign in with your password or passkey, then link it under Your account"
		b.get(t, b.toProvider(t, i, "", "ada@example.com")).rejects(t, http.StatusUnauthorized, first)
		b.signedIn(t, false)
		eve := member(t, s, w, accounts.Owner)
		eve.get(t, eve.press(t, i, "/dashboard/login/oidc?sign_in=1&next=/dashboard/account", "ada@example.com")).rejects(t, http.StatusUnauthorized, first)
		eve.get(t, "/dashboard/account").shows(t, eve.person.Email, "Link your account at Acme ID")
		b.link(t, i)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "/dashboard/account", "ada@example.com")).redirectsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "by sign-in provider").hides(t, "Link your account at")
	})
}

func TestLinkingNeverSwitchesPerson(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		vi, dev := newBrowser(t, s), member(t, s, w, accounts.Developer)
		vi.person = addMember(t, s, w, "vi@example.com", accounts.Owner)
		i.subject = "vi"
		vi.link(t, i)
		link := dev.get(t, "/dashboard/account").find(t, `action="(/dashboard/login/oidc\?[^"]+)"`)
		before := dev.token(t)
		refused := func(email, subject, why string) {
			t.Helper()
			i.subject = subject
			dev.get(t, dev.press(t, i, link, email)).rejects(t, http.StatusUnauthorized, why).contains(t, "Your account", dev.person.Email, "Sign out there or here first")
			dev.get(t, "/dashboard/account").shows(t, dev.person.Email, "Link your account at Acme ID", "by password").hides(t, i.URL)
			if dev.token(t) != before {
				t.Error("the session has another token")
			}
		}
		refused("vi@example.com", "vi", "belongs to someone else")
		refused(dev.person.Email, "vi", "belongs to someone else") // the ID takes precedence over the email address
		refused("vi@example.com", "another", "belongs to vi@example.com, and you are signed in as "+dev.person.Email)
		refused("nobody@example.com", "nobody", "belongs to nobody@example.com")
		// It accepts no invitation of another person.
		invitation := invite(t, s, w, "carol@example.com", accounts.Viewer)
		refused("carol@example.com", "carol", "belongs to carol@example.com")
		newBrowser(t, s).get(t, invitation).shows(t, "carol@example.com", "Join acme")
		// Another person who has signed in meanwhile isn't linked.
		i.subject = "dev"
		back := dev.press(t, i, link, dev.person.Email)
		mine := dev.token(t)
		dev.setSessionCookie(t, vi.token(t))
		dev.get(t, back).rejects(t, http.StatusUnauthorized, "took too long or was already completed")
		dev.setSessionCookie(t, mine)
		// A person who has signed out meanwhile isn't signed in.
		back = dev.press(t, i, link, dev.person.Email)
		dev.setSessionCookie(t, "")
		dev.get(t, back).rejects(t, http.StatusUnauthorized, "took too long or was already completed")
		dev.signedIn(t, false)
		dev.setSessionCookie(t, mine)

		dev.link(t, i)
		vi.get(t, "/dashboard/account").shows(t, "vi@example.com")
		// Already linked: the subject counts, not the email address.
		dev.get(t, dev.press(t, i, link, "dev@elsewhere.example")).redirectsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, dev.person.Email, "by password").hides(t, "is linked. You can")
	})
}

// TestStaleSignInPageSignsInInsteadOfLinking: the sign-in form of a browser that has a session
// by now signs in as another person.
func TestStaleSignInPageSignsInInsteadOfLinking(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		vi := newBrowser(t, s)
		vi.person = addMember(t, s, w, "vi@example.com", accounts.Owner)
		vi.link(t, i)
		dev := newBrowser(t, s)
		dev.person = addMember(t, s, w, "dev@example.com", accounts.Developer)
		button := dev.get(t, "/dashboard/login?next=/dashboard/account").find(t, `action="(/dashboard/login/oidc\?[^"]+)"`)
		dev.signIn(t)
		dev.get(t, dev.press(t, i, button, "vi@example.com")).redirectsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, "vi@example.com", "by sign-in provider").hides(t, "dev@example.com")
		// Invited people can sign in this way, too.
		invite(t, s, w, "carol@example.com", accounts.Viewer)
		dev.signIn(t)
		dev.get(t, dev.press(t, i, button, "carol@example.com")).redirectsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, "carol@example.com").hides(t, "is linked")
	})
}

func TestProviderConfirmsIdentity(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		b := newBrowser(t, s)
		b.workspace, b.person = w, addMember(t, s, w, "ada@example.com", accounts.Owner)
		b.link(t, i)
		// An old sign-in at the provider proves nothing.
		i.authTime = func() time.Time { return s.Clock.Now().Add(-time.Hour) }
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "", "ada@example.com")).redirectsTo(t, "/dashboard/")
		page := b.in(accounts.Test, "keys/new")
		to := b.post(t, page, newKey("backend")).redirectsTo(t, "/dashboard/confirm?next=*")
		button := b.get(t, to).shows(t, "Confirm at Acme ID", `name="password"`).find(t, `action="(/dashboard/login/oidc\?confirm=[^"]+)"`)
		b.get(t, b.press(t, i, button, "ada@example.com")).rejects(t, http.StatusUnauthorized, "The provider did not ask you to sign in again").contains(t, "Confirm at Acme ID")
		b.get(t, b.in(accounts.Test, "keys")).hides(t, "backend")
		if i.asked.Get("prompt") != "login" || i.asked.Get("max_age") != "0" {
			t.Errorf("the provider was asked %v", i.asked)
		}
		i.authTime = s.Clock.Now
		before := b.token(t)
		b.get(t, b.press(t, i, button, "eve@example.com")).rejects(t, http.StatusUnauthorized, "not the account at the provider that is linked")
		b.get(t, b.press(t, i, strings.ReplaceAll(button, "&amp;", "&"), "ada@example.com")).redirectsTo(t, b.in(accounts.Test, "keys/key_*"))
		if b.token(t) == before {
			t.Error("the token is the same")
		}
		b.get(t, page).is(t, http.StatusOK)
		newBrowser(t, s).post(t, "/dashboard/login/oidc?confirm=1", nil).rejects(t, http.StatusUnauthorized, "Sign in first")
		// With an app only a code confirms.
		b.setUpApp(t)
		s.Clock.Turn(31 * time.Minute)
		b.get(t, to).shows(t, `name="code"`).hides(t, `name="password"`, "Confirm at Acme ID")
		b.get(t, b.press(t, i, button, "ada@example.com")).rejects(t, http.StatusUnauthorized, "Enter a code of your authenticator app")
	})
}

func TestInvalidProviderResponsesAreRejected(t *testing.T) {
	t.Parallel()
	withIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		b := newBrowser(t, s)
		b.person = addMember(t, s, s.Workspace(t, "acme"), "ada@example.com", accounts.Owner)
		b.link(t, i)
		b.post(t, "/dashboard/logout", nil)
		for what, change := range map[string]func(q url.Values){
			"another state": func(q url.Values) { q.Set("state", "x") },
			"no state":      func(q url.Values) { q.Del("state") },
			"another code":  func(q url.Values) { q.Set("code", "bad") },
			"no HTTP":       func(q url.Values) { q.Set("code", "switch") },
			"cancelled": func(q url.Values) {
				q.Del("code")
				q.Set("error", "access_denied")
				q.Set("error_description", "<i>evil words")
			},
		} {
			u, err := url.Parse(b.toProvider(t, i, "", "ada@example.com"))
			if err != nil {
				t.Fatal(err)
			}
			q := u.Query()
			change(q)
			a := b.get(t, u.Path+"?"+q.Encode())
			if a.status != http.StatusUnauthorized || !strings.Contains(a.body, `role="alert"`) || strings.Contains(a.body, "evil words") {
				t.Errorf("%s: %d\n%s", what, a.status, a.main())
			}
			b.signedIn(t, false)
			b.get(t, u.RequestURI()).is(t, http.StatusUnauthorized) // the correct code after a wrong one
		}
		b.host = "localhost:1" // the provider would redirect to another host
		b.post(t, "/dashboard/login/oidc", nil).rejects(t, http.StatusConflict, "only works at "+s.URL)
		b.host = ""
		i.Close()
	})
}

func TestProviderRoutesAreNotFoundWithoutProvider(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.get(t, "/dashboard/login").shows(t, "Sign in").hides(t, "/dashboard/login/oidc")
		b.post(t, "/dashboard/login/oidc", nil).is(t, http.StatusNotFound)
		b.get(t, "/dashboard/login/oidc/callback?code=x&state=y").is(t, http.StatusNotFound)
	})
}
