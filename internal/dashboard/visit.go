package dashboard

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/clientip"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/people"
)

// visit is one request on its way to a page. It goes through the mux as the
// http.ResponseWriter, so that a page finds it again.
type visit struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	id    string
	ip    netip.Addr
	start time.Time

	session   *people.Session      // nil for somebody who is not signed in
	workspace *accounts.Workspace  // nil outside of a workspace
	role      accounts.Role        // in it
	env       accounts.Environment // that is looked at
	principal *access.Principal    // the person in workspace and environment

	problem *fault.Error // why the form that is shown again was refused
	flash   *flash       // what the page before has left to say
	typed   url.Values   // into the page's form, before a proof was asked for
	watches bool         // it is a look at a page that is open, and not somebody's doing
	wrote   bool
	status  int
	cause   error
}

// Header, Write, WriteHeader and Unwrap are those of the connection.
func (v *visit) Header() http.Header         { return v.w.Header() }
func (v *visit) Write(b []byte) (int, error) { return v.w.Write(b) }
func (v *visit) Unwrap() http.ResponseWriter { return v.w }
func visitOf(w http.ResponseWriter) *visit   { return w.(*visit) }

// WriteHeader remembers the status for the log.
func (v *visit) WriteHeader(status int) {
	v.wrote, v.status = true, status
	v.w.WriteHeader(status)
}

func (v *visit) ctx() context.Context { return v.r.Context() }
func (v *visit) now() time.Time       { return v.s.Now() }

// browser is where the visit comes from, for the records of people.
func (v *visit) browser() people.Browser {
	return people.Browser{IP: v.ip.String(), UserAgent: v.r.UserAgent(), RequestID: v.id, Device: v.cookie(deviceCookie)}
}

// actor is who acts, for the admin log.
func (v *visit) actor() audit.Actor {
	return audit.Actor{Name: v.session.UserID, IP: v.ip.String(), RequestID: v.id}
}

// caller is who manages keys.
func (v *visit) caller() access.Caller {
	return access.Caller{Principal: v.principal, Actor: v.actor()}
}

// write runs fn in a transaction.
func (v *visit) write(fn func(tx *db.Tx) error) error { return v.s.DB.Write(v.ctx(), fn) }

const (
	// patience is how long a page waits for the store.
	patience = 8 * time.Second
	// formPatience is how long a form may take to arrive, and pagePatience how
	// long a browser may take to accept a page.
	formPatience = 15 * time.Second
	pagePatience = 30 * time.Second
)

// hurry bounds what the browser may take.
func (v *visit) hurry() {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Now().Add(formPatience))
	_ = control.SetWriteDeadline(time.Now().Add(pagePatience))
}

// takeYourTime takes hurry back: whatever sends for long sets bounds of its own.
func (v *visit) takeYourTime() {
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // or it would end the request while we send
	_ = control.SetWriteDeadline(time.Time{})
}

// impatient bounds what follows by patience.
func (v *visit) impatient() (done func()) {
	ctx, cancel := context.WithTimeout(v.ctx(), patience)
	v.r = v.r.WithContext(ctx)
	return cancel
}

// form is a field of the form that was sent, without white space around it
// and without what no store keeps.
func (v *visit) form(name string) string { return storable(v.r.PostFormValue(name)) }

func storable(s string) string {
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", ""))
}

// query is a parameter of the page's address.
func (v *visit) query(name string) string {
	s := strings.TrimSpace(v.r.URL.Query().Get(name))
	if strings.ContainsRune(s, 0) {
		return ""
	}
	return strings.ToValidUTF8(s, "")
}

// pathID is the id in the page's path, when it has the right shape.
func (v *visit) pathID(prefix, kind string) (string, error) {
	id := v.r.PathValue("id")
	if !ids.Valid(prefix, id) {
		return "", fault.NoSuch(kind, keyring.Mask(id[:min(len(id), 64)]))
	}
	return id, nil
}

// base is the path of the workspace and environment that are looked at.
func (v *visit) base() string {
	return "/dashboard/w/" + v.workspace.ID + "/" + string(v.env) + "/"
}

// to is the path of another page of the same workspace and environment. What
// is not a plain word must be escaped by the caller.
func (v *visit) to(page string) string { return v.base() + page }

// secure reports whether the browser uses HTTPS.
func (v *visit) secure() bool { return clientip.IsHTTPS(v.r, v.s.public, v.s.TrustedProxies) }

// private reports whether the browser has opened the dashboard at an address of
// ours, and no one can read the connection: public_url by HTTPS, or this machine.
func (v *visit) private() bool { return v.secure() && v.atPublicHost() || v.local() }

