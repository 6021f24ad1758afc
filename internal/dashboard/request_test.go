package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"turnpike/internal/web"
)

// A container network may forward requests from any address, also a public one.
func TestPlaintextSignInWorksAtLocalhostOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		public, host, forwarded string
		want                    bool
	}{
		{"http://localhost:8080", "localhost:8080", "", true},
		{"http://localhost", "localhost", "", true},
		{"http://localhost:8080", "localhost:8080", "203.0.113.7", false}, // a proxy on that machine
		{"http://localhost:8080", "localhost:9090", "", false},
		{"http://localhost:8080", "192.0.2.7:8080", "", false},
		{"http://turnpike.example.com", "turnpike.example.com", "", false},
		{"http://turnpike.example.com", "localhost", "", false},
		{"https://localhost:8080", "localhost:8080", "", false},
		{"http://localhost.example.com", "localhost.example.com", "", false},
	} {
		public, err := url.Parse(c.public)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/dashboard/login", nil)
		r.Host, r.RemoteAddr = c.host, "198.51.100.4:1234"
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		req := &request{Exchange: web.Exchange{R: r}, s: &Server{Options: Options{TrustedProxies: func() []netip.Prefix { return nil }}, public: public}}
		if got := req.isPrivate(); got != c.want {
			t.Errorf("public_url %s, Host %s: got %t, want %t", c.public, c.host, got, c.want)
		}
	}
}
