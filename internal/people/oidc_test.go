package people_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// issuer is an OpenID Connect provider with claims set by the test.
type issuer struct {
	*httptest.Server
	t         *testing.T
	key       *ecdsa.PrivateKey
	claims    map[string]any // of the next token
	userInfo  map[string]any
	challenge string // of the sign-in that it has seen last
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{t: t, key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"jwks_uri": i.URL + "/keys", "userinfo_endpoint": i.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(rw http.ResponseWriter, _ *http.Request) {
		point, err := key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
		}
		_ = json.NewEncoder(rw).Encode(map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1",
			"x": b64(point[1:33]), "y": b64(point[33:])}}})
	})
	mux.HandleFunc("POST /token", i.token)
	mux.HandleFunc("GET /userinfo", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer a" {
			http.Error(rw, "no token", http.StatusUnauthorized)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(i.userInfo)
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(rw http.ResponseWriter, r *http.Request) {
	verifier := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if r.FormValue("code") != "good" || b64(verifier[:]) != i.challenge {
		http.Error(rw, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.sign()})
}

func (i *issuer) sign() string {
	payload, err := json.Marshal(i.claims)
	if err != nil {
		i.t.Error(err)
	}
	text := b64([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + b64(payload)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		i.t.Error(err)
	}
	return text + "." + b64(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// begin starts a sign-in and prepares the token of a person.
func (w *fixture) begin(i *issuer, o *people.Provider, subject, email string) people.OIDCCallback {
	w.t.Helper()
	address, cookie, err := w.StartOIDC(w.t.Context(), o, people.OIDCSignIn, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if strings.Contains(address, cookie) {
		w.t.Errorf("the address is %s", address)
	}
	q := w.prepare(i, address, subject, email)
	if q.Has("prompt") || q.Has("max_age") {
		w.t.Errorf("the address is %s", address)
	}
	return people.OIDCCallback{Cookie: cookie, State: q.Get("state"), Code: "good"}
}

// prepare has the provider know the sign-in at an address, and returns its query.
func (w *fixture) prepare(i *issuer, address, subject, email string) url.Values {
	w.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		w.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || !strings.Contains(q.Get("scope"), "email") {
		w.t.Errorf("the address is %s", address)
	}
	i.challenge = q.Get("code_challenge")
	i.claims = map[string]any{"iss": i.URL, "aud": "turnpike", "sub": subject, "email": email, "email_verified": true, "name": "Ada L.",
		"nonce": q.Get("nonce"), "iat": w.clock().Unix(), "exp": w.clock().Add(time.Minute).Unix()}
	return q
}

func provider(i *issuer, change ...func(*people.ProviderSettings)) *people.Provider {
	s := people.ProviderSettings{Issuer: i.URL, ClientID: "turnpike", ClientSecret: "s", RedirectURL: "https://turnpike.example.com/back"}
	for _, fn := range change {
		fn(&s)
	}
	return people.NewProvider(s, i.Client())
}

func TestProviderSignsInMembersAndInvitedPeople(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.withoutPassword("ada@example.com", accounts.Owner)
		finish := func(subject, email string) (*people.SignIn, error) {
			return w.FinishOIDC(t.Context(), o, w.begin(i, o, subject, email), browser)
		}
		in, err := finish("1", "Ada@Example.com")
		if err != nil {
			t.Fatal(err)
		}
		if !w.alive(in.Token) || in.Person.Email != "ada@example.com" || in.Session.Method != people.ByOIDC {
			t.Errorf("signed in as %+v", in.Person)
		}
		// The provider's ID identifies the person, not the address.
		if again, err := finish("1", "ada@elsewhere.example.com"); err != nil || again.Person.ID != in.Person.ID {
			t.Errorf("%+v, %v", again, err)
		}
		_, err = finish("2", "ada@example.com")
		want(t, err, fault.Authentication)
		w.withoutPassword("kate@example.com", accounts.Owner)
		_, err = finish("kelvin", "\u212Aate@example.com") // lower case in Unicode is kate@example.com
		want(t, err, fault.Authentication)
		_, err = finish("3", "eve@example.com")
		want(t, err, fault.Authentication)
		w.invited("cyd@example.com", accounts.Admin)
		cyd := w.withoutPassword("cyd@example.com", accounts.Viewer) // added by the operator meanwhile
		if _, err := finish("5", "cyd@example.com"); err != nil {
			t.Error(err)
		}
		if role, err := people.RoleIn(t.Context(), w.db, cyd, w.acme.ID); err != nil || role != accounts.Viewer {
			t.Errorf("%s, %v", role, err)
		}
		w.invited("bob@example.com", accounts.Developer)
		bob, err := finish("4", "bob@example.com")
		if err != nil {
			t.Fatal(err)
		}
		if role, err := people.RoleIn(t.Context(), w.db, bob.Person.ID, w.acme.ID); err != nil || role != accounts.Developer || bob.Person.HasPassword() {
			t.Errorf("%s, %v", role, err)
		}
		if list, err := w.Identities(t.Context(), w.db, bob.Person.ID); err != nil || len(list) != 1 || list[0].Issuer != i.URL {
			t.Errorf("%v, %v", list, err)
		}
		_, err = w.Login(t.Context(), "bob@example.com", "", "", browser)
		want(t, err, fault.Authentication)
		// People with an app must enter a code.
		w.advance(time.Second)
		if in, err = finishWith(w, o, w.begin(i, o, "1", "ada@example.com"), i, w.clock()); err != nil {
			t.Fatal(err)
		}
		w.withApp(in.Session)
		if half, err := finish("1", "ada@example.com"); err != nil || half.Complete() || half.PendingToken == "" {
			t.Errorf("%+v, %v", half, err)
		}
	})
}

func TestInvalidProviderResponsesAreRejected(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.withoutPassword("ada@example.com", accounts.Owner)
		for what, change := range map[string]func(a *people.OIDCCallback){
			"another state":      func(a *people.OIDCCallback) { a.State = "x" },
			"another browser":    func(a *people.OIDCCallback) { a.Cookie = "x" },
			"another code":       func(a *people.OIDCCallback) { a.Code = "bad" },
			"another verifier":   func(*people.OIDCCallback) { i.challenge = "x" },
			"another nonce":      func(*people.OIDCCallback) { i.claims["nonce"] = "x" },
			"another audience":   func(*people.OIDCCallback) { i.claims["aud"] = "x" },
			"another issuer":     func(*people.OIDCCallback) { i.claims["iss"] = "https://x.example.com" },
			"a token that ended": func(*people.OIDCCallback) { i.claims["exp"] = w.clock().Add(-time.Minute).Unix() },
			"unverified address": func(*people.OIDCCallback) { i.claims["email_verified"] = false },
			"unsaid verification": func(*people.OIDCCallback) {
				delete(i.claims, "email_verified")
				i.userInfo = map[string]any{"sub": "1", "email": "ada@example.com"}
			},
			"user info of another person": func(*people.OIDCCallback) {
				delete(i.claims, "email_verified")
				i.userInfo = map[string]any{"sub": "2", "email": "ada@example.com", "email_verified": true}
			},
			"no address":    func(*people.OIDCCallback) { delete(i.claims, "email") },
			"took too long": func(*people.OIDCCallback) { w.advance(10 * time.Minute) },
		} {
			a := w.begin(i, o, "1", "ada@example.com")
			change(&a)
			if _, err := w.FinishOIDC(t.Context(), o, a, browser); !fault.Is(err, fault.Authentication) {
				t.Errorf("%s: %v", what, err)
			}
		}
		a := w.begin(i, o, "1", "ada@example.com")
		other := newIssuer(t).key
		i.key, other = other, i.key
		_, err := w.FinishOIDC(t.Context(), o, a, browser)
		want(t, err, fault.Authentication) // signed with another key
		i.key = other
		a = w.begin(i, o, "1", "ada@example.com")
		if _, err := w.FinishOIDC(t.Context(), o, a, browser); err != nil {
			t.Error(err)
		}
		_, err = w.FinishOIDC(t.Context(), o, a, browser)
		want(t, err, fault.Authentication) // a callback works once
	})
}

func TestAddressIsVerifiedByUserInfoOrTrusted(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		w.withoutPassword("ada@example.com", accounts.Owner)
		i.userInfo = map[string]any{"sub": "1", "email": "ada@example.com", "email_verified": true}
		trusting := provider(i, func(s *people.ProviderSettings) { s.TrustEmail = true })
		for what, o := range map[string]*people.Provider{"user info": provider(i), "trust": trusting} {
			a := w.begin(i, o, "1", "ada@example.com")
			delete(i.claims, "email_verified")
			if _, err := w.FinishOIDC(t.Context(), o, a, browser); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// withoutPassword creates a member without credentials.
func (w *fixture) withoutPassword(email string, role accounts.Role) string {
	w.t.Helper()
	u := &accounts.User{Email: email, WorkspaceID: w.acme.ID, Role: role}
	w.write(func(tx *db.Tx) error { return accounts.CreateUser(w.t.Context(), tx, u, w.clock()) })
	return u.ID
}

// finishWith finishes a sign-in whose claims include the time of
// authentication.
func finishWith(w *fixture, o *people.Provider, a people.OIDCCallback, i *issuer, at time.Time) (*people.SignIn, error) {
	i.claims["auth_time"] = at.Unix()
	return w.FinishOIDC(w.t.Context(), o, a, browser)
}

func TestAccountWithCredentialsIsLinkedOnlyWhileSignedIn(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		ada := w.member("ada@example.com", accounts.Owner)
		w.member("eve@example.com", accounts.Owner)
		finish := func(replaced string) (*people.SignIn, error) {
			a := w.begin(i, o, "1", "ada@example.com")
			a.Replaced = replaced
			return w.FinishOIDC(t.Context(), o, a, browser)
		}
		in, eve := w.login("ada@example.com"), w.login("eve@example.com")
		gone := w.login("ada@example.com")
		w.write(func(tx *db.Tx) error { return w.Revoke(t.Context(), tx, gone.Session, gone.Session.ID, browser) })
		for what, token := range map[string]string{"nobody": "", "somebody else": eve.Token, "a session that has ended": gone.Token, "a session's id": in.Session.ID} {
			_, err := finish(token)
			if f, ok := fault.As(err); !ok || f.Code != fault.Authentication || !strings.Contains(f.Message, "then link it under Your account") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if list, err := w.Identities(t.Context(), w.db, ada); err != nil || len(list) != 0 {
			t.Fatalf("%v, %v", list, err)
		}
		linked, err := finish(in.Token)
		if err != nil {
			t.Fatal(err)
		}
		if !linked.Linked || linked.Session.ID != in.Session.ID || w.alive(in.Token) || !w.alive(linked.Token) || !w.alive(eve.Token) {
			t.Errorf("%+v", linked)
		}
		// From now on the provider signs the person in without a password.
		again, err := finish("")
		if err != nil || again.Linked || again.Session.ID == in.Session.ID || again.Person.ID != ada {
			t.Errorf("%+v, %v", again, err)
		}
		if n := strings.Count(w.actions(), "identity.linked"); n != 1 {
			t.Errorf("linked %d times", n)
		}
	})
}

func TestLinkBelongsToTheSignedInPerson(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.member("dev@example.com", accounts.Developer)
		w.member("vi@example.com", accounts.Owner)
		in, vi := w.login("dev@example.com"), w.login("vi@example.com")
		start := func(s *people.Session, subject, email string) people.OIDCCallback {
			address, cookie, err := w.StartOIDC(t.Context(), o, people.OIDCLink, s)
			if err != nil {
				t.Fatal(err)
			}
			return people.OIDCCallback{Cookie: cookie, State: w.prepare(i, address, subject, email).Get("state"), Code: "good"}
		}
		finish := func(s *people.Session, a people.OIDCCallback) (*people.SignIn, error) {
			a.LinkTo = s
			return w.FinishOIDC(t.Context(), o, a, browser)
		}
		link := func(s *people.Session, a people.OIDCCallback) error {
			_, err := finish(s, a)
			return err
		}
		if got, err := finish(vi.Session, start(vi.Session, "vi", "Vi@Example.com")); err != nil || !got.Linked || w.alive(vi.Token) || !w.alive(got.Token) {
			t.Fatalf("%+v, %v", got, err)
		}
		w.invited("carol@example.com", accounts.Viewer)
		before := w.actions()
		for what, a := range map[string][2]string{
			"somebody else's":               {"vi", "vi@example.com"},
			"somebody else's, my address":   {"vi", "dev@example.com"},
			"the address of somebody else":  {"2", "vi@example.com"},
			"the address of an invitation":  {"3", "carol@example.com"},
			"an address that nobody has":    {"4", "nobody@example.com"},
			"an address that is no address": {"5", "dev"},
		} {
			if err := link(in.Session, start(in.Session, a[0], a[1])); !fault.Is(err, fault.Authentication) {
				t.Errorf("%s: %v", what, err)
			}
		}
		unverified := start(in.Session, "6", "dev@example.com")
		i.claims["email_verified"] = false
		want(t, link(in.Session, unverified), fault.Authentication)
		// Only the person who started a link can finish it. A link can't finish
		// a sign-in, or the reverse.
		want(t, link(vi.Session, start(in.Session, "vi", "vi@example.com")), fault.Authentication)
		want(t, link(in.Session, w.begin(i, o, "7", "dev@example.com")), fault.Authentication)
		_, err := w.FinishOIDC(t.Context(), o, start(in.Session, "7", "dev@example.com"), browser)
		want(t, err, fault.Authentication)
		if list, err := w.Identities(t.Context(), w.db, in.Person.ID); err != nil || len(list) != 0 || w.actions() != before || !w.alive(in.Token) {
			t.Fatalf("something was done: %v, %v, %s", list, err, w.actions())
		}
		got, err := finish(in.Session, start(in.Session, "dev", "dev@example.com"))
		if err != nil || !got.Linked || got.Session.ID != in.Session.ID || w.alive(in.Token) || !w.alive(got.Token) {
			t.Fatalf("%+v, %v", got, err)
		}
		// From now on the ID identifies the person, not the address.
		again, err := finish(in.Session, start(in.Session, "dev", "dev@elsewhere.example.com"))
		if err != nil || again.Linked || again.Person.Email != "dev@example.com" || !w.alive(again.Token) {
			t.Errorf("%+v, %v", again, err)
		}
	})
}

