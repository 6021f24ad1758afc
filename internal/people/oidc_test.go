package people_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// issuer is a provider of OpenID Connect that says what a test tells it to.
type issuer struct {
	*httptest.Server
	t         *testing.T
	key       *ecdsa.PrivateKey
	claims    map[string]any // of the next token
	challenge string         // of the sign-in that it has seen last
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
			"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
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
func (w *world) begin(i *issuer, o *people.Provider, subject, email string) people.OIDCAnswer {
	w.t.Helper()
	address, cookie, err := w.StartOIDC(w.t.Context(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		w.t.Fatal(err)
	}
	q := u.Query()
	if q.Get("code_challenge_method") != "S256" || !strings.Contains(q.Get("scope"), "email") || strings.Contains(address, cookie) {
		w.t.Errorf("the address is %s", address)
	}
	i.challenge = q.Get("code_challenge")
	i.claims = map[string]any{"iss": i.URL, "aud": "turnpike", "sub": subject, "email": email, "email_verified": true, "name": "Ada L.",
		"nonce": q.Get("nonce"), "iat": w.clock().Unix(), "exp": w.clock().Add(time.Minute).Unix()}
	return people.OIDCAnswer{Cookie: cookie, State: q.Get("state"), Code: "good"}
}

func provider(i *issuer) *people.Provider {
	return people.NewProvider(people.ProviderSettings{Issuer: i.URL, ClientID: "turnpike", ClientSecret: "s", RedirectURL: "https://turnpike.example.com/back"}, i.Client())
}

func TestProviderSignsInMembersAndTheInvited(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		i := newIssuer(t)
		o := provider(i)
		w.member("ada@example.com", accounts.Owner)
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
		// The provider's id counts, not the address.
		if again, err := finish("1", "ada@elsewhere.example.com"); err != nil || again.Person.ID != in.Person.ID {
			t.Errorf("%+v, %v", again, err)
		}
		_, err = finish("2", "ada@example.com")
		want(t, err, fault.Authentication)
		_, err = finish("3", "eve@example.com")
		want(t, err, fault.Authentication)
		w.invited("cyd@example.com", accounts.Admin)
		cyd := w.member("cyd@example.com", accounts.Viewer) // by the operator, meanwhile
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
		if role, err := people.RoleIn(t.Context(), w.db, bob.Person.ID, w.acme.ID); err != nil || role != accounts.Developer || bob.Person.HasPassword {
			t.Errorf("%s, %v", role, err)
		}
		if list, err := w.Identities(t.Context(), w.db, bob.Person.ID); err != nil || len(list) != 1 || list[0].Issuer != i.URL {
			t.Errorf("%v, %v", list, err)
		}
		_, err = w.Login(t.Context(), "bob@example.com", "", "", browser)
		want(t, err, fault.Authentication)
		// Who has an app is asked for it.
		w.withApp(in.Session)
		if half, err := finish("1", "ada@example.com"); err != nil || half.Complete() || half.Half == "" {
			t.Errorf("%+v, %v", half, err)
		}
	})
}

func TestProviderAnswersThatMustNotBeTaken(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		i := newIssuer(t)
		o := provider(i)
		w.member("ada@example.com", accounts.Owner)
		for what, change := range map[string]func(a *people.OIDCAnswer){
			"another state":       func(a *people.OIDCAnswer) { a.State = "x" },
			"another browser":     func(a *people.OIDCAnswer) { a.Cookie = "x" },
			"another code":        func(a *people.OIDCAnswer) { a.Code = "bad" },
			"another verifier":    func(*people.OIDCAnswer) { i.challenge = "x" },
			"another nonce":       func(*people.OIDCAnswer) { i.claims["nonce"] = "x" },
			"another audience":    func(*people.OIDCAnswer) { i.claims["aud"] = "x" },
			"another issuer":      func(*people.OIDCAnswer) { i.claims["iss"] = "https://x.example.com" },
			"a token that ended":  func(*people.OIDCAnswer) { i.claims["exp"] = w.clock().Add(-time.Minute).Unix() },
			"unverified address":  func(*people.OIDCAnswer) { i.claims["email_verified"] = false },
			"unsaid verification": func(*people.OIDCAnswer) { delete(i.claims, "email_verified") },
			"no address":          func(*people.OIDCAnswer) { delete(i.claims, "email") },
			"took too long":       func(*people.OIDCAnswer) { w.pass(10 * time.Minute) },
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
		want(t, err, fault.Authentication) // once
	})
}

func TestProviderThatIsAwayIsAskedAgain(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		i := newIssuer(t)
		away := true
		handler := i.Config.Handler
		i.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if away {
				http.Error(rw, "away", http.StatusBadGateway)
				return
			}
			handler.ServeHTTP(rw, r)
		})
		o := provider(i)
		_, _, err := w.StartOIDC(t.Context(), o)
		want(t, err, fault.Upstream)
		away = false
		if _, _, err := w.StartOIDC(t.Context(), o); err != nil {
			t.Error(err)
		}
	})
}
