// Package dashboard is the pages for people. routes.go is the table of all of
// them; each page has a file here and a template of the same name.
//
// A request becomes a visit: who is there, which workspace and environment they
// look at, and what their role allows. A page builds a view from it, a deed
// changes something and leads to a page. Nothing needs JavaScript; static/app.js
// makes it better.
package dashboard

import (
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/clientip"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/mail"
	"turnpike/internal/media"
	"turnpike/internal/people"
	"turnpike/internal/visitors"
	"turnpike/internal/webhooks"
)

// Home is where the dashboard begins.
const Home = "/dashboard/"

// Options is everything the pages show and call.
type Options struct {
	DB       *db.DB
	Ring     *keyring.Ring
	People   *people.People
	Keys     *access.Keys
	Tokens   *access.Tokens
	Webhooks *webhooks.Service
	Media    *media.Service
	Agents   *agents.Service
	Leaks    *leaks.Service
	Files    *files.Store
	Outbox   *mail.Outbox
	SignIn   *SignInProvider // nil without OpenID Connect

	PublicURL      string
	ListenURL      string // where the server itself is, behind a proxy or not
	TrustedProxies []netip.Prefix
	Facts          Facts
	Now            func() time.Time
}

// SignInProvider is the operator's provider of OpenID Connect.
type SignInProvider struct {
	Name     string // on the button
	Provider *people.Provider
}

// Facts are settings of the operator's that people see and cannot change here.
type Facts struct {
	Version          string
	RetryAfter       []time.Duration // of webhooks
	LogRetentionDays int
	MailServer       string // host and port, or empty
	MailFrom         string

	WebhookTimeout time.Duration
	FileRetention  time.Duration
	BodyBytes      int64 // of a request
	ModelBodyBytes int64 // of a model call
	LiveRequests   int   // of a key in a minute; 0 for no limit
	LiveTokens     int
	LiveInFlight   int
	TestRequests   int
	TestFactor     int
	Providers      []string // by name

	TestTools    accounts.ToolMode // of workspaces that set none
	ToolRequests int               // of tools and checks of a workspace in a minute; 0 for no limit
	HostRequests int               // of them to one host
}

// strangersPerMinute is how often an address may begin what leaves a row behind
// without anybody being known: passkey challenges, sign-ins at a provider, mails
// with a link.
const strangersPerMinute = 30

// Server is the http.Handler of the pages.
type Server struct {
	Options
	public    *url.URL
	listens   *url.URL
	mux       *http.ServeMux
	sameSite  *http.CrossOriginProtection
	pages     *pages
	strangers *visitors.Counter
	watchers  *watchers
}

// New builds the pages from the table.
func New(o Options) (*Server, error) {
	public, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, err
	}
	listens, err := url.Parse(o.ListenURL)
	if err != nil {
		return nil, err
	}
	s := &Server{Options: o, public: public, listens: listens, sameSite: http.NewCrossOriginProtection(), pages: newPages(),
		strangers: visitors.New(strangersPerMinute, o.Now), watchers: newWatchers()}
	// Behind a proxy that changes the Host, the browser still says where it is.
	if err := s.sameSite.AddTrustedOrigin(clientip.Origin(public)); err != nil {
		return nil, err
	}
	s.mux = s.newMux(routes())
	return s, nil
}

// Serves reports whether a path is the dashboard's.
func Serves(path string) bool {
	return path == "/" || path == "/dashboard" || strings.HasPrefix(path, Home)
}

// policy allows what comes from here and nothing else, and no inline script or
// style. Pictures may be data, for the code that an authenticator app reads.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP answers a request for a page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{s: s, w: w, r: r, id: ids.New(ids.Request), ip: clientip.Of(r, s.TrustedProxies), start: s.Now()}
	h := w.Header()
	h.Set("X-Request-Id", v.id)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	defer v.logLine()
	defer v.recovered()
	v.hurry()
	defer v.takeYourTime() // the connection may serve others after us

	if r.URL.Path == "/" || r.URL.Path == "/dashboard" {
		http.Redirect(w, r, Home, http.StatusSeeOther)
		return
	}
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
		v.fail(fault.New(fault.NotFound, "there is no such page"))
		return
	}
	if err := s.sameSite.Check(r); err != nil {
		v.fail(fault.New(fault.InsufficientScope, "this came from another site and was not done; open the dashboard and do it there").Because(err))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	s.mux.ServeHTTP(v, r)
}

// maxForm is the largest form: a key's scopes and addresses are a few kilobytes.
const maxForm = 256 << 10

func (v *visit) recovered() {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler { //nolint:errorlint // a panic value, compared as net/http does
		panic(p)
	}
	slog.Error("panic", "request_id", v.id, "path", v.loggedPath(), "panic", p, "stack", string(debug.Stack()))
	v.fail(fault.New(fault.Internal, "something went wrong on our side"))
}
