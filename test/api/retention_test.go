package api_test

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestRecordsAreDeletedAtTheEndOfTheirRetention(t *testing.T) {
	each(t, both, func(t *testing.T, s *harness.Server) {
		w := s.Workspace(t, "acme")
		key, keyID := s.Key(t, w, accounts.Test)
		token := s.Do(t, mint(key, map[string]any{"scopes": []string{"models:read"}})).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys", Key: key, Body: map[string]any{"name": "n", "scopes": []string{"models:read"}},
			Header: map[string][]string{"Idempotency-Key": {"k"}}}).Want(t, 200, "")
		s.Do(t, harness.Request{Method: "POST", Path: "/v1/keys/" + keyID + "/rotate", Key: key, Body: map[string]any{"grace_period_seconds": 60}}).Want(t, 200, "")
		s.FillRequests(t, w, keyID, 2500)
		rows := func(what string) (n int64) {
			if err := s.DB.QueryRow(t.Context(), "SELECT count(*) FROM "+what).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		after := func(d time.Duration) {
			s.Clock.Turn(d)
			if err := s.App.RunRetention(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		after(0)
		if rows("scoped_tokens WHERE hash IS NOT NULL") != 1 || rows("idempotency") != 1 || rows("key_secrets WHERE retires_at IS NOT NULL") != 1 {
			t.Error("something went before its time")
		}
		after(15 * time.Minute)
		if rows("scoped_tokens WHERE hash IS NOT NULL") != 0 || rows("scoped_tokens") != 1 || rows("key_secrets WHERE retires_at IS NOT NULL") != 0 {
			t.Error("the hash of an expired token or a retired secret is still there, or the token's record is not")
		}
		after(24 * time.Hour)
		if rows("idempotency") != 0 {
			t.Error("an answer is remembered for more than a day")
		}
		after(31 * 24 * time.Hour)
		if n := rows("scoped_tokens WHERE id = '" + token.Text("id") + "'"); n != 0 {
			t.Error("the token's record is still there after 30 days")
		}
		if rows("requests") < 2500 || rows("admin_actions") == 0 {
			t.Error("the log went before its time")
		}
		after(370 * 24 * time.Hour)
		if n := rows("requests"); n != 0 {
			t.Errorf("%d log entries are left after their 400 days", n)
		}
		if n := rows("admin_actions"); n != 0 {
			t.Errorf("%d admin actions are left after their 400 days", n)
		}
	})
}
