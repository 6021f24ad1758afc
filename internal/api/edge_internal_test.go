package api

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"turnpike/internal/clientip"
	"turnpike/internal/keyring"
	"turnpike/internal/web"
)

// FuzzHeaders checks that no header breaks the functions that read headers.
func FuzzHeaders(f *testing.F) {
	f.Add("Bearer tp_test_x", "1.2.3.4, 10.0.0.1", "application/json; charset=utf-8", "http://localhost:3000")
	f.Add("bearer", ",,,", ";;;", "null")
	f.Add("Bearer", "", "text/csv;q=0.5, */*", "")
	f.Add("Basic \xff\x00", "[::1]:80, fe80::1%eth0", "a/b; x=\"", "http://[::1")
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	s := &Server{}
	f.Fuzz(func(t *testing.T, authorization, forwarded, mediaType, origin string) {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"Authorization": {authorization}, "X-Forwarded-For": {forwarded}, "Origin": {origin}}
		bearer, ok := bearerOf(r)
		if ok && !strings.EqualFold(authorization[:6], "bearer") {
			t.Errorf("%q was read as a bearer", authorization)
		}
		ip := clientip.Of(r, trusted)
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Errorf("X-Forwarded-For %q gave address %v, want a plain one", forwarded, ip)
		}
		_ = checkJSONType(mediaType)
		_, _ = wantsCSV("", mediaType)
		c := &Call{s: s, Exchange: web.Exchange{R: r, W: httptest.NewRecorder()}}
		c.setCORS(bearer)
		if allowed := c.W.Header().Get("Access-Control-Allow-Origin"); allowed != "" && !strings.HasPrefix(bearer, string(keyring.ScopedToken)) && !strings.HasPrefix(bearer, string(keyring.TestKey)) {
			t.Errorf("bearer %q from %q may be read by %q", bearer, origin, allowed)
		}
	})
}
