// Package api is the HTTP edge: bytes in, bytes out. routes.go is the table of
// everything that can be called; each resource has a file.
package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/audit"
	"turnpike/internal/clientip"
	"turnpike/internal/connlimit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/gateway"
	"turnpike/internal/idempotency"
	"turnpike/internal/ids"
	"turnpike/internal/leaks"
	"turnpike/internal/limits"
	"turnpike/internal/media"
	"turnpike/internal/tunnel"
	"turnpike/internal/webhooks"
)

// Deps is everything the edge calls.
type Deps struct {
	DB          *db.DB
	Auth        *access.Authenticator
	Keys        *access.Keys
	Tokens      *access.Tokens
	Projects    *accounts.Directory
	Log         *audit.Log
	Refused     *audit.Refused
	Throttled   *audit.Throttled
	Limiter     *limits.Limiter
	Gateway     *gateway.Gateway
	Webhooks    *webhooks.Service
	Tunnels     *tunnel.Hub
	Files       *files.Store
	Media       *media.Service
	Agents      *agents.Service
	Leaks       *leaks.Service
	Idempotency *idempotency.Store
	Now         func() time.Time

	TrustedProxies []netip.Prefix
	AllowedOrigins []string
	Limits         Limits
	Rates          Rates
}

// Limits bound what one request may ask of the server.
type Limits struct {
	Body       int64 // bytes of a body
	ModelBody  int64 // bytes of a model call's body
	Header     int64 // bytes of all headers
	JSONDepth  int
	JSONValues int   // in a body, all together
	Bodies     int64 // bytes of all large bodies that are under way
	// BodyPatience is how long any body may take; a large one gets more.
	BodyPatience time.Duration
}

// Server is the http.Handler of the whole interface.
type Server struct {
	Deps
	v1     *http.ServeMux
	public *http.ServeMux
	bodies *bodyRoom
	// modelPatterns are the mux patterns of the routes of model requests.
	modelPatterns map[string]bool

	watching     context.Context // until StopWatching
	stopWatching context.CancelFunc
}

// StopWatching ends the streams of runs, which may be silent for days, so that a
// server that stops need not wait for them. Whoever watches goes on at the next
// one with Last-Event-ID.
func (s *Server) StopWatching() { s.stopWatching() }

// New builds the edge from the route table.
func New(d Deps) *Server {
	s := &Server{Deps: d, bodies: newBodyRoom(d.Limits.Bodies)}
	s.watching, s.stopWatching = context.WithCancel(context.Background())
	s.v1 = s.mux(Routes())
	s.modelPatterns = map[string]bool{}
	for _, rt := range modelRoutes() {
		s.modelPatterns[rt.Method+" "+rt.Path] = true
	}
	s.public = s.publicMux()
	return s
}

// ServeHTTP gives the request its id, its address and its end.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &Call{s: s, w: w, r: r, id: ids.New(ids.Request), start: s.Now(), ip: clientip.Of(r, s.TrustedProxies)}
	w.Header().Set("X-Request-Id", c.id)
	defer c.logLine()
	defer c.giveRoom()
	defer c.afterwards()
	s.serve(c)
	c.lookForKeys()
}

func (s *Server) serve(c *Call) {
	defer s.recovered(c)
	r := c.r
	if size := headerSize(r); size > s.Limits.Header {
		c.fail(fault.New(fault.RequestTooLarge, "the headers have %d bytes; at most %d are accepted", size, s.Limits.Header))
		return
	}
	if r.URL.Path == "/v1" || strings.HasPrefix(r.URL.Path, "/v1/") {
		s.serveV1(c)
		return
	}
	if !c.cleanPath() {
		c.fail(c.noRoute())
		return
	}
	s.public.ServeHTTP(c, r)
}

// serveV1 asks for a valid key first; only then does it look at the path.
func (s *Server) serveV1(c *Call) {
	bearer, hasBearer := bearerOf(c.r)
	c.setCORS(bearer)
	c.w.Header().Set("Cache-Control", "no-store") // secrets and other people's data; files say otherwise
	if isPreflight(c.r) {
		c.answerPreflight()
		return
	}
	leaked, err := s.endKeysInURL(c)
	if err == nil {
		err = s.enter(c, bearer, hasBearer)
	}
	if leaked {
		err = keyInURL(err)
	}
	if err != nil {
		c.fail(err)
		return
	}
	if !c.cleanPath() {
		c.fail(c.noRoute())
		return
	}
	s.v1.ServeHTTP(c, c.r)
}

