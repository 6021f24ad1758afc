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
	"turnpike/internal/db/dbtest"
	"turnpike/internal/safehttp/safehttptest"
	"turnpike/test/harness"
)

func b64(raw []byte) string { return base64.RawURLEncoding.EncodeToString(raw) }

// issuer is a provider of OpenID Connect: whoever comes is who the test says.
type issuer struct {
	*httptest.Server
	key   *ecdsa.PrivateKey
	clock *harness.Clock

	mu        sync.Mutex
	email     string
	subject   string           // the id there; empty is the address
	asked     url.Values       // of the last sign-in
	authTime  func() time.Time // when the person proved who they are; nil when it is not said
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

// authorize lets everybody through, and back.
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

// eachWithIssuer runs fn against a server whose people can sign in at an issuer.
func eachWithIssuer(t *testing.T, fn func(t *testing.T, s *harness.Server, i *issuer)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			clock := harness.NewClock()
			i := newIssuer(t, clock)
			cfg := harness.Config(t, engine)
			cfg.OIDC = config.OIDC{Issuer: i.URL, ClientID: "turnpike", ClientSecret: "the-client-secret", Name: "Acme ID"}
			fn(t, harness.Start(t, cfg, clock), i)
		})
	}
}

// toProvider presses the button, goes to the provider, and returns the path by
// which it leads back.
func (b *browser) toProvider(t testing.TB, i *issuer, next, email string) string {
	t.Helper()
	return b.press(t, i, "/dashboard/login/oidc?next="+url.QueryEscape(next), email)
}

// press is toProvider for any button that leads there.
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

func TestSignInAtAProvider(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		b := newBrowser(t, s)
		b.workspace = s.Workspace(t, "acme")
		b.person = addMember(t, s, b.workspace, "ada@example.com", accounts.Owner)
		b.link(t, i)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, "/dashboard/login").shows(t, "Sign in with Acme ID")
		back := b.toProvider(t, i, "/dashboard/account", "ada@example.com")
		b.get(t, back).leadsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "by sign-in provider", "ada@example.com", i.URL)
		first := b.token(t)
		// The answer works once, and only in the browser that began.
		b.get(t, back).refuses(t, http.StatusUnauthorized, "took too long or was answered already")
		back = b.toProvider(t, i, "/dashboard/account", "ada@example.com")
		eve := newBrowser(t, s)
		eve.get(t, back).refuses(t, http.StatusUnauthorized, "took too long or was answered already")
		eve.signedIn(t, false)
		b.get(t, back).leadsTo(t, "/dashboard/account")
		if b.token(t) == first {
			t.Error("the token is the same")
		}
		// Strangers stay outside, the invited come in.
		eve.get(t, eve.toProvider(t, i, "", "eve@example.com")).refuses(t, http.StatusUnauthorized, "ask an owner to invite you")
		eve.signedIn(t, false)
		invite(t, s, b.workspace, "eve@example.com", accounts.Viewer)
		eve.get(t, eve.toProvider(t, i, "//evil.example", "eve@example.com")).leadsTo(t, "/dashboard/")
		eve.get(t, "/dashboard/account").shows(t, "viewer", "You have none yet")
		// Who has no password here confirms by signing in again, and may then set one.
		s.Clock.Turn(11 * time.Minute)
		eve.header.Set("Referer", s.URL+"/dashboard/account")
		to := eve.post(t, "/dashboard/account/password", url.Values{"password": {password}}).leadsTo(t, "/dashboard/confirm?next=%2Fdashboard%2Faccount")
		button := eve.get(t, to).shows(t, "Confirm at Acme ID").hides(t, `name="password"`).find(t, `action="(/dashboard/login/oidc\?confirm=[^"]+)"`)
		eve.get(t, eve.press(t, i, button, "eve@example.com")).leadsTo(t, "/dashboard/account")
		eve.post(t, "/dashboard/account/password", url.Values{"password": {password}}).leadsTo(t, "/dashboard/account")
		// An authenticator app is still asked for.
		b.signIn(t)
		b.setUpApp(t)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "/dashboard/account", "ada@example.com")).leadsTo(t, "/dashboard/login/code?next=%2Fdashboard%2Faccount")
	})
}

