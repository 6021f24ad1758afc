package dashboard_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/people"
	"turnpike/test/harness"
)

// playgroundToken mints a token as the page's script does.
func (b *browser) playgroundToken(t testing.TB, env accounts.Environment) string {
	t.Helper()
	var minted struct {
		Value     string
		ExpiresIn int `json:"expires_in"`
	}
	a := b.post(t, b.in(env, "playground/token"), url.Values{}).is(t, http.StatusOK)
	if err := json.Unmarshal([]byte(a.body), &minted); err != nil || !strings.HasPrefix(minted.Value, "tp_scoped_") || minted.ExpiresIn != 300 {
		t.Fatalf("got the token %s (%v), want one of 300 seconds", a.body, err)
	}
	return minted.Value
}

func helloWith(token string) harness.Request {
	return harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token,
		Body: map[string]any{"model": "gpt-5.4-mini", "messages": []map[string]string{{"role": "user", "content": "Hello"}}}}
}

// requestID returns the request ID of a response.
func requestID(r *harness.Response) string { return r.Header.Get("X-Request-Id") }

func TestPlaygroundTokenCallsModelsAndNothingElse(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Developer)
		token := b.playgroundToken(t, accounts.Test)
		s.Do(t, helloWith(token)).Want(t, 200, "")
		for path, code := range map[string]string{"/v1/keys": "scoped_token_not_allowed", "/v1/usage": "scoped_token_not_allowed", "/v1/models": "insufficient_scope"} {
			s.Do(t, harness.Request{Method: "GET", Path: path, Key: token}).Want(t, 403, code)
		}
		if strings.Contains(string(s.DumpDatabase(t)), token) {
			t.Error("the token is in the database")
		}
		s.Clock.Turn(5 * time.Minute)
		s.Do(t, helloWith(token)).Want(t, 401, "authentication_error")
	})
}

func TestPlaygroundRunsInTheEnvironmentOfThePage(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "")
		s.Do(t, helloWith(b.playgroundToken(t, accounts.Live))).Want(t, 503, "no_provider")
		b.get(t, b.in(accounts.Live, "playground")).shows(t, "This server has no provider, so live requests fail.", "/docs/reference/providers").hides(t, "[[sim:")
		s.GrantOperator(t, b.person.ID)
		b.get(t, b.in(accounts.Live, "playground")).shows(t, "/dashboard/server/providers/new")
		b.get(t, b.in(accounts.Test, "playground")).shows(t, "[[sim:error=429]]", "needs JavaScript", "/dashboard/static/playground.js").hides(t, "no provider")
	})
}

func TestPlaygroundExplainsWhatTheRoleLacks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		viewer := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		viewer.get(t, viewer.in(accounts.Test, "playground")).shows(t, "Your role, viewer, cannot send model requests.").hides(t, "playground.js")
		viewer.post(t, viewer.in(accounts.Test, "playground/token"), url.Values{}).is(t, http.StatusForbidden)
	})
}

func TestPlaygroundKeyIsHiddenButItsRequestsAreNamed(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		reader, _ := s.Key(t, w, accounts.Test, "*")
		sent := s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "")
		s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "") // with the same key

		const name = "Playground · The owner"
		b.get(t, b.in(accounts.Test, "requests")).shows(t, name)
		b.get(t, b.in(accounts.Test, "requests/"+requestID(sent))).shows(t, name, "playground")
		b.get(t, b.in(accounts.Test, "log")).shows(t, "playground_key.created")
		entry := s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + requestID(sent), Key: reader}).Want(t, 200, "")
		keyID := entry.Text("key_id")

		// It is in no list and can't be read, changed, rotated or revoked.
		b.get(t, b.in(accounts.Test, "keys")).hides(t, name, keyID)
		b.get(t, b.in(accounts.Test, "keys?q=Playground")).hides(t, name)
		b.get(t, b.in(accounts.Test, "keys/"+keyID)).redirectsTo(t, b.in(accounts.Test, "requests?key="+keyID))
		b.get(t, b.in(accounts.Test, "keys/"+keyID+"/edit")).is(t, http.StatusNotFound)
		b.get(t, b.in(accounts.Test, "keys/"+keyID+"/tokens")).is(t, http.StatusNotFound)
		list := s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: reader}).Want(t, 200, "")
		if strings.Contains(string(list.Body), keyID) {
			t.Errorf("the list of keys has %s", keyID)
		}
		for _, r := range []harness.Request{{Method: "GET", Path: "/v1/keys/" + keyID}, {Method: "DELETE", Path: "/v1/keys/" + keyID},
			{Method: "POST", Path: "/v1/keys/" + keyID + "/rotate", Body: map[string]any{}}, {Method: "PATCH", Path: "/v1/keys/" + keyID, Body: map[string]any{"name": "mine"}}} {
			r.Key = reader
			s.Do(t, r).Want(t, 404, "not_found")
		}
		s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "")
	})
}