func (v *visit) atPublicHost() bool { return clientip.SameHost(v.r.Host, v.s.public) }

// local reports whether the browser runs on this machine. Requests through the
// published port of a container come from a private address.
func (v *visit) local() bool {
	peer, ok := clientip.Peer(v.r)
	return ok && (peer.IsLoopback() || peer.IsPrivate()) && isLocal(v.r.Host) && !v.throughProxy()
}

// throughProxy reports whether a proxy on this machine has passed the request
// on under its own idea of our name: the browser is somewhere else.
func (v *visit) throughProxy() bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host"} {
		if v.r.Header.Get(name) != "" {
			return true
		}
	}
	origin, err := url.Parse(v.r.Header.Get("Origin"))
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

// origin is the address at which the browser has opened the dashboard, or nil if
// it isn't one of ours: public_url, or the port that the server listens on at a
// loopback name. Another port is another program, which must not be able to pass
// on what it was given.
func (v *visit) origin() *url.URL {
	if public := v.s.public; v.atPublicHost() && v.secure() == (public.Scheme == "https") {
		return public
	}
	host := &url.URL{Scheme: "http", Host: v.r.Host}
	if v.r.TLS != nil {
		host.Scheme = "https"
	}
	if v.local() && host.Port() == v.s.listens.Port() {
		return host
	}
	return nil
}

// redirect leads to another page of ours, which then shows the flash.
func (v *visit) redirect(to string, f flash) {
	if f != (flash{}) {
		v.setFlash(f)
	}
	v.w.Header().Set("Location", to)
	v.WriteHeader(http.StatusSeeOther)
}

// ownPath is a path of the dashboard that an address names, or the beginning:
// nobody is led to another site.
func ownPath(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, Home) || strings.Contains(s, "\\") {
		return Home
	}
	return u.RequestURI()
}

// fail shows a problem as a page.
func (v *visit) fail(err error) {
	f := v.faultOf(err)
	if v.wrote {
		return
	}
	status := fault.FamilyOf(f.Code).Status
	v.sayWhen(f)
	v.show(&view{template: "problem", title: problemTitle(status), status: status, data: f})
}

// sayWhen tells when to try again, for those who do not read the message.
func (v *visit) sayWhen(f *fault.Error) {
	if f.RetryAfter > 0 {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(f.RetryAfter.Seconds())+1))
	}
}

func problemTitle(status int) string {
	switch status {
	case http.StatusNotFound:
		return "Not found"
	case http.StatusForbidden:
		return "Not allowed"
	case http.StatusServiceUnavailable:
		return "Try again shortly"
	}
	return "That did not work"
}

// greetStranger counts what somebody begins who is not known yet, or refuses it.
func (v *visit) greetStranger() error {
	wait := v.s.strangers.Admit(v.ip)
	if wait == 0 {
		return nil
	}
	f := fault.New(fault.RateLimitExceeded, "there were too many attempts from your address; try again in a minute")
	f.RetryAfter = wait
	return f
}

// faultOf finds the words for an error.
func (v *visit) faultOf(err error) *fault.Error {
	v.cause = err
	if f, ok := fault.As(err); ok {
		return f
	}
	if errors.Is(err, db.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.StorageUnavailable, "the server cannot reach its storage at the moment; try again shortly")
	}
	if errors.Is(err, context.Canceled) {
		if f, ok := fault.As(context.Cause(v.ctx())); ok { // we ourselves ended it
			return f
		}
		return fault.New(fault.RequestTimeout, "the browser left before the answer")
	}
	return fault.New(fault.Internal, "something went wrong on our side")
}

func (v *visit) loggedPath() string {
	p := keyring.Mask(v.r.URL.Path)
	return strings.ToValidUTF8(p[:min(len(p), 512)], "\uFFFD")
}

// logLine is for whoever watches the process.
func (v *visit) logLine() {
	level := slog.LevelDebug
	if v.status >= http.StatusInternalServerError {
		level = slog.LevelError
	}
	if !slog.Default().Enabled(v.ctx(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", v.id), slog.String("method", v.r.Method), slog.String("path", v.loggedPath()),
		slog.Int("status", v.status), slog.Int64("latency_ms", v.now().Sub(v.start).Milliseconds()), slog.String("ip", v.ip.String())}
	if v.cause != nil && level == slog.LevelError {
		attrs = append(attrs, slog.String("error", keyring.Mask(v.cause.Error())))
	}
	slog.LogAttrs(v.ctx(), level, "page", attrs...)
}