// link signs in with the password and links the account at the provider.
func (b *browser) link(t testing.TB, i *issuer) {
	t.Helper()
	b.signIn(t)
	page := b.get(t, "/dashboard/account").shows(t, "Link your account at Acme ID").hides(t, i.URL)
	before := b.token(t)
	b.get(t, b.press(t, i, page.find(t, `action="(/dashboard/login/oidc\?next=[^"]+)"`), b.person.Email)).leadsTo(t, "/dashboard/account")
	b.get(t, "/dashboard/account").shows(t, "Your account at Acme ID is linked", i.URL, "by password").hides(t, "Link your account at")
	if b.token(t) == before {
		t.Error("the token is the same")
	}
}

func TestProviderAccountIsLinkedByWhoIsSignedIn(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		b := newBrowser(t, s)
		b.person = addMember(t, s, w, "ada@example.com", accounts.Owner)
		const first = "sign in with your password or passkey, then link it under Your account"
		b.get(t, b.toProvider(t, i, "", "ada@example.com")).refuses(t, http.StatusUnauthorized, first)
		b.signedIn(t, false)
		eve := member(t, s, w, accounts.Owner)
		eve.get(t, eve.press(t, i, "/dashboard/login/oidc?sign_in=1&next=/dashboard/account", "ada@example.com")).refuses(t, http.StatusUnauthorized, first)
		eve.get(t, "/dashboard/account").shows(t, eve.person.Email, "Link your account at Acme ID")
		b.link(t, i)
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "/dashboard/account", "ada@example.com")).leadsTo(t, "/dashboard/account")
		b.get(t, "/dashboard/account").shows(t, "by sign-in provider").hides(t, "Link your account at")
	})
}

func TestLinkingMakesNobodyAnother(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
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
			dev.get(t, dev.press(t, i, link, email)).refuses(t, http.StatusUnauthorized, why).showsToo(t, "Your account", dev.person.Email, "sign out there, or here, first")
			dev.get(t, "/dashboard/account").shows(t, dev.person.Email, "Link your account at Acme ID", "by password").hides(t, i.URL)
			if dev.token(t) != before {
				t.Error("the session has another token")
			}
		}
		refused("vi@example.com", "vi", "belongs to somebody else")
		refused(dev.person.Email, "vi", "belongs to somebody else") // the id counts before the address
		refused("vi@example.com", "another", "belongs to vi@example.com, and you are signed in as "+dev.person.Email)
		refused("nobody@example.com", "nobody", "belongs to nobody@example.com")
		// Nobody's invitation is accepted by it.
		invitation := invite(t, s, w, "carol@example.com", accounts.Viewer)
		refused("carol@example.com", "carol", "belongs to carol@example.com")
		newBrowser(t, s).get(t, invitation).shows(t, "carol@example.com", "Join acme")
		// Somebody else in the browser when the answer comes is not linked either.
		i.subject = "dev"
		back := dev.press(t, i, link, dev.person.Email)
		mine := dev.token(t)
		dev.plant(t, vi.token(t))
		dev.get(t, back).refuses(t, http.StatusUnauthorized, "took too long or was answered already")
		dev.plant(t, mine)
		// Nor does it sign in whoever has signed out meanwhile.
		back = dev.press(t, i, link, dev.person.Email)
		dev.plant(t, "")
		dev.get(t, back).refuses(t, http.StatusUnauthorized, "took too long or was answered already")
		dev.signedIn(t, false)
		dev.plant(t, mine)

		dev.link(t, i)
		vi.get(t, "/dashboard/account").shows(t, "vi@example.com")
		// Linked already: the id counts, whatever the address is there by now.
		dev.get(t, dev.press(t, i, link, "dev@elsewhere.example")).leadsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, dev.person.Email, "by password").hides(t, "is linked. You can")
	})
}