func TestPlaygroundKeysDoNotCountTowardTheLimitOfKeys(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		cfg := harness.Config(t, engine)
		cfg.Limits.Keys = 2
		s := harness.Start(t, cfg, harness.NewClock())
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Owner)
		b.playgroundToken(t, accounts.Test)
		admin, _ := s.Key(t, w, accounts.Test, "*")
		create := harness.Request{Method: "POST", Path: "/v1/keys", Key: admin, Body: map[string]any{"name": "second", "scopes": []string{"models:read"}}}
		s.Do(t, create).Want(t, 200, "")
		s.Do(t, create).Want(t, 409, "limit_reached")
		b.playgroundToken(t, accounts.Test)
	}
}

func TestPlaygroundTokenEndsWithTheMembership(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w, other := s.Workspace(t, "acme"), s.Workspace(t, "globex")
		owner := member(t, s, w, accounts.Owner)
		for name, end := range map[string]func(b *browser){
			"removed": func(b *browser) {
				owner.post(t, owner.in(accounts.Test, "team/members/"+b.person.ID+"/remove"), url.Values{}).is(t, http.StatusSeeOther)
			},
			"left": func(b *browser) {
				b.post(t, b.in(accounts.Live, "team/leave"), url.Values{}).is(t, http.StatusSeeOther)
			},
			"demoted": func(b *browser) {
				owner.post(t, owner.in(accounts.Test, "team/members/"+b.person.ID+"/role"), url.Values{"new_role": {"viewer"}}).is(t, http.StatusSeeOther)
			},
		} {
			b := newBrowser(t, s)
			b.workspace, b.person = w, addMember(t, s, w, name+"@"+strings.ToLower(w.ID)+".example", accounts.Developer)
			elsewhere := *b
			elsewhere.workspace = other
			if err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
				return accounts.CreateUser(t.Context(), tx, &accounts.User{Email: b.person.Email, WorkspaceID: other.ID, Role: accounts.Developer}, s.Clock.Now())
			}); err != nil {
				t.Fatal(err)
			}
			b.signIn(t)
			test, live, kept := b.playgroundToken(t, accounts.Test), b.playgroundToken(t, accounts.Live), elsewhere.playgroundToken(t, accounts.Test)
			s.Do(t, helloWith(test)).Want(t, 200, "")
			s.Do(t, helloWith(live)).Want(t, 503, "no_provider")
			end(b)
			s.Do(t, helloWith(test)).Want(t, 401, "authentication_error")
			s.Do(t, helloWith(live)).Want(t, 401, "authentication_error")
			s.Do(t, helloWith(kept)).Want(t, 200, "") // of another membership
		}
	})
}

func TestPromotedMemberGetsANewPlaygroundKey(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		b := member(t, s, w, accounts.Developer)
		before := b.playgroundToken(t, accounts.Test)
		service := people.New(s.DB, s.Ring, people.Options{Now: s.Clock.Now})
		if err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			return service.ChangeRole(t.Context(), tx, people.Operator(), people.Member{WorkspaceID: w.ID, UserID: b.person.ID}, accounts.Admin)
		}); err != nil {
			t.Fatal(err)
		}
		s.Do(t, helloWith(before)).Want(t, 401, "authentication_error")
		b.signIn(t)
		s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "")
	})
}

func TestPlaygroundIsFilledFromALoggedRequest(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b, stranger := member(t, s, s.Workspace(t, "acme"), accounts.Owner), member(t, s, s.Workspace(t, "globex"), accounts.Owner)
		sent := s.Do(t, helloWith(b.playgroundToken(t, accounts.Test))).Want(t, 200, "")
		page := "playground?request=" + requestID(sent)
		b.get(t, b.in(accounts.Test, "requests/"+requestID(sent))).shows(t, b.in(accounts.Test, page), "Open in playground")
		b.get(t, b.in(accounts.Test, page)).shows(t, requestID(sent), "gpt-5.4-mini")
		b.get(t, b.in(accounts.Test, "playground?request=nonsense")).is(t, http.StatusNotFound)
		stranger.get(t, stranger.in(accounts.Test, page)).is(t, http.StatusNotFound)

		// Its script reads tokens and cost from the log.
		facts := b.get(t, b.in(accounts.Test, "playground/requests/"+requestID(sent))).shows(t, `"settled":true`, `"input_tokens":`, `"simulated_credits":`)
		if facts.header.Get("Content-Type") != "application/json" {
			t.Errorf("got %s, want JSON", facts.header.Get("Content-Type"))
		}
		stranger.get(t, stranger.in(accounts.Test, "playground/requests/"+requestID(sent))).is(t, http.StatusNotFound)
		b.get(t, b.in(accounts.Test, "playground/models")).shows(t, `"gpt-5.4-mini"`, `"input":`, `"context":`)
	})
}
