package dashboard_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/test/harness"
)

// TestSharedAddressDoesNotLockOutKnownBrowser: everyone here has one address,
// as behind a proxy that is not in trusted_proxies.
func TestSharedAddressDoesNotLockOutKnownBrowser(t *testing.T) {
	t.Parallel()
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		owner := member(t, s, s.Workspace(t, "acme"), accounts.Owner)
		owner.post(t, "/dashboard/logout", nil).redirectsTo(t, "/dashboard/login")
		stranger := newBrowser(t, s)
		for i := range 20 {
			stranger.post(t, "/dashboard/login", url.Values{"email": {fmt.Sprintf("nobody%d@example.com", i)}, "password": {"wrong password"}}).is(t, http.StatusUnauthorized)
		}
		stranger.post(t, "/dashboard/login", credentials(owner, password)).is(t, http.StatusTooManyRequests)
		owner.signIn(t)
		owner.signedIn(t, true)
	})
}
