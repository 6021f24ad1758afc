package dashboard

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/agents"
	"turnpike/internal/agents/tools"
	"turnpike/internal/agents/toolservers"
	"turnpike/internal/audit"
	"turnpike/internal/clientip"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

type request struct {
	web.Exchange
	s *Server

	session   *people.Session      // nil if not signed in
	workspace *accounts.Workspace  // nil outside of a workspace
	role      accounts.Role        // in the workspace
	env       accounts.Environment // that the page shows
	principal *access.Principal    // the person in the workspace and environment

	problem    formErrors // why the form that is shown again was rejected
	flash      flash      // message of the previous page
	restored   url.Values // form fields from before the person had to confirm
	discarded  url.Values // what was sent to a form that someone else changed meanwhile
	background bool       // a refresh of a live page, not sent by the person

	// Several parts of a page show these.
	operator  readOnce[bool]
	runs      readOnce[*db.Found[*agents.Run]] // that need a decision
	toolCalls readOnce[[]*toolservers.Approval]
}

// readOnce is a value that a page reads at most once.
type readOnce[T any] struct {
	value T
	done  bool
}

func (o *readOnce[T]) get(read func() (T, error)) (value T, err error) {
	if !o.done {
		o.value, err = read()
		o.done = err == nil
	}
	return o.value, err
}

func (req *request) now() time.Time { return req.s.Now() }

// browser describes the client, for the records of people.
func (req *request) browser() people.Browser {
	return people.Browser{IP: req.IP.String(), UserAgent: req.R.UserAgent(), RequestID: req.ID, Device: req.cookie(deviceCookie)}
}

// actor returns who acts, for the admin log.
func (req *request) actor() audit.Actor {
	return audit.Actor{Name: req.session.UserID, IP: req.IP.String(), RequestID: req.ID}
}

// decider returns who decides about tool calls.
func (req *request) decider() tools.Decider {
	return tools.Decider{Principal: req.principal, Actor: req.actor(), Role: req.role}
}

// caller returns who manages keys.
func (req *request) caller() access.Caller {
	return access.Caller{Principal: req.principal, Actor: req.actor()}
}

// recordChange returns the person's change of the record in the path.
func recordChange[T any](req *request, apply func(*T) error) audit.Change[T] {
	return audit.Change[T]{By: req.actor(), Visibility: req.principal.Visibility(), ID: req.id(), Apply: apply}
}

func (req *request) write(fn func(tx *db.Tx) error) error { return req.s.DB.Write(req.Context(), fn) }

// writeValue is write for a function with a result.
func writeValue[T any](req *request, fn func(tx *db.Tx) (T, error)) (out T, err error) {
	err = req.write(func(tx *db.Tx) (err error) {
		out, err = fn(tx)
		return err
	})
	return out, err
}

// save runs fn in a transaction and redirects to a page, which shows the notice.
func (req *request) save(to, notice string, fn func(tx *db.Tx) error) (*view, error) {
	if err := req.write(fn); err != nil {
		return nil, err
	}
	return req.redirect(to, flash{Notice: notice})
}

const (
	// formTimeout is how long a form may take to arrive, and pageTimeout how long
	// a browser may take to accept a page.
	formTimeout = 15 * time.Second
	pageTimeout = 30 * time.Second
)

// setDeadlines limits how long the browser may take. The zero time is no limit.
func setDeadlines(w http.ResponseWriter, form, page time.Time) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(form)
	_ = control.SetWriteDeadline(page)
}

// form returns a field of the form, without surrounding white space and characters
// that the database rejects.
func (req *request) form(name string) string { return cleanText(req.R.PostFormValue(name)) }

func cleanText(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", ""))
}

func (req *request) query(name string) string {
	s := strings.TrimSpace(req.R.URL.Query().Get(name))
	if strings.ContainsRune(s, 0) {
		return ""
	}
	return strings.ToValidUTF8(s, "")
}

// id returns the ID in the path, which authorize has checked.
func (req *request) id() string { return req.R.PathValue("id") }

func (req *request) base() string {
	return "/dashboard/w/" + req.workspace.In(req.env).Path() + "/"
}

// to returns the path of another page of the same workspace and environment. The
// caller escapes it.
func (req *request) to(page string) string { return req.base() + page }

func (req *request) secure() bool {
	return clientip.IsHTTPS(req.R, req.s.public, req.s.TrustedProxies())
}

// isPrivate reports whether the browser uses one of the server's own addresses and
// no one can read the connection: public_url over HTTPS, or this machine.
func (req *request) isPrivate() bool {
	return req.secure() && req.atPublicHost() || req.fromThisMachine() || req.atLocalhost()
}

