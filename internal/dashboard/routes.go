package dashboard

import (
	"net/http"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/people"
)

// page builds what is shown. It changes nothing.
type page func(v *visit) (*view, error)

// deed changes something and leads to another page by visit.redirect, or, where
// a redirect would not do, shows a view.
type deed func(v *visit) (*view, error)

// route is one line of the table.
type route struct {
	method  string
	path    string // in the syntax of http.ServeMux, behind prefix
	area    area
	scope   access.Scope // that the person's role must have, in a workspace
	manages bool         // only owners and admins
	confirm bool         // only who has just proved who they are
	page    page         // of a GET
	deed    deed         // of a POST
	back    page         // shown again with the problem when the deed was refused
}

// area is where a route belongs to, and so who may come.
type area int

const (
	open     area = iota // anybody, signed in or not
	personal             // whoever is signed in
	tenant               // a member, in one environment of the workspace
)

var prefix = map[area]string{open: "/dashboard/", personal: "/dashboard/", tenant: "/dashboard/w/{workspace}/{env}/"}

func (rt route) pattern() string { return rt.method + " " + prefix[rt.area] + rt.path }

// routes is the table of all pages. A tenant's page names the scope that it
// needs, as the API's route for the same thing does.
func routes() []route {
	return []route{
		// Signing in, and whoever is signed in.
		{method: "GET", path: "static/{file}", area: open, page: staticFile},
		{method: "GET", path: "{$}", area: open, page: start},
		{method: "GET", path: "login", area: open, page: loginPage},
		{method: "POST", path: "login", area: open, deed: login, back: loginPage},
		{method: "GET", path: "setup", area: open, page: setUpPage},
		{method: "POST", path: "setup", area: open, deed: setUp, back: setUpPage},
		{method: "POST", path: "logout", area: personal, deed: logout},
		{method: "GET", path: "confirm", area: personal, page: confirmPage},
		{method: "POST", path: "confirm", area: personal, deed: confirm, back: confirmPage},

		// Home.
		{method: "GET", path: "{$}", area: tenant, page: homePage},

		// Keys and projects.
		{method: "GET", path: "keys", area: tenant, scope: access.KeysRead, page: keysPage},
		{method: "GET", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, page: newKeyPage},
		{method: "POST", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, deed: createKey, back: newKeyPage},
		{method: "GET", path: "keys/{id}", area: tenant, scope: access.KeysRead, page: keyPage},

		// Usage, requests, the admin log, billing.

		// Webhooks and deliveries.

		// Jobs and agent runs.

		// Security, team, settings.
	}
}

func (s *Server) newMux(table []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range table {
		mux.HandleFunc(rt.pattern(), func(w http.ResponseWriter, r *http.Request) {
			v := visitOf(w)
			v.r = r // with the path's values
			v.serve(rt)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		visitOf(w).fail(fault.New(fault.NotFound, "there is no such page"))
	})
	return mux
}

// serve lets the visit in and answers it.
func (v *visit) serve(rt route) {
	err := v.admit(rt)
	if err != nil {
		v.turnedAway(rt, err)
		return
	}
	if rt.page != nil {
		if v.wantsUpdates() {
			v.keepUpdated(rt)
			return
		}
		v.flash = v.takeFlash()
		if rt.area == tenant {
			v.rememberPlace()
		}
		v.answer(rt.page(v))
		return
	}
	if err := v.r.ParseForm(); err != nil {
		v.fail(fault.New(fault.RequestTooLarge, "the form cannot be read; it may be too large").Because(err))
		return
	}
	shown, err := rt.deed(v)
	if err != nil && rt.back != nil && !v.wrote {
		v.refused(rt, err)
		return
	}
	v.answer(shown, err)
}

// answer shows a view, unless the answer was given already.
func (v *visit) answer(shown *view, err error) {
	switch {
	case err != nil:
		v.fail(err)
	case !v.wrote && shown != nil:
		v.show(shown)
	case !v.wrote:
		v.WriteHeader(http.StatusNoContent)
	}
}

// refused shows the form again, with what was typed and why it was not taken.
func (v *visit) refused(rt route, err error) {
	f := v.faultOf(err)
	status := fault.FamilyOf(f.Code).Status
	if status >= http.StatusInternalServerError {
		v.fail(err)
		return
	}
	if err == error(people.ErrConfirm) { //nolint:errorlint // it is this one value
		v.askToConfirm()
		return
	}
	v.problem = f
	shown, pageErr := rt.back(v)
	if pageErr != nil || shown == nil {
		v.fail(err)
		return
	}
	shown.status = status
	v.show(shown)
}

// admit finds out who is there and whether they may come.
func (v *visit) admit(rt route) error {
	if err := v.recognise(); err != nil {
		return err
	}
	if rt.area == open {
		return nil
	}
	if v.session == nil {
		return errSignIn
	}
	if rt.area == tenant {
		if err := v.enterWorkspace(); err != nil {
			return err
		}
		if rt.scope != "" {
			if err := v.principal.Require(rt.scope); err != nil {
				return err
			}
		}
		if rt.manages && !access.ManagesMembers(v.role) {
			return fault.New(fault.InsufficientScope, "only owners and admins may do this")
		}
	}
	if rt.confirm {
		return v.s.People.RequireConfirmed(v.session)
	}
	return nil
}

// enterWorkspace reads the workspace and environment from the path. Who is no
// member does not learn that the workspace exists.
func (v *visit) enterWorkspace() error {
	env, err := accounts.ParseEnvironment(v.r.PathValue("env"))
	if err != nil {
		return fault.New(fault.NotFound, "there is no such page")
	}
	id := v.r.PathValue("workspace")
	role, err := people.RoleIn(v.ctx(), v.s.DB, v.session.UserID, id)
	if err != nil {
		return err
	}
	if v.workspace, err = accounts.GetWorkspace(v.ctx(), v.s.DB, id); err != nil {
		return err
	}
	v.env, v.role = env, role
	v.principal = access.PersonPrincipal(v.session.UserID, role, id, env)
	return nil
}

// errSignIn leads to the sign-in.
var errSignIn = fault.New(fault.Authentication, "sign in first")

// turnedAway leads to where what is missing can be had.
func (v *visit) turnedAway(rt route, err error) {
	switch {
	case err == error(people.ErrConfirm): //nolint:errorlint // it is this one value
		v.askToConfirm()
	case fault.Is(err, fault.Authentication) && rt.area != open:
		v.redirect("/dashboard/login"+v.comeBack(), flash{})
	default:
		v.fail(err)
	}
}
