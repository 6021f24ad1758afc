package dashboard

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/budget"
	"turnpike/internal/fault"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

func (s *Server) newMux(table []Route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range table {
		mux.HandleFunc(rt.Method+" "+rt.Path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && hasRoute(mux, http.MethodPost, r.URL.Path) {
			s.serve(w, r, redirectRoute(parentPage(mux, r.URL.Path)))
			return
		}
		s.serve(w, r, notFoundRoute)
	})
	return mux
}

func redirectRoute(to string) Route {
	return Route{handle: func(req *request) { req.redirect(to, flash{}) }}
}

var notFoundRoute = Route{handle: func(req *request) { req.fail(errNoSuchPage) }}

var errNoSuchPage = fault.New(fault.NotFound, "This page does not exist.")

// parentPage returns the page that a form belongs to. Browsers request the form's
// own path when a person reloads a rejected form or signs in again.
func parentPage(mux *http.ServeMux, address string) string {
	// The path comes from the client, so it may lead out of the dashboard.
	for at := path.Dir(address); strings.HasPrefix(at, Home); at = path.Dir(at) {
		if hasRoute(mux, http.MethodGet, at) {
			return at
		}
	}
	return Home
}

func hasRoute(mux *http.ServeMux, method, address string) bool {
	_, pattern := mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: address}})
	return pattern != "" && pattern != "/"
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt Route) {
	start := s.Now()
	ctx, own := budget.Begin(r.Context(), "")
	defer own.Release()
	r = r.WithContext(ctx)
	setDeadlines(w, time.Now().Add(formTimeout), time.Now().Add(pageTimeout))
	defer setDeadlines(w, time.Time{}, time.Time{}) // the connection may serve other requests
	err := s.checkForm(w, r, rt)
	live := rt.page != nil && wantsUpdates(r)
	if rt.Download || live { // they set their own, and a read deadline would cancel the request meanwhile
		setDeadlines(w, time.Time{}, time.Time{})
	} else {
		ctx, cancel := web.WithPageTimeout(ctx)
		defer cancel()
		r = r.WithContext(ctx)
	}
	req := &request{Exchange: web.NewExchange(w, r, s.TrustedProxies(), start), s: s}
	setSecurityHeaders(w.Header())
	defer func() { req.Log("page", s.Now()) }()
	defer func() { req.HandlePanic(recover(), req.fail) }()
	switch {
	case err != nil:
		req.fail(err)
	case rt.handle != nil:
		rt.handle(req)
	case live:
		req.streamUpdates(rt)
	default:
		req.respond(rt)
	}
}

