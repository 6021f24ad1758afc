package clientip

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
)

func TestUntrustedProxyIsDetected(t *testing.T) {
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
		if _, ok := UntrustedProxy(r, trusted); ok {
			t.Errorf("%s without the header is one", from)
		}
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		if _, ok := UntrustedProxy(r, trusted); ok != want {
			t.Errorf("%s: %t", from, ok)
		}
	}
}

func TestHTTPSIsOnlyTrustedFromConnectionOrTrustedProxy(t *testing.T) {
	t.Parallel()
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")}
	for _, c := range []struct {
		name, peer, host, public string
		tls, want                bool
	}{
		{name: "TLS on the connection", peer: "203.0.113.7:1", host: "anything", public: "http://127.0.0.1:8080", tls: true, want: true},
		{name: "trusted proxy", peer: "10.0.0.5:1", host: "tp.example", public: "https://tp.example", want: true},
		{name: "trusted proxy, default port", peer: "10.0.0.5:1", host: "TP.example:443", public: "https://tp.example", want: true},
		{name: "trusted proxy, other port", peer: "10.0.0.5:1", host: "tp.example:8443", public: "https://tp.example"},
		{name: "trusted proxy, other host", peer: "10.0.0.5:1", host: "other.example", public: "https://tp.example"},
		{name: "trusted proxy, plain public URL", peer: "10.0.0.5:1", host: "tp.example", public: "http://tp.example"},
		{name: "stranger", peer: "203.0.113.7:1", host: "tp.example", public: "https://tp.example"},
		{name: "loopback", peer: "127.0.0.1:1", host: "tp.example", public: "https://tp.example"},
		{name: "no address", peer: "@", host: "tp.example", public: "https://tp.example"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr, r.Host = c.peer, c.host
		r.Header.Set("X-Forwarded-Proto", "https")
		if c.tls {
			r.TLS = &tls.ConnectionState{}
		}
		public, err := url.Parse(c.public)
		if err != nil {
			t.Fatal(err)
		}
		if got := IsHTTPS(r, public, trusted); got != c.want {
			t.Errorf("%s: IsHTTPS is %t, want %t", c.name, got, c.want)
		}
	}
}
