package api

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"turnpike/internal/access"
	"turnpike/internal/clientip"
)

// FuzzHeaders: whatever a client writes into the headers that the edge reads,
// nothing breaks, and what comes out has the promised shape.
func FuzzHeaders(f *testing.F) {
	f.Add("Bearer tp_test_x", "1.2.3.4, 10.0.0.1", "application/json; charset=utf-8", "text/csv;q=0.5, */*", "http://localhost:3000")
	f.Add("bearer", ",,,", ";;;", ",", "null")
	f.Add("Basic \xff\x00", "[::1]:80, fe80::1%eth0", "a/b; x=\"", "text/csv", "http://[::1")
	trusted := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	s := &Server{}
	f.Fuzz(func(t *testing.T, authorization, forwarded, contentType, accept, origin string) {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"Authorization": {authorization}, "X-Forwarded-For": {forwarded}, "Origin": {origin}}
		bearer, ok := bearerOf(r)
		if ok && !strings.EqualFold(authorization[:6], "bearer") {
			t.Errorf("%q was read as a bearer", authorization)
		}
		ip := clientip.Of(r, trusted)
		if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() {
			t.Errorf("%q gave the address %v", forwarded, ip)
		}
		_ = checkJSONType(contentType)
		_, _ = wantsCSV("", accept)
		c := &Call{s: s, r: r, w: httptest.NewRecorder()}
		c.setCORS(bearer)
		if allowed := c.w.Header().Get("Access-Control-Allow-Origin"); allowed != "" && !strings.HasPrefix(bearer, access.PrefixScoped) && !strings.HasPrefix(bearer, access.PrefixTest) {
			t.Errorf("bearer %q from %q may be read by %q", bearer, origin, allowed)
		}
	})
}

func TestMaskedTextHoldsNoSecretAndFitsEveryStore(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"/v1/keys/tp_live_abcDEF123?":     "/v1/keys/tp_live_***?",
		"tp_test_a tp_scoped_b":           "tp_test_*** tp_scoped_***",
		"a\x00b\xffc":                     "a\uFFFDb\uFFFDc",
		strings.Repeat("é", 300)[:511+64]: strings.Repeat("é", 256),
		"plain":                           "plain",
	} {
		if got := masked(in, 512); got != want {
			t.Errorf("%q became %q", in, got)
		}
	}
	// A secret that reaches over the end is masked before the text is cut.
	if got := masked(strings.Repeat("x", 500)+"tp_live_abcdefghijklmnop", 512); strings.Contains(got, "abc") {
		t.Errorf("part of a secret is left: %q", got[490:])
	}
}
