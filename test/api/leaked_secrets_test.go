package api_test

import (
	"net/http"
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/people"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

// leakable is a secret of a kind that works.
type leakable struct {
	name   string
	secret string
	works  func() bool
}

// leakables creates secrets of a kind. Each new kind needs an entry here, so that N6 doesn't come back.
func (c *client) leakables(t *testing.T, kind keyring.Kind) []leakable {
	t.Helper()
	folk := people.New(c.DB, c.Ring, people.Options{Now: c.Clock.Now})
	asKey := func(secret string) leakable {
		return leakable{"key", secret, func() bool { return c.Do(t, models(secret)).Status == 200 }}
	}
	link := func() (l *people.Link) {
		c.write(t, func(tx *db.Tx) error {
			owner, err := folk.Find(t.Context(), tx, "owner@example.com")
			if err == nil {
				l, err = folk.NewPasswordLink(t.Context(), tx, owner.ID, people.ResetLimit)
			}
			return err
		})
		return l
	}
	switch kind {
	case keyring.LiveKey, keyring.TestKey:
		env := accounts.Live
		if kind == keyring.TestKey {
			env = accounts.Test
		}
		key, _ := c.Key(t, c.workspace, env)
		return []leakable{asKey(key)}
	case keyring.ScopedToken:
		return []leakable{asKey(c.Do(t, mint(c.key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value"))}
	case keyring.AdminKey:
		key := c.AdminKey(t)
		return []leakable{{"admin key", key, func() bool {
			return c.Do(t, harness.Request{Method: "GET", Path: "/admin/pricing", Key: key}).Status == 200
		}}}
	case keyring.SessionToken:
		const password = "correct horse battery staple"
		if _, err := folk.ResetPassword(t.Context(), link().Token, password, people.Browser{}); err != nil {
			t.Fatal(err)
		}
		in, err := folk.Login(t.Context(), "owner@example.com", password, "", people.Browser{})
		if err != nil {
			t.Fatal(err)
		}
		return []leakable{{"session", in.Token, func() bool {
			_, err := folk.LookUpSession(t.Context(), c.DB, in.Token)
			return err == nil
		}}}
	case keyring.LinkToken:
		password := link().Token
		var invitation *people.Link
		c.write(t, func(tx *db.Tx) (err error) {
			invitation, err = folk.Invite(t.Context(), tx, people.Operator(), &people.Invitation{WorkspaceID: c.workspace.ID, Email: "new@example.com", Role: accounts.Viewer})
			return err
		})
		return []leakable{
			{"password link", password, func() bool {
				_, err := folk.FindPasswordLink(t.Context(), c.DB, password)
				return err == nil
			}},
			{"invitation", invitation.Token, func() bool {
				_, _, err := folk.FindInvitation(t.Context(), c.DB, invitation.Token)
				return err == nil
			}},
		}
	}
	return nil
}

func leakInURL(secret string) harness.Request {
	return harness.Request{Method: "GET", Path: "/v1/models?key=" + secret}
}

// TestLeakedSecretOfEveryKindStopsWorking walks the registry (N6): a report and a request with the secret in its URL
// end it, and its owners get one email.
func TestLeakedSecretOfEveryKindStopsWorking(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		owner, err := people.New(c.DB, c.Ring, people.Options{Now: c.Clock.Now}).Find(t.Context(), c.DB, "owner@example.com")
		if err != nil {
			t.Fatal(err)
		}
		c.GrantOperator(t, owner.ID)
		for _, kind := range keyring.Kinds {
			if kind == keyring.WebhookSecret {
				continue // keeps working, see below
			}
			for way, leaks := range map[string]func(secret string) harness.Request{
				"report": func(secret string) harness.Request { return leakOf(secret) },
				"URL":    leakInURL,
				"URL of the admin API": func(secret string) harness.Request {
					return harness.Request{Method: "GET", Path: "/admin/pricing?key=" + secret}
				},
			} {
				list := c.leakables(t, kind)
				if len(list) == 0 {
					t.Fatalf("no secret of the kind %s is tested", kind)
				}
				for _, l := range list {
					if got, ok := keyring.ParseSecret(l.secret); !ok || got != kind {
						t.Fatalf("%s: the secret isn't of the kind %s", l.name, kind)
					}
					if !l.works() {
						t.Fatalf("%s: doesn't work before the leak", l.name)
					}
					before := c.rows(t, "mails")
					for range 2 {
						if r := c.Do(t, leaks(l.secret)); r.Status != 202 && r.Status != 401 {
							t.Errorf("%s by %s: %d %s", l.name, way, r.Status, r.Body)
						}
					}
					if l.works() {
						t.Errorf("%s: still works after a leak by %s", l.name, way)
					}
					sent := c.rows(t, "mails") - before
					if kind == keyring.ScopedToken != (sent == 0) || sent > 2 { // owner and admin
						t.Errorf("%s by %s: %d emails", l.name, way, sent)
					}
					if bytes := c.DumpDatabase(t); strings.Contains(string(bytes), l.secret[len(kind):]) {
						t.Errorf("%s: the secret is in the database", l.name)
					}
				}
			}
		}
	})
}

// TestLeakedWebhookSecretIsReportedOnceAndKeepsSigning guards N6: revoking it would stop every delivery.
func TestLeakedWebhookSecretIsReportedOnceAndKeepsSigning(t *testing.T) {
	eachMailed(t, both, func(t *testing.T, c *client, mails *smtp.Server) {
		r, watching := newReceiver(t, c.Clock, respond(200)), newReceiver(t, c.Clock, respond(200))
		id, secret := c.endpoint(t, r.URL, "endpoint.*", "key.*")
		c.endpoint(t, watching.URL, "endpoint.secret_leaked")
		for range 2 {
			wantAccepted(t, c.Do(t, leakOf(secret)))
		}
		got := watching.wait(t, c, 1)[0]
		var event struct{ Data map[string]any }
		decode(t, got.body, &event)
		hint := keyring.SecretHint(secret)
		if event.Data["endpoint_id"] != id || event.Data["secret_hint"] != hint || event.Data["source"] != "report" || event.Data["previous"] != false {
			t.Errorf("got event %s", got.body)
		}
		for _, m := range mails.Wait(t, 2) {
			if text := plainMail(m); !strings.Contains(text, "/v1/webhooks/"+id+"/rotate_secret") || strings.Contains(text, secret[6:40]) {
				t.Errorf("got email\n%s", text)
			}
		}
		if n := c.rows(t, "mails"); n != 2 {
			t.Errorf("got %d emails, want 2", n)
		}
		if n := c.rows(t, "events"); n != 1 {
			t.Errorf("got %d events, want 1", n)
		}
		if notes := c.leakNotes(t); len(notes) != 1 || notes[0].KeyID != id || notes[0].Outcome != leaks.NeedsRotation || notes[0].Hint != hint {
			t.Errorf("got notes %v", notes)
		}
		c.publish(t, keyRevoked)
		if !r.wait(t, c, 1)[0].signedBy(secret) {
			t.Error("the endpoint's deliveries aren't signed with its secret anymore")
		}

		// The old secret of a rotation signs until the grace period ends.
		rotated := c.post(t, "/v1/webhooks/"+id+"/rotate_secret", map[string]any{"grace_period_seconds": 3600}).Text("secret")
		other := c.post(t, "/v1/webhooks", map[string]any{"url": r.URL, "events": []string{"key.*"}}).Text("secret")
		c.write(t, func(tx *db.Tx) error { // as if the report were forgotten
			_, err := tx.Exec(t.Context(), "DELETE FROM leak_reports")
			return err
		})
		wantAccepted(t, c.Do(t, leakOf(secret)))
		decode(t, watching.wait(t, c, 2)[1].body, &event)
		if event.Data["previous"] != true {
			t.Errorf("of the old secret, the event is %v", event.Data)
		}
		c.post(t, "/v1/webhooks/"+id+"/end_grace", nil)
		c.write(t, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "DELETE FROM leak_reports")
			return err
		})
		wantAccepted(t, c.Do(t, leakOf(secret)))
		if n := c.rows(t, "leak_reports"); n != 0 {
			t.Error("a secret that doesn't sign anymore was reported")
		}
		for _, s := range []string{rotated, other} {
			if r := c.Do(t, leakInURL(s)); r.Status != http.StatusUnauthorized {
				t.Errorf("a webhook secret in a URL: %d", r.Status)
			}
		}
		if n := c.rows(t, "leak_reports"); n != 2 {
			t.Errorf("got %d notes of secrets in URLs, want 2", n)
		}
	})
}
