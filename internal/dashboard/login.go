package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/clientip"
	"turnpike/internal/connlimit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// sessionLasts is how long the browser keeps the cookie. The server ends the
// session earlier when nobody comes.
const sessionLasts = 14 * 24 * time.Hour

// recognise finds the session, if there is one.
func (v *visit) recognise() error {
	token := v.cookie(sessionCookie)
	if token == "" || !v.private() {
		return nil
	}
	s, err := v.authenticate(token)
	if fault.Is(err, fault.Authentication) {
		return nil
	}
	v.session = s
	if s != nil && err == nil {
		connlimit.Authenticated(v.ctx())
	}
	return err
}

// authenticate notes that the person was there, unless nobody was: a page that
// is kept up to date must not keep its session alive.
func (v *visit) authenticate(token string) (*people.Session, error) {
	if v.watches {
		return v.s.People.Recognise(v.ctx(), token)
	}
	return v.s.People.Authenticate(v.ctx(), token, v.browser())
}

// comeBack is the query that leads back here. A form that was sent is not sent
// again: it leads back to the page that it stood on.
func (v *visit) comeBack() string {
	next := v.r.URL.RequestURI()
	if v.r.Method != http.MethodGet {
		next = refererPath(v.r)
	}
	if next == Home {
		return ""
	}
	return "?next=" + url.QueryEscape(next)
}

// nextQuery hands on where somebody wants to go after signing in.
func (v *visit) nextQuery() string {
	next := v.query("next")
	if next == "" {
		return ""
	}
	return "?next=" + url.QueryEscape(next)
}

func refererPath(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host {
		return Home
	}
	return ownPath(u.RequestURI())
}

// requirePrivate refuses to sign anyone in over a connection that others can
// read, or at a host that isn't ours.
func (v *visit) requirePrivate() error {
	public := v.s.public
	switch {
	case v.private():
		return nil
	case v.r.TLS != nil:
		return fault.New(fault.InsufficientScope, "The dashboard does not sign anyone in at %.100q. Open %s, or set public_url (TURNPIKE_PUBLIC_URL) to the address in your browser.",
			v.r.Host, public)
	case public.Scheme == "https" && v.atPublicHost():
		peer, _ := clientip.Peer(v.r)
		return fault.New(fault.InsufficientScope, "This request came without HTTPS from %s, which is not a trusted proxy. If it is your proxy with HTTPS, add its address to trusted_proxies "+
			"(TURNPIKE_TRUSTED_PROXIES). Otherwise open %s.", peer, public)
	case public.Scheme == "https":
		return fault.New(fault.InsufficientScope, "this request came without HTTPS and for %.100q. If a proxy with HTTPS stands in front, it must pass on the Host that the browser "+
			"asks for, %s (see docs/deployment.md); if none does, open %s", v.r.Host, public.Host, public)
	}
	return fault.New(fault.InsufficientScope, "this connection is not encrypted, so a password sent over it could be read on the way. "+
		"Open the dashboard by HTTPS (see TURNPIKE_TLS_CERT, or put a proxy with HTTPS in front and set TURNPIKE_PUBLIC_URL and TURNPIKE_TRUSTED_PROXIES), or on the server itself at http://localhost")
}

// start leads to where somebody begins: the sign-in, or the workspace that they
// were in last.
func start(v *visit) (*view, error) {
	if v.session == nil {
		v.redirect("/dashboard/login", flash{})
		return nil, nil
	}
	memberships, err := people.Memberships(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, err
	}
	if len(memberships) == 0 {
		return nil, fault.New(fault.NotFound, "you are not a member of any workspace; ask an owner to invite you")
	}
	v.redirect(lastPlace(v.cookie(lastCookie), memberships), flash{})
	return nil, nil
}

// lastPlace is where somebody was last, if they may still go there. Newcomers
// begin in the sandbox.
func lastPlace(cookie string, memberships []people.Membership) string {
	workspace, env, _ := strings.Cut(cookie, "/")
	i := max(0, slices.IndexFunc(memberships, func(m people.Membership) bool { return m.WorkspaceID == workspace }))
	if memberships[i].WorkspaceID != workspace || env != string(accounts.Live) {
		env = string(accounts.Test)
	}
	return "/dashboard/w/" + memberships[i].WorkspaceID + "/" + env + "/"
}

// rememberPlace has the next visit begin here.
func (v *visit) rememberPlace() {
	if place := v.workspace.ID + "/" + string(v.env); v.cookie(lastCookie) != place {
		v.setCookie(lastCookie, place, 365*24*time.Hour)
	}
}

type loginData struct {
	Next     string
	Provider string // of OpenID Connect, or empty
	Passkeys bool   // the browser does them under this name
	SetUp    bool   // nobody has an account yet
}

