package api_test

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/test/fakes/smtp"
	"turnpike/test/harness"
)

// setLeakPolicy sets the policy, like the security page.
func (c *client) setLeakPolicy(t *testing.T, p accounts.LeakPolicy) {
	t.Helper()
	c.ChangeWorkspace(t, c.workspace.ID, func(w *accounts.Workspace) { w.LeakPolicy = p })
}

// noted sends a prompt until there are that many notes. The server may learn of
// a policy late, and checks a key only once in a while.
func (c *client) noted(t *testing.T, of *client, prompt string, want ...leaks.Outcome) []*leaks.Note {
	t.Helper()
	c.Eventually(t, func() bool {
		c.chat(t, chatBody(prompt)).Want(t, 200, "")
		return len(of.leakNotes(t)) >= len(want)
	})
	notes := of.leakNotes(t)
	if got := outcomesOf(notes); !slices.Equal(got, want) {
		t.Fatalf("the notes are %v, want %v", got, want)
	}
	return notes
}

// ends waits until a key is rejected. The server learns of a revocation shortly
// after it is stored.
func (c *client) ends(t *testing.T, key string) {
	t.Helper()
	c.Eventually(t, func() bool { return c.Do(t, models(key)).Status == 401 })
}

func TestKeyInAPromptFollowsTheWorkspacePolicy(t *testing.T) {
	eachMailed(t, sqlite, func(t *testing.T, live *client, mails *smtp.Server) {
		c := live.withTestKey(t)
		other, _ := c.spare(t)
		newClient(t, c.Server, accounts.Test).chat(t, chatBody(other)).Want(t, 200, "") // its workspace has the policy off by default
		key, id := c.spare(t)
		prompt := "my key is " + key + ", is that a problem?"
		c.setLeakPolicy(t, accounts.LeaksReported)
		note := c.noted(t, c, prompt, leaks.Noted)[0] // and none about the other
		if note.KeyID != id || note.Source != leaks.Traffic || note.Hint != keyring.SecretHint(key) || note.URL != "" {
			t.Errorf("the note is %+v", note)
		}
		c.Do(t, models(key)).Want(t, 200, "")
		for _, m := range mails.Wait(t, 2) {
			if text := plainMail(m); !strings.Contains(text, "The key still works") || !strings.Contains(text, id) || strings.Contains(text, key) {
				t.Errorf("got email\n%s", text)
			}
		}
		// A later note notifies no one again.
		c.Clock.Turn(11 * time.Minute)
		c.noted(t, c, prompt, leaks.Noted, leaks.Noted)
		if n := c.rows(t, "mails"); n != 2 {
			t.Errorf("got %d emails", n)
		}
		if n := c.rows(t, "events"); n != 0 {
			t.Errorf("there are %d events of a key that lives", n)
		}

		c.setLeakPolicy(t, accounts.LeaksRevoked)
		c.noted(t, c, prompt, leaks.Noted, leaks.Noted, leaks.Revoked)
		c.ends(t, key)
		c.Do(t, models(c.key)).Want(t, 200, "")
		if text := plainMail(mails.Wait(t, 4)[3]); !strings.Contains(text, "in a prompt or in metadata") || !strings.Contains(text, "revoked") {
			t.Errorf("got email\n%s", text)
		}
		if n := c.rows(t, "events WHERE type = 'key.auto_revoked'"); n != 1 {
			t.Errorf("got %d events", n)
		}
		if dump := c.DumpDatabase(t); bytes.Contains(dump, []byte(key[8:])) || bytes.Contains(dump, []byte(other[8:])) {
			t.Error("a secret is in the database")
		}
	})
}

func TestKeysAreFoundAnywhereInABody(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, live *client) {
		c := live.withTestKey(t)
		c.setLeakPolicy(t, accounts.LeaksRevoked)
		metadata := func(key string) map[string]string { return map[string]string{"note": key} }
		ask := map[string]func(key string) harness.Request{
			"stream": func(key string) harness.Request {
				body := chatBody(key)
				body["stream"] = true
				return harness.Request{Method: "POST", Path: "/v1/chat/completions", Body: body}
			},
			"responses": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: "/v1/responses", Body: map[string]any{"model": "gpt-4o-mini", "input": key}}
			},
			"embeddings": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: "/v1/embeddings", Body: map[string]any{"model": "text-embedding-3-small", "input": key}}
			},
			"a job's metadata": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: batches, Body: map[string]any{"metadata": metadata(key),
					"requests": []any{map[string]any{"custom_id": "a", "body": map[string]any{"prompt": "a cat"}}}}}
			},
			"a run's metadata": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: runs, Body: map[string]any{"model": "gpt-4o-mini", "input": "hello", "metadata": metadata(key)}}
			},
			"a token's metadata": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: "/v1/scoped_tokens", Body: map[string]any{"scopes": []string{"models:read"}, "metadata": metadata(key)}}
			},
			"a form": func(key string) harness.Request {
				var body bytes.Buffer
				form := multipart.NewWriter(&body)
				_ = form.WriteField("prompt", key)
				_ = form.Close()
				return harness.Request{Method: "POST", Path: "/v1/images/edits", Body: body.String(), Header: http.Header{"Content-Type": {form.FormDataContentType()}}}
			},
			"what is refused": func(key string) harness.Request {
				return harness.Request{Method: "POST", Path: "/v1/chat/completions", Body: map[string]any{"messages": key}}
			},
		}
		for name, request := range ask {
			key, _ := c.spare(t)
			r := request(key)
			r.Key = c.key
			c.Do(t, r)
			c.ends(t, key)
			if t.Failed() {
				t.Fatal(name)
			}
		}
		if n := len(c.leakNotes(t)); n != len(ask) {
			t.Errorf("there are %d notes of %d keys", n, len(ask))
		}
	})
}

func TestKeyOfAnotherWorkspaceInAPromptFollowsItsOwnersPolicy(t *testing.T) {
	eachWebhooks(t, sqlite, nil, func(t *testing.T, live *client) {
		c := live.withTestKey(t)
		neighbor := newClient(t, c.Server, accounts.Test)
		neighbor.setLeakPolicy(t, accounts.LeaksRevoked)
		key, _ := neighbor.spare(t)
		c.chat(t, chatBody(key)).Want(t, 200, "") // the sender's policy is off
		c.setLeakPolicy(t, accounts.LeaksReported)
		c.noted(t, neighbor, key, leaks.Noted)
		c.Do(t, models(key)).Want(t, 200, "")
		c.setLeakPolicy(t, accounts.LeaksRevoked)
		c.noted(t, neighbor, key+" "+key+" "+strangersKey, leaks.Noted, leaks.Revoked)
		c.ends(t, key)
		if n := len(c.leakNotes(t)); n != 0 {
			t.Errorf("the sender has %d notes of another's key", n)
		}
	})
}

func TestKeyInAPromptIsRevokedBeforeShutdown(t *testing.T) {
	eachWebhooks(t, both, nil, func(t *testing.T, live *client) {
		c := live.withTestKey(t)
		c.setLeakPolicy(t, accounts.LeaksRevoked)
		var keys []string
		for range 20 {
			key, _ := c.spare(t)
			keys = append(keys, key)
		}
		c.chat(t, chatBody(strings.Join(keys, " "))).Want(t, 200, "")
		if err := c.App.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(c.leakNotes(t)); n != len(keys) {
			t.Errorf("%d of %d keys were dealt with", n, len(keys))
		}
	})
}
