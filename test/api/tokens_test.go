package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func mint(key string, body map[string]any) harness.Request {
	return harness.Request{Method: "POST", Path: "/v1/scoped_tokens", Key: key, Body: body}
}

func TestScopedTokenLivesAtMostFifteenMinutes(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		scopes := []string{"models:read"}
		for _, bad := range []any{901, 0, -1, 1 << 40, "900", 1.5} {
			r := s.Do(t, mint(key, map[string]any{"scopes": scopes, "expires_in": bad})).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "expires_in" {
				t.Errorf("expires_in %v: param is %q", bad, r.Text("error.param"))
			}
		}
		r := s.Do(t, mint(key, map[string]any{"scopes": scopes, "expires_in": 900, "metadata": map[string]any{"user": "u1"}})).Want(t, 200, "")
		token := r.Text("value")
		if !strings.HasPrefix(token, "tp_scoped_") || r.At("expires_in") != 900.0 || r.Text("metadata.user") != "u1" || r.Text("environment") != "test" {
			t.Errorf("the token looks wrong: %s", r.Body)
		}
		s.Do(t, models(token)).Want(t, 200, "")
		s.Clock.Turn(900*time.Second - time.Microsecond)
		s.Do(t, models(token)).Want(t, 200, "")
		s.Clock.Turn(time.Microsecond)
		s.Do(t, models(token)).Want(t, 401, "authentication_error")
		if d := s.Do(t, mint(key, map[string]any{"scopes": scopes})).Want(t, 200, ""); d.At("expires_in") != 900.0 {
			t.Errorf("the default lifetime is %v", d.At("expires_in"))
		}
	})
}

func TestScopedTokenCannotExceedItsParentNorMint(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Test)
		parent, parentID := s.Key(t, w, accounts.Test, "models:read", "images:create", "scoped_tokens:create")

		s.Do(t, mint(parent, map[string]any{"scopes": []string{}})).Want(t, 400, "missing_parameter")
		s.Do(t, mint(parent, map[string]any{"scopes": []string{"models:write"}})).Want(t, 400, "invalid_parameter")
		r := s.Do(t, mint(parent, map[string]any{"scopes": []string{"models:read", "chat.completions:create"}})).Want(t, 403, "insufficient_scope")
		if !strings.Contains(r.Text("error.message"), "chat.completions:create") {
			t.Errorf("the message does not name the scope: %s", r.Text("error.message"))
		}
		for _, scope := range []string{"keys:read", "scoped_tokens:create", "agents.runs:approve", "agents.runs:*", "*", "webhooks:read"} {
			s.Do(t, mint(admin, map[string]any{"scopes": []string{scope}})).Want(t, 403, "scoped_token_not_allowed")
		}

		token := s.Do(t, mint(parent, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		s.Do(t, mint(token, map[string]any{"scopes": []string{"models:read"}})).Want(t, 403, "scoped_token_not_allowed")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/chat/completions", Key: token, Body: chatBody("hi")}).Want(t, 403, "insufficient_scope")
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/keys", Key: token}).Want(t, 403, "scoped_token_not_allowed")

		// A scope removed from the parent is removed from the token
		// immediately.
		s.Do(t, models(token)).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "PATCH", Path: "/v1/keys/" + parentID, Key: admin, Body: map[string]any{"scopes": []string{"images:create", "scoped_tokens:create"}}}).Want(t, 200, "")
		s.Do(t, models(token)).Want(t, 403, "insufficient_scope")
	})
}

func TestScopedTokenSurvivesRotationButNotRevocation(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		admin, _ := s.Key(t, w, accounts.Live)
		parent, parentID := s.Key(t, w, accounts.Live)
		token := s.Do(t, mint(parent, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + parentID + "/rotate", Key: admin, Body: map[string]any{"grace_period_seconds": 0}}).Want(t, 200, "")
		s.Do(t, models(parent)).Want(t, 401, "authentication_error")
		s.Do(t, models(token)).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/keys/" + parentID, Key: admin}).Want(t, 200, "")
		s.Do(t, models(token)).Want(t, 401, "authentication_error")
	})
}

func TestScopedTokenCanBeRevokedAlone(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		made := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
		other := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "").Text("value")
		token, id := made.Text("value"), made.Text("id")
		s.Do(t, models(token)).Want(t, 200, "")
		for range 2 {
			s.Do(t, harness.Request{Method: "DELETE", Path: "/v1/scoped_tokens/" + id, Key: key}).Want(t, 200, "")
			s.Do(t, models(token)).Want(t, 401, "authentication_error")
		}
		s.Do(t, models(other)).Want(t, 200, "")
	})
}

func TestScopedTokenMetadataIsLimitedTo4KiB(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		for _, bad := range []any{"text", 1, []string{"a"}, map[string]any{"a": strings.Repeat("x", 4096)}} {
			r := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}, "metadata": bad})).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "metadata" {
				t.Errorf("param is %q", r.Text("error.param"))
			}
		}
		s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}, "metadata": nil})).Want(t, 200, "")
	})
}

func TestScopedTokenMetadataRejectsKeys(t *testing.T) {
	eachShared(t, both, func(t *testing.T, s *harness.Server) {
		key, _ := s.Key(t, s.Workspace(t, "acme"), accounts.Test)
		escaped := `"` + strings.Replace(key, "_", `\u005f`, 1) + `"`
		for _, bad := range []any{map[string]any{"note": key}, map[string]any{key: "note"}, map[string]any{"in": []any{"a " + key}}, json.RawMessage(`{"note":` + escaped + `}`)} {
			r := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}, "metadata": bad})).Want(t, 400, "invalid_parameter")
			if r.Text("error.param") != "metadata" {
				t.Errorf("param is %q", r.Text("error.param"))
			}
		}
	})
}