func TestAccountWithPasskeyIsNotLinkedByEmailAddress(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		id := w.withoutPassword("ada@example.com", accounts.Owner)
		w.write(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO passkeys (id, user_id, credential_id, name, credential, created_at) VALUES ('pk_1', $1, 'c', 'n', 's', 0)", id)
			return err
		})
		_, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "1", "ada@example.com"), browser)
		want(t, err, fault.Authentication)
	})
}

func TestProviderConfirmsOnlyRecentAuthentication(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.withoutPassword("ada@example.com", accounts.Owner)
		for what, c := range map[string]struct {
			at        any
			confirmed bool
		}{
			"unsaid": {nil, false}, "now": {w.clock().Unix(), true}, "nine minutes ago": {w.clock().Add(-9 * time.Minute).Unix(), true},
			"an hour ago": {w.clock().Add(-time.Hour).Unix(), false}, "in an hour": {w.clock().Add(time.Hour).Unix(), false},
			"a clock ahead": {w.clock().Add(30 * time.Second).Unix(), true}, "nonsense": {"", false},
		} {
			a := w.begin(i, o, "1", "ada@example.com")
			if c.at != nil {
				i.claims["auth_time"] = c.at
			}
			in, err := w.FinishOIDC(t.Context(), o, a, browser)
			if what == "nonsense" {
				want(t, err, fault.Authentication)
				continue
			}
			if err != nil {
				t.Fatal(what, err)
			}
			stored, err := w.LookUpSession(t.Context(), w.db, in.Token)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range []*people.Session{in.Session, stored} {
				if err := w.RequireConfirmed(s); (err == nil) != c.confirmed {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
		// The thirty minutes start at the authentication, not at the sign-in.
		in, err := finishWith(w, o, w.begin(i, o, "1", "ada@example.com"), i, w.clock().Add(-29*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		w.advance(2 * time.Minute)
		if err := w.RequireConfirmed(in.Session); !errors.Is(err, people.ErrConfirmationRequired) {
			t.Errorf("31 minutes after the proof: %v", err)
		}
	})
}

func TestProviderConfirmationRenewsTheToken(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		o := provider(i)
		w.withoutPassword("ada@example.com", accounts.Owner)
		w.withoutPassword("eve@example.com", accounts.Owner)
		eve, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "2", "eve@example.com"), browser)
		if err != nil {
			t.Fatal(err)
		}
		in, err := w.FinishOIDC(t.Context(), o, w.begin(i, o, "1", "ada@example.com"), browser)
		if err != nil {
			t.Fatal(err)
		}
		start := func(subject string, at any) people.OIDCCallback {
			address, cookie, err := w.StartOIDC(t.Context(), o, people.OIDCConfirm, in.Session)
			if err != nil {
				t.Fatal(err)
			}
			q := w.prepare(i, address, subject, "ada@example.com")
			if q.Get("prompt") != "login" || q.Get("max_age") != "0" {
				t.Errorf("the address is %s", address)
			}
			if at != nil {
				i.claims["auth_time"] = at
			}
			return people.OIDCCallback{Cookie: cookie, State: q.Get("state"), Code: "good", Replaced: in.Token}
		}
		confirm := func(s *people.Session, a people.OIDCCallback) error {
			_, err := w.FinishOIDCConfirm(t.Context(), o, s, a)
			return err
		}
		for range 2 { // providers with and without auth_time
			want(t, confirm(in.Session, start("1", w.clock().Add(-time.Hour).Unix())), fault.Authentication)
			want(t, confirm(in.Session, start("2", w.clock().Unix())), fault.Authentication) // eve's account
			want(t, confirm(in.Session, start("3", w.clock().Unix())), fault.Authentication) // an account without a person
			want(t, confirm(eve.Session, start("1", w.clock().Unix())), fault.Authentication)
			// A sign-in can't finish a confirmation, or the reverse.
			want(t, confirm(in.Session, w.begin(i, o, "1", "ada@example.com")), fault.Authentication)
			_, err = w.FinishOIDC(t.Context(), o, start("1", w.clock().Unix()), browser)
			want(t, err, fault.Authentication)
			if err := w.RequireConfirmed(in.Session); !errors.Is(err, people.ErrConfirmationRequired) {
				t.Fatalf("confirmed: %v", err)
			}
		}
		before := in.Token
		for _, at := range []any{w.clock().Unix(), nil} {
			token, err := w.FinishOIDCConfirm(t.Context(), o, in.Session, start("1", at))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.RequireConfirmed(in.Session); err != nil || w.alive(before) || !w.alive(token) {
				t.Errorf("not confirmed, or the token is the same: %v", err)
			}
			before = token
			w.advance(31 * time.Minute)
		}
		// People with an app must enter a code here as well.
		if _, err := w.FinishOIDCConfirm(t.Context(), o, in.Session, start("1", w.clock().Unix())); err != nil {
			t.Fatal(err)
		}
		w.withApp(in.Session)
		w.advance(31 * time.Minute)
		want(t, confirm(in.Session, start("1", w.clock().Unix())), fault.Authentication)
	})
}

