package dashboard_test

import (
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

func TestAKeyIsShownOnceAndWorks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		b.get(t, b.in(accounts.Test, "keys")).shows(t, "There are no test keys yet")
		to := b.post(t, b.in(accounts.Test, "keys/new"), url.Values{"name": {"backend"}, "scopes": {"models:read", "chat.completions:create"}}).
			leadsTo(t, b.in(accounts.Test, "keys/key_*"))
		value := b.get(t, to).shows(t, "backend").find(t, `(tp_test_[A-Za-z0-9]+)`)
		s.Do(t, harness.Request{Method: "GET", Path: "/v1/models", Key: value}).Want(t, 200, "")
		b.get(t, to).shows(t, "backend").hides(t, value)
	})
}
