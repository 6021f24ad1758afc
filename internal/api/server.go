// Package api serves the HTTP API. routes.go is the table of all endpoints; each
// resource has a file.
package api

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/apifiles"
	"turnpike/internal/archive"
	"turnpike/internal/audit"
	"turnpike/internal/background"
	"turnpike/internal/batches"
	"turnpike/internal/budget"
	"turnpike/internal/connlimit"
	"turnpike/internal/contentlog"
	"turnpike/internal/conversations"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/federation"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/idempotency"
	"turnpike/internal/leaks"
	"turnpike/internal/limits"
	"turnpike/internal/media"
	"turnpike/internal/modelroutes"
	"turnpike/internal/notifications"
	"turnpike/internal/operators"
	"turnpike/internal/spend"
	"turnpike/internal/tunnel"
	"turnpike/internal/web"
	"turnpike/internal/webhooks"
)

// Deps holds everything that the API calls.
type Deps struct {
	DB          *db.DB
	Auth        *access.Authenticator
	Keys        *access.Keys
	Tokens      *access.Tokens
	Projects    *accounts.Directory
	Log         *audit.Log
	Settler     *spend.Settler
	Refused     *audit.Refused
	Throttled   *audit.Throttled
	Limiter     *limits.Limiter
	Gateway     *gateway.Gateway
	Webhooks    *webhooks.Service
	Tunnels     *tunnel.Hub
	Files       *files.Store
	Media       *media.Service
	Agents      *agents.Service
	ToolServers *toolservers.Service
	Routes      *modelroutes.Service
	Leaks       *leaks.Service
	Federation  *federation.Service
	Idempotency *idempotency.Store

	Conversations *conversations.Store
	Contents      *contentlog.Store
	Archive       *archive.Archive // nil without one
	APIFiles      *apifiles.Store
	Background    *background.Service
	Notifications *notifications.Service
	Batches       *batches.Service
	Now           func() time.Time

	Operators   operators.Credentials
	Definitions operators.Manager

	PublicURL string
	Version   string
}

// Settings are the settings that Apply can change while requests are in progress.
type Settings struct {
	Limits         Limits
	Rates          Rates
	TrustedProxies []netip.Prefix
	AllowedOrigins []string // of browsers, for live keys
}

// Limits bound what one request may ask of the server.
type Limits struct {
	Body       int64 // bytes of a body
	ModelBody  int64 // bytes of a model request's body
	Header     int64 // bytes of all headers
	JSONDepth  int
	JSONValues int // total number of values in a body
	// BodyTimeout is how long any body may take; a large one gets more.
	BodyTimeout time.Duration
}

// Server is the http.Handler of the API.
type Server struct {
	Deps
	settings atomic.Pointer[Settings] // a request uses those with which it began
	mux      *http.ServeMux
	// writeTimeout is how long a client may take to accept a chunk of a response.
	// The whole response has no limit.
	writeTimeout time.Duration

	watching     context.Context // until StopWatching
	stopWatching context.CancelFunc

	toolCalls toolCalls
	watcher   watcher
}

// StopWatching ends the streams of agent runs, which may be silent for days, so
// that shutdown need not wait for them. Clients resume elsewhere with
// Last-Event-ID.
func (s *Server) StopWatching() { s.stopWatching() }

// New builds the API from the route table.
func New(d Deps, settings Settings) *Server {
	s := &Server{Deps: d, writeTimeout: 30 * time.Second}
	s.settings.Store(&settings)
	s.watching, s.stopWatching = context.WithCancel(context.Background())
	s.mux = s.newMux()
	if d.DB != nil { // tests of the reference have none
		d.DB.OnSignal(signalCancelTool, s.toolCalls.cancel)
	}
	return s
}

// Apply replaces the settings for requests that begin from now on.
func (s *Server) Apply(settings Settings) {
	s.settings.Store(&settings)
}

// ServeHTTP serves a request. ServeMux would redirect unclean paths to a page
// that isn't JSON, so they get a 404 here.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.Path; !strings.HasPrefix(p, "/") || p != path.Clean(p) || !web.ValidText(p) {
		s.serve(w, r, Route{handle: (*Call).notFound}, kindOf(r.Method))
		return
	}
	s.mux.ServeHTTP(w, translateCohere(translateAzure(r)))
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt Route, kind requestKind) {
	settings := s.settings.Load()
	ctx, own := budget.Begin(r.Context(), "")
	defer own.Release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &Call{Exchange: web.NewExchange(w, r.WithContext(ctx), settings.TrustedProxies, s.Now()), s: s, Settings: settings, route: rt, kind: kind, budget: own, cancel: cancel}
	if usesAnthropicFormat(r) {
		w.Header().Set("Request-Id", c.ID) // which Anthropic's SDKs read
	}
	defer c.logAccess()
	defer c.runDeferred()
	c.respond()
	if c.watched {
		s.watcher.remove(c)
	}
	c.scanBodyForKeys()
}

