// Package dashboard serves the web pages. routes.go is the table of all of them;
// each page has a file here and a template of the same name.
//
// A request holds the person, the workspace and environment and what the person's
// role allows. A page builds a view from it; an action changes something and
// redirects to a page. Nothing needs JavaScript; static/scripts is an enhancement.
package dashboard

import (
	"html/template"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/addrlimit"
	"turnpike/internal/agents"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/apifiles"
	"turnpike/internal/archive"
	"turnpike/internal/batches"
	"turnpike/internal/clientip"
	"turnpike/internal/contentlog"
	"turnpike/internal/db"
	"turnpike/internal/federation"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
	"turnpike/internal/mail"
	"turnpike/internal/media"
	"turnpike/internal/modelroutes"
	"turnpike/internal/notifications"
	"turnpike/internal/operators"
	"turnpike/internal/people"
	"turnpike/internal/spend"
	"turnpike/internal/webhooks"
)

// Home is the path of the dashboard.
const Home = "/dashboard/"

// Options holds everything that the pages show and call.
type Options struct {
	DB          *db.DB
	Ring        *keyring.Ring
	People      *people.People
	Keys        *access.Keys
	Tokens      *access.Tokens
	Settler     *spend.Settler
	Webhooks    *webhooks.Service
	Media       *media.Service
	Agents      *agents.Service
	ToolServers *toolservers.Service
	Routes      *modelroutes.Service
	Gateway     *gateway.Gateway
	Leaks       *leaks.Service
	Federation  *federation.Service
	Files       *files.Store
	APIFiles    *apifiles.Store
	Contents    *contentlog.Store
	Archive     *archive.Archive // nil without one
	Batches     *batches.Service
	Outbox      *mail.Outbox
	// Notifications are the settings of the workspace's incoming webhook.
	Notifications *notifications.Service
	Definitions   operators.Manager

	PublicURL string
	ListenURL string // of the server itself, even behind a proxy
	Now       func() time.Time

	// A reload changes the results of these functions.
	SignIn         func() *SignInProvider // nil without OpenID Connect
	TrustedProxies func() []netip.Prefix
	Facts          func() Facts
}

// SignInProvider is the operator's OpenID Connect provider.
type SignInProvider struct {
	Name     string // on the button
	Provider *people.Provider
}

// Facts are the operator's settings that pages show.
type Facts struct {
	Version          string
	ConfigHash       string          // of this node's settings
	RetryAfter       []time.Duration // of webhooks
	LogRetentionDays int             // 0 means forever
	MailServer       string          // host and port, or empty
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

// anonymousPerMinute limits how often an address may do what stores a row before
// the person is known: passkey challenges, sign-ins at a provider, emails with a
// link.
const anonymousPerMinute = 30

// Server is the http.Handler of the dashboard.
type Server struct {
	Options
	public    *url.URL
	listens   *url.URL
	mux       *http.ServeMux
	sameSite  *http.CrossOriginProtection
	pages     *pages
	anonymous *addrlimit.Limiter
	live      *liveStreams
}

// New builds the dashboard from the route table.
func New(o Options) (*Server, error) {
	public, err := url.Parse(o.PublicURL)
	if err != nil {
		return nil, err
	}
	listens, err := url.Parse(o.ListenURL)
	if err != nil {
		return nil, err
	}
	s := &Server{Options: o, public: public, listens: listens, sameSite: http.NewCrossOriginProtection(), pages: &pages{parsed: map[string]*template.Template{}},
		anonymous: addrlimit.New(anonymousPerMinute, o.Now), live: newLiveStreams()}
	// A proxy may change the Host header, but not the browser's Origin.
	if err := s.sameSite.AddTrustedOrigin(clientip.Origin(public)); err != nil {
		return nil, err
	}
	s.mux = s.newMux(Routes())
	return s, nil
}

// Serves reports whether the dashboard serves the path.
func Serves(path string) bool {
	return path == "/" || path == "/dashboard" || strings.HasPrefix(path, Home)
}

// policy allows only resources of this server, without inline scripts and styles.
// Images may be data: URLs, for the QR code of an authenticator app and the playground's
// images, and its speech is a blob: URL.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; media-src 'self' blob:; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
	if p == "/" || p == "/dashboard" {
		s.serve(w, r, redirectRoute(Home))
		return
	}
	if clean := path.Clean(p); clean != p && clean+"/" != p {
		s.serve(w, r, notFoundRoute)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func setSecurityHeaders(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// maxForm is the largest form: a key's scopes and addresses are a few kilobytes.
const maxForm = 256 << 10