// TestSignInPageThatWasLeftOpen is the sign-in's form in a browser that has come
// to a session meanwhile: who presses it wants to be somebody else.
func TestSignInPageThatWasLeftOpen(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		vi := newBrowser(t, s)
		vi.person = addMember(t, s, w, "vi@example.com", accounts.Owner)
		vi.link(t, i)
		dev := newBrowser(t, s)
		dev.person = addMember(t, s, w, "dev@example.com", accounts.Developer)
		button := dev.get(t, "/dashboard/login?next=/dashboard/account").find(t, `action="(/dashboard/login/oidc\?[^"]+)"`)
		dev.signIn(t)
		dev.get(t, dev.press(t, i, button, "vi@example.com")).leadsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, "vi@example.com", "by sign-in provider").hides(t, "dev@example.com")
		// The invited come in this way too, and are not told that they have linked something.
		invite(t, s, w, "carol@example.com", accounts.Viewer)
		dev.signIn(t)
		dev.get(t, dev.press(t, i, button, "carol@example.com")).leadsTo(t, "/dashboard/account")
		dev.get(t, "/dashboard/account").shows(t, "carol@example.com").hides(t, "is linked")
	})
}

func TestProviderConfirms(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
		w := s.Workspace(t, "acme")
		b := newBrowser(t, s)
		b.workspace, b.person = w, addMember(t, s, w, "ada@example.com", accounts.Owner)
		b.link(t, i)
		// Whoever was signed in there all day has proved nothing here.
		i.authTime = func() time.Time { return s.Clock.Now().Add(-time.Hour) }
		b.post(t, "/dashboard/logout", nil)
		b.get(t, b.toProvider(t, i, "", "ada@example.com")).leadsTo(t, "/dashboard/")
		page := b.in(accounts.Test, "keys/new")
		to := b.get(t, page).leadsTo(t, "/dashboard/confirm?next=*")
		button := b.get(t, to).shows(t, "Confirm at Acme ID", `name="password"`).find(t, `action="(/dashboard/login/oidc\?confirm=[^"]+)"`)
		b.get(t, b.press(t, i, button, "ada@example.com")).refuses(t, http.StatusUnauthorized, "the provider did not ask who you are").showsToo(t, "Confirm at Acme ID")
		b.get(t, page).leadsTo(t, "/dashboard/confirm?next=*")
		if i.asked.Get("prompt") != "login" || i.asked.Get("max_age") != "0" {
			t.Errorf("the provider was asked %v", i.asked)
		}
		i.authTime = s.Clock.Now
		before := b.token(t)
		b.get(t, b.press(t, i, button, "eve@example.com")).refuses(t, http.StatusUnauthorized, "another account at the provider")
		b.get(t, b.press(t, i, button, "ada@example.com")).leadsTo(t, page)
		if b.token(t) == before {
			t.Error("the token is the same")
		}
		b.get(t, page).is(t, http.StatusOK)
		newBrowser(t, s).post(t, "/dashboard/login/oidc?confirm=1", nil).refuses(t, http.StatusUnauthorized, "sign in first")
		// With an app only a code counts.
		b.setUpApp(t)
		s.Clock.Turn(11 * time.Minute)
		b.get(t, to).shows(t, `name="code"`).hides(t, `name="password"`, "Confirm at Acme ID")
		b.get(t, b.press(t, i, button, "ada@example.com")).refuses(t, http.StatusUnauthorized, "type a code of your authenticator app")
	})
}

func TestProviderAnswersThatAreRefused(t *testing.T) {
	t.Parallel()
	eachWithIssuer(t, func(t *testing.T, s *harness.Server, i *issuer) {
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
			b.get(t, u.RequestURI()).is(t, http.StatusUnauthorized) // the right answer after a wrong one
		}
		b.host = "localhost:1" // the provider would lead back to another host
		b.post(t, "/dashboard/login/oidc", nil).refuses(t, http.StatusConflict, "works at "+s.URL+" only")
		b.host = ""
		i.Close()
	})
}

func TestWithoutAProvider(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := newBrowser(t, s)
		b.get(t, "/dashboard/login").shows(t, "Sign in").hides(t, "/dashboard/login/oidc")
		b.post(t, "/dashboard/login/oidc", nil).is(t, http.StatusNotFound)
		b.get(t, "/dashboard/login/oidc/callback?code=x&state=y").is(t, http.StatusNotFound)
	})
}
