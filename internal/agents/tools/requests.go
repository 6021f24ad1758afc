package tools

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/limits"
)

// RequestLimits limits the HTTP requests that tools, MCP sessions and checks
// send. Test and live have separate limits, so that test never starves live.
type RequestLimits struct {
	Limiter        *limits.Limiter
	PerWorkspace   int64    // requests per minute; 0 for no limit
	PerHost        int64    // requests per minute of all workspaces together; 0 for no limit
	UnlimitedHosts []string // hosts to which PerHost doesn't apply
	Now            func() time.Time
}

// Reserve takes the first request to the hosts of urls, or returns a *limits.Refusal. Every further
// request counts when it is sent, even if that exceeds the limits: the next reservation waits for
// it. So a started session is never interrupted, and a long one can't starve. A nil *RequestLimits
// limits nothing.
func (l *RequestLimits) Reserve(t accounts.Tenant, urls ...string) (*Reservation, error) {
	if l == nil {
		return nil, nil
	}
	r := &Reservation{now: l.Now, holders: 1, hosts: map[string]*meter{}}
	add := func(id string, perMinute int64) (*meter, error) {
		// A reservation adjusts what it took, which limits offers for tokens.
		ticket, err := l.Limiter.Begin(id, limits.Limits{TokensPerMinute: perMinute}, 1, l.Now())
		if err != nil {
			r.Release()
			return nil, err
		}
		return &meter{ticket: ticket}, nil
	}
	var err error
	if r.workspace, err = add("tools/"+t.Path(), l.PerWorkspace); err != nil {
		return nil, err
	}
	for _, raw := range urls {
		host := hostOf(raw)
		unlimited := func(name string) bool { return normalHost(name) == host }
		if r.hosts[host] != nil || slices.ContainsFunc(l.UnlimitedHosts, unlimited) {
			continue
		}
		m, err := add("toolhost/"+string(t.Environment)+"/"+host, l.PerHost)
		if err != nil {
			return nil, err
		}
		r.hosts[host] = m
	}
	return r, nil
}

// Reservation counts the requests of one tool call, one list of MCP tools or one
// verification. A nil Reservation counts nothing.
type Reservation struct {
	now func() time.Time

	mu        sync.Mutex
	holders   int
	workspace *meter
	hosts     map[string]*meter
}

type meter struct {
	ticket *limits.Ticket
	sent   int64
}

func (m *meter) count(now time.Time) {
	if m == nil {
		return
	}
	if m.sent++; m.sent > 1 { // the first was reserved
		m.ticket.Adjust(m.sent, now)
	}
}

// release ends the ticket, and returns the reserved request if it wasn't sent.
func (m *meter) release(now time.Time) {
	if m == nil {
		return
	}
	if m.sent == 0 {
		m.ticket.Adjust(0, now)
	}
	m.ticket.End()
}

// Transport returns base with its requests counted.
func (r *Reservation) Transport(base http.RoundTripper) http.RoundTripper {
	if r == nil {
		return base
	}
	return counting{base, r}
}

type counting struct {
	base        http.RoundTripper
	reservation *Reservation
}

func (t counting) RoundTrip(req *http.Request) (*http.Response, error) {
	t.reservation.count(req.URL)
	return t.base.RoundTrip(req)
}

func (r *Reservation) count(to *url.URL) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.workspace.count(now)
	r.hosts[normalHost(to.Hostname())].count(now)
}

// hold keeps the reservation open until one more Release.
func (r *Reservation) hold() *Reservation {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.holders++
	}
	return r
}

// Release ends the reservation. Requests that weren't sent don't count.
func (r *Reservation) Release() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders--; r.holders > 0 {
		return
	}
	now := r.now()
	r.workspace.release(now)
	for _, m := range r.hosts {
		m.release(now)
	}
}

// hostOf returns the normalized host of a URL that was checked when the run was
// created: only its host, so that all ports count together.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return normalHost(u.Hostname())
}

// normalHost writes a host in one way. International names arrive in punycode: others are refused.
func normalHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