// atLocalhost reports whether public_url is http://localhost and the browser uses
// it. Then the browser and the published port are on one machine, from whichever
// address a container network forwards the request.
func (req *request) atLocalhost() bool {
	return req.s.public.Scheme == "http" && req.s.public.Hostname() == "localhost" && req.atPublicHost() && !req.throughProxy()
}

func (req *request) atPublicHost() bool { return clientip.SameHost(req.R.Host, req.s.public) }

// fromThisMachine reports whether the browser runs on this machine. Requests
// through the published port of a container come from a private address.
func (req *request) fromThisMachine() bool {
	peer, ok := clientip.Peer(req.R)
	return ok && (peer.IsLoopback() || peer.IsPrivate()) && isLocal(req.R.Host) && !req.throughProxy()
}

// throughProxy reports whether a proxy on this machine has forwarded the request,
// so that the browser is somewhere else.
func (req *request) throughProxy() bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if req.R.Header.Get(name) != "" {
			return true
		}
	}
	origin, err := url.Parse(req.R.Header.Get("Origin"))
	return err != nil || origin.Host != "" && !isLocal(origin.Host)
}

func isLocal(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.Trim(name, "[]")
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}

// origin returns the address at which the browser has opened the dashboard, or nil
// if it isn't one of the server's own: public_url, or a loopback name with the
// port that the server listens on. Another port is another program, which must
// not be able to forward credentials.
func (req *request) origin() *url.URL {
	if public := req.s.public; req.atPublicHost() && req.secure() == (public.Scheme == "https") {
		return public
	}
	host := &url.URL{Scheme: "http", Host: req.R.Host}
	if req.R.TLS != nil {
		host.Scheme = "https"
	}
	if req.fromThisMachine() && host.Port() == req.s.listens.Port() {
		return host
	}
	return nil
}

// redirect redirects to another page of the dashboard, which shows the flash. It returns
// no view.
func (req *request) redirect(to string, f flash) (*view, error) {
	if f != (flash{}) {
		req.setSealed(flashCookie, req.flashContext(), f, flashLifetime)
	}
	req.W.Header().Set("Location", to)
	req.WriteHeader(http.StatusSeeOther)
	return nil, nil
}

// dashboardPath returns the path of a URL if the dashboard serves it, or Home, so that
// no one is redirected to another site.
func dashboardPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, Home) || strings.Contains(s, "\\") {
		return Home
	}
	return u.RequestURI()
}

func (req *request) fail(err error) {
	f := req.Fault(err)
	if req.Started {
		return
	}
	status := fault.FamilyOf(f.Code).Status
	req.setRetryAfter(f)
	req.show(&view{template: "problem", title: cmp.Or(problemTitles[status], "Something went wrong"), status: status, data: f})
}

func (req *request) setRetryAfter(f *fault.Error) {
	if f.RetryAfter > 0 {
		web.SetRetryAfter(req.W.Header(), f.RetryAfter)
	}
}

var problemTitles = map[int]string{http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed", http.StatusServiceUnavailable: "Try again shortly"}

// limitAnonymous counts an action that stores something before the person is
// known, or rejects it.
func (req *request) limitAnonymous() error {
	wait := req.s.anonymous.Allow(req.IP)
	if wait == 0 {
		return nil
	}
	f := fault.New(fault.RateLimitExceeded, "Too many attempts from your address. Try again in a minute.")
	f.RetryAfter = wait
	return f
}

// sendCSV sends a part of a file, after the headers if it is the first.
func (req *request) sendCSV(name string, part []byte) {
	if !req.Started {
		h := req.W.Header()
		h.Set("Content-Type", "text/csv; charset=utf-8")
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
		req.WriteHeader(http.StatusOK)
	}
	if req.stream(part) != nil {
		panic(http.ErrAbortHandler) // the browser disconnected
	}
}

// stream sends a part of a long response.
func (req *request) stream(part []byte) error {
	control := http.NewResponseController(req.W)
	_ = control.SetWriteDeadline(time.Now().Add(sendTimeout))
	_, err := req.W.Write(part)
	err = cmp.Or(err, control.Flush())
	_ = control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a silent stream at its deadline
	return err
}

// failDownload returns an error, or breaks the connection if the file has begun: an
// incomplete file must not look complete.
func (req *request) failDownload(err error) error {
	if req.Started {
		req.Fault(err)
		panic(http.ErrAbortHandler)
	}
	return err
}