// cleanPath: the mux redirects unclean paths, to a page that is not JSON; here
// they simply do not exist.
func (c *Call) cleanPath() bool {
	p := c.r.URL.Path
	return p == path.Clean(p) && plainText(p)
}

// enter lets the request in: a key first, and from then on it is in the log.
func (s *Server) enter(c *Call, bearer string, hasBearer bool) error {
	if err := s.authenticate(c, bearer, hasBearer); err != nil {
		return err
	}
	if c.r.ContentLength == 0 {
		connlimit.Authenticated(c.Context()) // readBody does it for other requests
	}
	c.record = s.Log.Open(c.entry())
	kind := s.kindOf(c.r)
	err := s.admit(c)
	if err != nil {
		kind = forbiddenRequest
	}
	if limited := c.limit(kind); limited != nil {
		return limited
	}
	return err
}

// authenticate finds the principal. Rejected keys are counted by address. If an
// address has made the store look up too many, its next keys aren't looked up
// unless this node has seen them valid before.
func (s *Server) authenticate(c *Call, bearer string, hasBearer bool) error {
	if wait := s.Refused.LookupWait(c.ip); hasBearer && wait > 0 && !s.Auth.IsKnown(bearer) {
		s.Refused.Add(c.ip, false)
		return tooManyRefused(wait)
	}
	p, err := s.Auth.Authenticate(c.r.Context(), bearer, c.ip.String())
	if err == nil {
		c.Principal = p
		return nil
	}
	if !fault.Is(err, fault.Authentication) || !hasBearer {
		return err
	}
	_, lookedUp := access.ParseSecret(bearer)
	if wait := s.Refused.Add(c.ip, lookedUp); wait > 0 {
		return tooManyRefused(wait)
	}
	return err
}

func tooManyRefused(wait time.Duration) error {
	e := fault.New(fault.RateLimitExceeded, "Too many rejected keys from this address. Try again in %d s.", int(wait.Seconds())+1)
	e.RetryAfter = wait
	return e
}

// still asks again who the caller is, after a body that may have taken its
// time: a key that was revoked meanwhile does nothing any more, and one that
// was narrowed or bound does what it still may.
func (c *Call) still() error {
	if c.bodyTook < bodyAtOnce {
		return nil
	}
	if err := c.reenter(); err != nil {
		return err
	}
	return c.useProject()
}

// reenter is for a call that takes longer than its key may last.
func (c *Call) reenter() error {
	bearer, _ := bearerOf(c.r)
	p, err := c.s.Auth.Authenticate(c.Context(), bearer, c.ip.String())
	if err != nil {
		return err
	}
	c.Principal = p
	if err := c.s.admit(c); err != nil {
		return err
	}
	return p.Require(c.scope)
}

// admit applies the rules that hold for every path: the browser rule, the
// key's addresses, the project.
func (s *Server) admit(c *Call) error {
	if err := s.checkBrowser(c); err != nil {
		return err
	}
	p := c.Principal
	if !p.AllowsIP(c.ip) {
		return fault.New(fault.IPNotAllowed, "this key may not be used from the address %s", c.ip)
	}
	project, err := p.ProjectFor(c.r.Header.Get("Service-Project"))
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

// recovered turns a panic into a 500 and a logged stack.
func (s *Server) recovered(c *Call) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v) // the server's own way to drop a connection
	}
	c.logPanic(v)
	if c.wrote {
		// The answer has begun: dropping the connection is the only way left
		// to say that it is not whole.
		c.settle(http.StatusInternalServerError, string(fault.Internal))
		panic(http.ErrAbortHandler)
	}
	c.fail(fault.New(fault.Internal, "something went wrong on our side; the request id helps to find out what"))
}

// headerSize is what the headers took on the wire, near enough.
func headerSize(r *http.Request) int64 {
	n := int64(len(r.Method) + len(r.RequestURI) + len(r.Host) + 16)
	for name, values := range r.Header {
		for _, v := range values {
			n += int64(len(name) + len(v) + 4)
		}
	}
	return n
}

// bearerOf returns the Authorization header's bearer value.
func bearerOf(r *http.Request) (value string, ok bool) {
	scheme, value, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if !found || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(value), true
}
