package clientip

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestForgottenProxyIsNoticed(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}
	for from, want := range map[string]bool{
		"10.0.0.5:1":           false, // not forgotten
		"10.0.0.6:1":           true,
		"127.0.0.1:1":          true,
		"[::ffff:10.0.0.6]:1":  true,
		"[fd00::1]:1":          true,
		"203.0.113.7:1":        false, // anybody can write that header
		"not an address":       false,
		"[2001:db8:1234::1]:1": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = from
		if _, ok := Forgotten(r, trusted); ok {
			t.Errorf("%s without the header is one", from)
		}
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		if _, ok := Forgotten(r, trusted); ok != want {
			t.Errorf("%s: %t", from, ok)
		}
	}
}