// away makes the provider hang until release is called. asked counts its
// requests.
func (i *issuer) away() (asked *atomic.Int64, waiting chan struct{}, release func()) {
	asked, waiting = &atomic.Int64{}, make(chan struct{}, 100)
	held, handler := make(chan struct{}), i.Config.Handler
	i.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		waiting <- struct{}{}
		<-held
		http.Error(rw, "away", http.StatusBadGateway)
	})
	return asked, waiting, func() { i.Config.Handler = handler; close(held) }
}

func TestFailedDiscoveryIsSharedAndCached(t *testing.T) {
	each(t, func(t *testing.T, w *fixture) {
		i := newIssuer(t)
		asked, waiting, release := i.away()
		o := provider(i)
		start := func(ctx context.Context) error {
			_, _, err := w.StartOIDC(ctx, o, people.OIDCSignIn, nil)
			return err
		}
		failed := make(chan error, 10)
		go func() { failed <- start(t.Context()) }()
		<-waiting
		// A canceled request returns immediately and cancels no other.
		leaving, leave := context.WithCancel(t.Context())
		leave()
		if err := start(leaving); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		for range 9 {
			go func() { failed <- start(t.Context()) }()
		}
		release()
		for range 10 {
			want(t, <-failed, fault.Upstream)
		}
		w.advance(29 * time.Second)
		want(t, start(t.Context()), fault.Upstream)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		w.advance(time.Second)
		if err := start(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
