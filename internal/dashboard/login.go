package dashboard

import (
	"errors"
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

// sessionLifetime is how long the browser keeps the cookie. The server ends idle
// sessions earlier.
const sessionLifetime = 14 * 24 * time.Hour

func (req *request) findSession() error {
	token := req.cookie(sessionCookie)
	if token == "" || !req.isPrivate() {
		return nil
	}
	s, err := req.authenticate(token)
	if fault.Is(err, fault.Authentication) {
		return nil
	}
	req.session = s
	if s != nil && err == nil {
		connlimit.Authenticated(req.Context())
	}
	return err
}

// authenticate records the person's activity, except for refreshes of a live page, which
// must not keep a session alive.
func (req *request) authenticate(token string) (*people.Session, error) {
	if req.background {
		return req.s.People.LookUpSession(req.Context(), req.s.DB, token)
	}
	return req.s.People.Authenticate(req.Context(), token, req.browser())
}

// detour redirects to a page that leads back here. A form that was sent leads back to its
// page, with a note that it had no effect.
func (req *request) detour(to, note string) {
	next, f := req.R.URL.RequestURI(), flash{}
	if req.R.Method != http.MethodGet {
		next, f.Note = refererPath(req.R), note
	}
	if next != Home {
		to += "?next=" + url.QueryEscape(next)
	}
	req.redirect(to, f)
}

func refererPath(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host {
		return Home
	}
	return dashboardPath(u.RequestURI())
}

// requirePrivate rejects sign-ins over a connection that others can read, or at a host
// that isn't the server's. People with a session have passed it: see findSession.
func (req *request) requirePrivate() error {
	public := req.s.public
	switch {
	case req.isPrivate():
		return nil
	case req.R.TLS != nil:
		return fault.New(fault.InsufficientScope, "The dashboard does not sign anyone in at %.100q. Open %s, or set public_url (TURNPIKE_PUBLIC_URL) to the address in your browser.",
			req.R.Host, public)
	case public.Scheme == "https" && req.atPublicHost():
		peer, _ := clientip.Peer(req.R)
		return fault.New(fault.InsufficientScope, "This request came without HTTPS from %s, which is not a trusted proxy. If it is your proxy with HTTPS, add its address to trusted_proxies "+
			"(TURNPIKE_TRUSTED_PROXIES). Otherwise open %s.", peer, public)
	case public.Scheme == "https":
		return fault.New(fault.InsufficientScope, "This request came without HTTPS and for %.100q. If you use a proxy with HTTPS, it must forward the Host header of the browser, "+
			"%s (see docs/operations/install.md). Otherwise open %s.", req.R.Host, public.Host, public)
	}
	return fault.New(fault.InsufficientScope, "This connection is not encrypted, so others could read your password. "+
		"Open the dashboard over HTTPS (set TURNPIKE_TLS_CERT, or use a proxy with HTTPS and set TURNPIKE_PUBLIC_URL and TURNPIKE_TRUSTED_PROXIES), or on the server itself at http://localhost.")
}

// start redirects to the sign-in page or to the last workspace.
func start(req *request) (*view, error) {
	if req.session == nil {
		return req.redirect("/dashboard/login", flash{})
	}
	memberships, err := people.Memberships(req.Context(), req.s.DB, req.session.UserID)
	if err != nil {
		return nil, err
	}
	if len(memberships) == 0 {
		return nil, fault.New(fault.NotFound, "You are not a member of any workspace. Ask an owner to invite you.")
	}
	return req.redirect(lastWorkspacePath(req.cookie(lastCookie), memberships), flash{})
}

// lastWorkspacePath returns the workspace of the cookie if the person is still a member.
// New people start in test mode.
func lastWorkspacePath(cookie string, memberships []*people.Membership) string {
	workspace, env, _ := strings.Cut(cookie, "/")
	i := max(0, slices.IndexFunc(memberships, func(m *people.Membership) bool { return m.WorkspaceID == workspace }))
	if memberships[i].WorkspaceID != workspace || env != string(accounts.Live) {
		env = string(accounts.Test)
	}
	return "/dashboard/w/" + memberships[i].WorkspaceID + "/" + env + "/"
}

// enterLastWorkspace makes the menu and the palette of pages without a workspace lead to the last one, if the person may
// open it.
func (req *request) enterLastWorkspace() error {
	memberships, err := people.Memberships(req.Context(), req.s.DB, req.session.UserID)
	if err != nil || len(memberships) == 0 {
		return err
	}
	workspace, env, _ := strings.Cut(strings.TrimPrefix(strings.TrimSuffix(lastWorkspacePath(req.cookie(lastCookie), memberships), "/"), Home+"w/"), "/")
	err = req.enter(workspace, accounts.Environment(env))
	if errors.Is(err, people.ErrSecondFactorRequired) {
		return nil
	}
	return err
}

// rememberWorkspace makes the next visit start here.
func (req *request) rememberWorkspace() {
	if place := req.workspace.In(req.env).Path(); req.cookie(lastCookie) != place {
		req.setCookie(lastCookie, place, 365*24*time.Hour)
	}
}

type loginData struct {
	Next     string
	Provider string // of OpenID Connect, or empty
	Passkeys bool   // they work at this host
	SetUp    bool   // no one has an account yet
}

func loginPage(req *request) (*view, error) {
	if req.session != nil && req.problem == nil {
		return req.redirect(dashboardPath(req.query("next")), flash{})
	}
	d := loginData{Next: req.query("next"), Provider: req.providerName(), Passkeys: req.canPasskey()}
	var err error
	d.SetUp, err = req.s.People.NeedsSetup(req.Context(), req.s.DB)
	return &view{template: "login", title: "Sign in", data: d}, err
}

func login(req *request) (*view, error) {
	in, err := req.s.People.Login(req.Context(), req.form("email"), req.R.PostFormValue("password"), req.cookie(sessionCookie), req.browser())
	if err != nil {
		return nil, err
	}
	return req.finishSignIn(in, req.query("next"), flash{})
}

// finishSignIn sets the session and shows a message on the next page, or asks for the
// second factor.
func (req *request) finishSignIn(in *people.SignIn, next string, f flash) (*view, error) {
	next = dashboardPath(next)
	if !in.Complete() {
		req.setCookie(partialCookie, in.PendingToken, 10*time.Minute)
		return req.redirect("/dashboard/login/code?next="+url.QueryEscape(next), flash{})
	}
	req.setSession(in.Token)
	if in.Device != "" {
		req.setCookie(deviceCookie, in.Device, people.DeviceLifetime)
	}
	req.setCookie(partialCookie, "", 0)
	req.session = in.Session
	return req.redirect(next, f)
}

func (req *request) setSession(token string) { req.setCookie(sessionCookie, token, sessionLifetime) }

func (req *request) signOut() error {
	if req.session == nil {
		return nil
	}
	err := req.write(func(tx *db.Tx) error {
		return req.s.People.Revoke(req.Context(), tx, req.session, req.session.ID, req.browser())
	})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	req.setCookie(sessionCookie, "", 0)
	req.session = nil
	return nil
}

func logout(req *request) (*view, error) {
	if err := req.signOut(); err != nil {
		return nil, err
	}
	req.clearSavedForm()
	to := "/dashboard/login"
	if next := req.query("next"); next != "" {
		to = dashboardPath(next)
	}
	return req.redirect(to, flash{Notice: "You are signed out."})
}

// askToSignIn redirects to the sign-in page. The page of a form then shows it as it was sent.
func (req *request) askToSignIn(rt Route) {
	if rt.Path == Home+"logout" {
		req.redirect("/dashboard/login", flash{Notice: "You are signed out."})
		return
	}
	note := "You were signed out, and nothing was changed. Sign in, then fill in the form again."
	if req.R.Method == http.MethodPost {
		user, err := req.s.People.UserOfSession(req.Context(), req.s.DB, req.cookie(sessionCookie))
		if err != nil {
			req.fail(err)
			return
		}
		if req.saveForm(savedForm{User: user}) {
			note = "You were signed out, and nothing was changed. Sign in, then send the form again."
		}
	}
	req.detour("/dashboard/login", note)
}

type confirmData struct {
	Next        string
	Cancel      string // the page that the person came from
	Form        string // the saved form that the confirmation performs, or empty
	Action      string // what that does: "create the key"; or empty
	HasPassword bool
	HasCode     bool
	HasPasskey  bool
	Provider    string // for confirming by signing in there again, or empty
}

func confirmPage(req *request) (*view, error) {
	return req.confirmView(req.query("next"), req.query("form"))
}

// confirmView asks for the strongest proof: people with an authenticator app enter a code
// or use a passkey.
func (req *request) confirmView(next, form string) (*view, error) {
	factor, factorErr := req.s.People.GetSecondFactor(req.Context(), req.s.DB, req.session.UserID)
	passkeys, passkeysErr := req.s.People.Passkeys(req.Context(), req.s.DB, req.session.UserID)
	identities, identitiesErr := req.s.People.Identities(req.Context(), req.s.DB, req.session.UserID)
	if err := errors.Join(factorErr, passkeysErr, identitiesErr); err != nil {
		return nil, err
	}
	d := confirmData{Next: next, Cancel: dashboardPath(next), Form: form, Action: req.savedAction(form), HasCode: factor.Enabled, HasPasskey: len(passkeys) > 0 && req.canPasskey()}
	if !factor.Enabled {
		d.HasPassword = req.session.Person.HasPassword()
		if req.linkedHere(identities) {
			d.Provider = req.providerName()
		}
	}
	return &view{template: "confirm", title: "Confirm your identity", data: d}, nil
}

// secondFactorPage asks for one of the person's second factors.
func secondFactorPage(req *request) (*view, error) {
	if req.session.SecondFactorAt != nil {
		return req.redirect(dashboardPath(req.query("next")), flash{})
	}
	shown, err := req.confirmView(req.query("next"), "")
	if err != nil {
		return nil, err
	}
	shown.template, shown.title = "second_factor", "Second factor required"
	return shown, nil
}

func confirm(req *request) (*view, error) {
	proof := people.Proof{Password: req.R.PostFormValue("password"), Code: req.form("code")}
	if proof == (people.Proof{}) {
		return nil, fault.New(fault.MissingParameter, "Enter your password, or a code from your authenticator app.")
	}
	token, err := req.s.People.Confirm(req.Context(), req.session, proof, req.browser())
	if err != nil {
		return nil, err
	}
	return req.afterConfirm(token, req.query("form"), req.query("next"))
}

func setUpPage(req *request) (*view, error) {
	if err := req.s.People.CheckSetupLink(req.Context(), req.s.DB, req.query("token")); err != nil {
		return nil, err
	}
	return &view{template: "setup", title: "Set up Turnpike"}, nil
}

func setUp(req *request) (*view, error) {
	in, err := req.s.People.Setup(req.Context(), req.query("token"), people.NewAccount{Email: req.form("email"), Name: req.form("name"), Password: req.R.PostFormValue("password")}, req.browser())
	if err != nil {
		return nil, err
	}
	return req.finishSignIn(in, Home, flash{})
}

// factorPage asks for the second factor after a correct password.
func factorPage(req *request) (*view, error) {
	if req.cookie(partialCookie) == "" {
		return req.redirect("/dashboard/login?next="+url.QueryEscape(req.query("next")), flash{})
	}
	return &view{template: "factor", title: "Second factor", data: req.query("next")}, nil
}

func finishLogin(req *request) (*view, error) {
	in, err := req.s.People.FinishLogin(req.Context(), req.cookie(partialCookie), req.form("code"), req.cookie(sessionCookie), req.browser())
	if err != nil {
		return nil, err
	}
	var message flash
	if in.Session.Method == people.ByRecoveryCode {
		message.Notice = "You used a recovery code. Your account page shows how many are left."
	}
	return req.finishSignIn(in, req.query("next"), message)
}