// checkForm rejects requests of other sites and reads the form of an action. The
// person is authenticated afterwards: their rights may change while a slow form
// arrives.
func (s *Server) checkForm(w http.ResponseWriter, r *http.Request, rt Route) error {
	if isReplayed(r) {
		return nil // the form was checked before it was saved
	}
	if err := s.sameSite.Check(r); err != nil {
		return fault.New(fault.InsufficientScope, "This request came from another site and was rejected. Open the dashboard and try again there.").Because(err)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{budget.Of(r.Context()).Charge(r.Body, maxForm), r.Body}
	if rt.action == nil {
		return nil
	}
	if err := r.ParseForm(); err != nil {
		return fault.New(fault.RequestTooLarge, "The form could not be read. It is too large or took too long to arrive.").Because(err)
	}
	return nil
}

// respond authorizes the request, then shows the page or performs the action.
func (req *request) respond(rt Route) {
	if err := req.authorize(rt); err != nil {
		req.deny(rt, err)
		return
	}
	if rt.page != nil {
		req.takeFlash()
		req.restoreForm()
		if rt.Workspace {
			req.rememberWorkspace()
		}
		req.send(rt.page(req))
		return
	}
	if rt.Confirm {
		req.clearSavedForm()
	}
	shown, err := rt.action(req)
	if err != nil && rt.formPage != nil && !req.Started {
		req.rejectForm(rt, err)
		return
	}
	req.send(shown, err)
}

// send shows a view, unless the response has started.
func (req *request) send(shown *view, err error) {
	switch {
	case err != nil:
		req.fail(err)
	case !req.Started && shown != nil:
		req.show(shown)
	case !req.Started:
		req.WriteHeader(http.StatusNoContent)
	}
}

// rejectForm shows the form again, with the submitted values and the error.
func (req *request) rejectForm(rt Route, err error) {
	f := req.Fault(err)
	status := fault.FamilyOf(f.Code).Status
	if errors.Is(err, people.ErrConfirmationRequired) {
		req.redirectToConfirm(rt)
		return
	}
	req.problem = newFormErrors(err, f)
	if isReplayed(req.R) {
		req.rejectReplayed(err)
		return
	}
	if errors.Is(err, errEditConflict) {
		req.discarded, req.R.PostForm = req.R.PostForm, nil // or the next click would save the old values
	}
	shown, pageErr := rt.formPage(req)
	if fault.Is(pageErr, fault.NotFound) {
		err = pageErr // the form's resource doesn't exist
	}
	if pageErr != nil || shown == nil {
		req.fail(err)
		return
	}
	shown.status = status
	shown.live = false // the form's path might not have a page
	req.setRetryAfter(f)
	req.show(shown)
}

// authorize finds the session and checks that the person may use the route.
func (req *request) authorize(rt Route) error {
	if err := req.findSession(); err != nil {
		return err
	}
	if rt.private {
		return req.requirePrivate()
	}
	if !rt.SignedIn {
		return nil
	}
	if req.session == nil {
		return errSignIn
	}
	if rt.Workspace {
		if err := req.enterWorkspace(); err != nil {
			return err
		}
		if rt.Scope != "" {
			if err := req.principal.Require(rt.Scope); err != nil {
				return err
			}
		}
		if rt.Manages && !access.ManagesMembers(req.role) {
			return fault.New(fault.InsufficientScope, "Only owners and admins can do this.")
		}
	}
	if rt.Operator {
		if err := req.requireOperator(); err != nil {
			return err
		}
	}
	if rt.Confirm {
		if err := req.s.People.RequireConfirmed(req.session); err != nil {
			return err
		}
	}
	return rt.id.Check(req.R)
}

// enterWorkspace reads the workspace and environment in the path. For people who
// aren't members, the workspace doesn't exist.
func (req *request) enterWorkspace() error {
	env, err := accounts.ParseEnvironment(req.R.PathValue("env"))
	if err != nil {
		return errNoSuchPage
	}
	return req.enter(req.R.PathValue("workspace"), env)
}

func (req *request) enter(id string, env accounts.Environment) error {
	member, err := people.MembershipIn(req.Context(), req.s.DB, req.session.UserID, id)
	if err != nil {
		return err
	}
	w, err := accounts.GetWorkspace(req.Context(), req.s.DB, id)
	if err != nil {
		return err
	}
	if w.RequireSecondFactor && req.session.SecondFactorAt == nil {
		return people.ErrSecondFactorRequired
	}
	req.workspace, req.env, req.role = w, env, member.Role
	req.principal = access.PersonPrincipal(req.session.UserID, member.Role, accounts.Tenant{WorkspaceID: id, Environment: env})
	if member.Content {
		req.principal = req.principal.WithContent()
	}
	return nil
}

// errSignIn makes deny redirect to the sign-in page.
var errSignIn = fault.New(fault.Authentication, "Sign in first.")

// deny redirects to the page where the person can get access, or shows the error.
func (req *request) deny(rt Route, err error) {
	switch {
	case errors.Is(err, people.ErrConfirmationRequired):
		req.redirectToConfirm(rt)
	case errors.Is(err, people.ErrSecondFactorRequired):
		req.detour("/dashboard/second-factor", "Nothing was changed. This workspace requires a second factor.")
	case fault.Is(err, fault.Authentication) && rt.SignedIn:
		req.askToSignIn(rt)
	default:
		req.fail(err)
	}
}