func (c *Call) respond() {
	defer func() { c.HandlePanic(recover(), c.failPanicked) }()
	if size := headerSize(c.R); size > c.Limits.Header {
		c.fail(fault.New(fault.RequestTooLarge, "The headers have %d bytes. The limit is %d.", size, c.Limits.Header))
		return
	}
	handle := c.route.handle
	switch p := c.R.URL.Path; {
	case isUnder(p, "/v1") || isUnder(p, mcpPath) || isUnder(p, azurePath):
		handle = (*Call).handleV1
	case isUnder(p, adminPath):
		handle = (*Call).handleAdmin
	}
	if err := handle(c); err != nil {
		c.fail(err)
	}
}

// handleV1 requires a valid key before it looks at the route.
func (c *Call) handleV1() error {
	bearer, hasBearer, conflict := credential(c.R)
	c.setCORS(bearer)
	c.W.Header().Set("Cache-Control", "no-store") // overridden for files
	if isPreflight(c.R) {
		c.answerPreflight()
		return nil
	}
	leaked, err := c.revokeKeysInURL()
	if err == nil {
		err = conflict
	}
	if err == nil {
		err = c.authorize(bearer, hasBearer)
	}
	if leaked {
		err = keyInURLFault(err)
	}
	if err != nil {
		return err
	}
	if c.route.Scope != "" {
		if err := c.Principal.Require(c.route.Scope); err != nil {
			return err
		}
		if err := c.useProject(); err != nil {
			return err
		}
		if err := c.route.checkID(c.R); err != nil {
			return err
		}
		if err := c.openContent(); err != nil {
			return err
		}
	}
	if showsRequests(c.route.Scope) {
		c.s.Settler.CatchUp(c.Context())
	}
	return c.route.handle(c)
}

// showsRequests reports whether the endpoints of a scope return the request log, usage or
// balances. A client expects its own requests in them.
func showsRequests(s access.Scope) bool {
	switch s {
	case access.AuditRead, access.UsageRead, access.BillingRead, access.BillingWrite, access.KeysRead, access.KeysWrite, access.ProjectsRead, access.ProjectsWrite, access.UsersRead, access.UsersWrite:
		return true
	}
	return false
}

// authorize authenticates the request, opens its log entry, applies the key's
// rules and counts the request toward the rate limits.
func (c *Call) authorize(bearer string, hasBearer bool) error {
	if err := c.authenticate(bearer, hasBearer); err != nil {
		return err
	}
	if c.R.ContentLength == 0 {
		connlimit.Authenticated(c.Context()) // readBody does it for other requests
	}
	c.record = c.s.Log.Open(c.entry())
	err := c.checkKeyRules()
	kind := c.kind
	if err != nil {
		kind = forbiddenRequest
	}
	if limited := c.limit(kind); limited != nil {
		return limited
	}
	return err
}

// authenticate finds the principal. Rejected keys are counted by address. If an
// address has made the database look up too many, its next keys aren't looked up
// unless this node has seen them valid before.
func (c *Call) authenticate(bearer string, hasBearer bool) error {
	rejected := c.s.Refused
	if wait := rejected.LookupWait(c.IP); hasBearer && wait > 0 && !c.s.Auth.IsKnown(bearer) {
		rejected.Add(c.IP, false)
		return retryAfter(wait, tooManyRejected)
	}
	p, err := c.s.Auth.Authenticate(c.Context(), bearer, c.IP.String())
	if err == nil {
		c.Principal = p
		c.budget.SetOwner(p.WorkspaceID)
		return nil
	}
	if !fault.Is(err, fault.Authentication) || !hasBearer {
		return err
	}
	_, lookedUp := access.ParseSecret(bearer)
	return cmp.Or(retryAfter(rejected.Add(c.IP, lookedUp), tooManyRejected), err)
}

const tooManyRejected = "Too many rejected keys from this address."

// retryAfter returns a rate limit error, unless there is nothing to wait for.
func retryAfter(wait time.Duration, problem string) error {
	if wait <= 0 {
		return nil
	}
	f := fault.New(fault.RateLimitExceeded, "%s Retry in %d s.", problem, int(wait.Seconds())+1)
	f.RetryAfter = wait
	return f
}

// reauthenticate repeats the checks of the key before a request that has taken long changes something.
func (c *Call) reauthenticate() error {
	p, err := c.currentPrincipal(c.Context(), c.Project)
	if err != nil {
		return err
	}
	c.Principal = p
	return c.checkKeyRules()
}

// checkKeyRules applies the rules that hold for every path: use in browsers, the
// key's addresses and the project.
func (c *Call) checkKeyRules() error {
	if err := c.checkBrowser(); err != nil {
		return err
	}
	p := c.Principal
	if !p.AllowsIP(c.IP) {
		return ipNotAllowed(c.IP)
	}
	project, err := p.ProjectFor(c.R.Header.Get("Service-Project"))
	if err != nil || project == "" {
		return err
	}
	if err := accounts.CheckProjectID("Service-Project", project); err != nil {
		return err
	}
	c.Project = project
	c.record.Note(func(e *audit.Entry) { e.Project = project })
	return nil
}

func ipNotAllowed(ip netip.Addr) error {
	return fault.New(fault.IPNotAllowed, "This key cannot be used from address %s.", ip)
}

// headerSize estimates the size of the headers on the wire.
func headerSize(r *http.Request) int64 {
	n := int64(len(r.Method) + len(r.RequestURI) + len(r.Host) + 16)
	for name, values := range r.Header {
		for _, v := range values {
			n += int64(len(name) + len(v) + 4)
		}
	}
	return n
}
