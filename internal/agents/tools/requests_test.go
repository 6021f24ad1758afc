package tools

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/limits"
)

func TestHostIsNormalized(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://Example.COM/a":            "example.com",
		"https://example.com.:8443/":       "example.com",
		"https://xn--bcher-kva.example/":   "xn--bcher-kva.example",
		"http://127.0.0.1:80/":             "127.0.0.1",
		"http://[::FFFF:127.0.0.1]:90/":    "127.0.0.1",
		"https://[2606:4700:0::1111]/path": "2606:4700::1111",
	} {
		if got := hostOf(raw); got != want {
			t.Errorf("host of %s is %q, want %q", raw, got, want)
		}
	}
}

// none answers no request.
type none struct{}

func (none) RoundTrip(*http.Request) (*http.Response, error) { return nil, http.ErrHandlerTimeout }

// TestReservationCountsSentRequests: unsent requests are returned, and those
// beyond the first are paid for by the next reservation.
func TestReservationCountsSentRequests(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Now()
		l := &RequestLimits{Limiter: limits.New(d, "node_1", func() time.Time { return now }), PerWorkspace: 3, PerHost: 2, Now: func() time.Time { return now }}
		l.Limiter.StoreTimeout = time.Minute // a busy machine must not change the result
		reserve := func(env accounts.Environment, urls ...string) *Reservation {
			t.Helper()
			r, err := l.Reserve(accounts.Tenant{WorkspaceID: "ws_1", Environment: env}, urls...)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		refused := func(workspace string, urls ...string) {
			t.Helper()
			_, err := l.Reserve(accounts.Tenant{WorkspaceID: workspace, Environment: accounts.Live}, urls...)
			var refusal *limits.Refusal
			if !errors.As(err, &refusal) || refusal.RetryAfter <= 0 {
				t.Fatalf("a reservation over the limit returned %v, want a refusal", err)
			}
		}
		send := func(r *Reservation, raw string, n int) {
			t.Helper()
			for range n {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, raw, nil)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = r.Transport(none{}).RoundTrip(req)
			}
		}
		for range 9 {
			reserve(accounts.Live, "https://a.example", "https://b.example").Release()
		}
		first := reserve(accounts.Live, "https://a.example")
		send(first, "https://a.example", 1)
		first.Release()
		for range l.PerHost { // another workspace uses up a host
			r, err := l.Reserve(accounts.Tenant{WorkspaceID: "ws_2", Environment: accounts.Live}, "https://full.example")
			if err != nil {
				t.Fatal(err)
			}
			send(r, "https://full.example", 1)
			r.Release()
		}
		for range 9 { // a refusal keeps nothing
			refused("ws_1", "https://b.example", "https://full.example")
		}
		session := reserve(accounts.Live, "https://a.example")
		send(session, "https://A.example:8080", 4)
		session.Release()
		refused("ws_1", "https://b.example")
		refused("ws_2", "https://a.example")
		send(reserve(accounts.Test, "https://a.example"), "https://a.example", 1) // the other environment's
	})
}