func loginPage(v *visit) (*view, error) {
	if v.session != nil && v.problem == nil {
		v.redirect(ownPath(v.query("next")), flash{})
		return nil, nil
	}
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	d := loginData{Next: v.query("next"), Provider: v.providerName(), Passkeys: v.canPasskey()}
	var err error
	d.SetUp, err = v.s.People.Unclaimed(v.ctx(), v.s.DB)
	return &view{template: "login", title: "Sign in", data: d}, err
}

func login(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	in, err := v.s.People.Login(v.ctx(), v.form("email"), v.r.PostFormValue("password"), v.cookie(sessionCookie), v.browser())
	if err != nil {
		return nil, err
	}
	v.signedIn(in, v.query("next"))
	return nil, nil
}

// signedIn keeps the session, or goes on to the second factor.
func (v *visit) signedIn(in *people.SignIn, next string) { v.signedInWith(in, next, flash{}) }

// signedInWith is signedIn with something to say on the page that follows.
func (v *visit) signedInWith(in *people.SignIn, next string, f flash) {
	next = ownPath(next)
	if !in.Complete() {
		v.setCookie(halfCookie, in.Half, 10*time.Minute)
		v.redirect("/dashboard/login/code?next="+url.QueryEscape(next), flash{})
		return
	}
	v.keepSession(in.Token)
	if in.Device != "" {
		v.setCookie(deviceCookie, in.Device, people.DeviceLifetime)
	}
	v.setCookie(halfCookie, "", 0)
	v.session = in.Session
	v.redirect(next, f)
}

func (v *visit) keepSession(token string) { v.setCookie(sessionCookie, token, sessionLasts) }

// signOut ends the browser's session, if it has one.
func (v *visit) signOut() error {
	if v.session == nil {
		return nil
	}
	err := v.write(func(tx *db.Tx) error { return v.s.People.Revoke(v.ctx(), tx, v.session, v.session.ID, v.browser()) })
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	v.setCookie(sessionCookie, "", 0)
	v.session = nil
	return nil
}

func logout(v *visit) (*view, error) {
	if err := v.signOut(); err != nil {
		return nil, err
	}
	to := "/dashboard/login"
	if next := v.query("next"); next != "" {
		to = ownPath(next)
	}
	v.redirect(to, flash{Notice: "You are signed out."})
	return nil, nil
}

// askToConfirm leads to the proof of who somebody is, and back.
func (v *visit) askToConfirm() {
	var f flash
	if v.r.Method == http.MethodPost {
		f.Notice = "Nothing was changed yet. Confirm that it is you, then send the form again."
		v.keepTyped()
	}
	v.redirect("/dashboard/confirm"+v.comeBack(), f)
}

type confirmData struct {
	Next        string
	HasPassword bool
	HasCode     bool
	HasPasskey  bool
	Provider    string // to prove it by signing in there again, or empty
}

func confirmPage(v *visit) (*view, error) { return v.confirmView(v.query("next")) }

// confirmView asks for what counts: who has an app shows a code or a passkey.
func (v *visit) confirmView(next string) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	factor, err := v.s.People.GetSecondFactor(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, err
	}
	passkeys, err := v.s.People.Passkeys(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, err
	}
	identities, err := v.s.People.Identities(v.ctx(), v.s.DB, v.session.UserID)
	if err != nil {
		return nil, err
	}
	d := confirmData{Next: next, HasCode: factor.Enabled, HasPasskey: len(passkeys) > 0 && v.canPasskey()}
	if !factor.Enabled {
		d.HasPassword = v.session.Person.HasPassword
		if v.linkedHere(identities) {
			d.Provider = v.providerName()
		}
	}
	return &view{template: "confirm", title: "Confirm that it is you", data: d}, nil
}

func confirm(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	proof := people.Proof{Password: v.r.PostFormValue("password"), Code: v.form("code")}
	if proof == (people.Proof{}) {
		return nil, fault.New(fault.MissingParameter, "type your password, or a code of your authenticator app")
	}
	token, err := v.s.People.Confirm(v.ctx(), v.session, proof, v.browser())
	if err != nil {
		return nil, err
	}
	v.keepSession(token)
	v.redirect(ownPath(v.query("next")), flash{})
	return nil, nil
}

func setUpPage(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	if err := v.s.People.CheckSetUpLink(v.ctx(), v.s.DB, v.query("token")); err != nil {
		return nil, err
	}
	return &view{template: "setup", title: "Set up Turnpike"}, nil
}

func setUp(v *visit) (*view, error) {
	if err := v.requirePrivate(); err != nil {
		return nil, err
	}
	in, err := v.s.People.SetUp(v.ctx(), v.query("token"), people.Newcomer{Email: v.form("email"), Name: v.form("name"), Password: v.r.PostFormValue("password")}, v.browser())
	if err != nil {
		return nil, err
	}
	v.signedIn(in, Home)
	return nil, nil
}
