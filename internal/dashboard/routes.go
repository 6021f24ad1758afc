package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/media"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

// page builds a view. It changes nothing.
type page func(req *request) (*view, error)

// action changes something and redirects to a page, or returns a view if a
// redirect wouldn't do.
type action func(req *request) (*view, error)

// route is an entry of the route table.
type route struct {
	method   string
	path     string // in the syntax of http.ServeMux, after the area's prefix
	area     area
	scope    access.Scope       // that the person's role must have, in a workspace
	private  bool               // only over a connection that no one else can read
	manages  bool               // only owners and admins
	confirm  bool               // only after a recent proof of identity
	download bool               // a file, which may take long
	page     page               // of a GET
	action   action             // of a POST
	formPage page               // shown again if the action was rejected
	handle   func(req *request) // instead of page and action, for any client
}

// area is the part of the dashboard that a route belongs to. It decides who has
// access.
type area int

const (
	open     area = iota // everyone
	personal             // people who are signed in
	tenant               // members, in one environment of the workspace
)

var prefix = map[area]string{open: "/dashboard/", personal: "/dashboard/", tenant: "/dashboard/w/{workspace}/{env}/"}

func (rt route) pattern() string { return rt.method + " " + prefix[rt.area] + rt.path }

// pathIDs are the formats of the {id} of routes, by the path before it. Handlers check the
// IDs of projects, which customers choose.
var pathIDs = map[string]web.PathID{
	"account/passkeys":            {Prefix: people.PasskeyID, Kind: "passkey"},
	"account/sessions":            {Prefix: people.SessionID, Kind: "session"},
	"deliveries":                  {Prefix: ids.Delivery, Kind: "delivery"},
	"events":                      {Prefix: ids.Event, Kind: "event"},
	"jobs/images":                 {Prefix: media.Images.Prefix(), Kind: media.Images.Noun()},
	"jobs/videos":                 {Prefix: media.Video.Prefix(), Kind: media.Video.Noun()},
	"jobs/voice":                  {Prefix: media.Voice.Prefix(), Kind: media.Voice.Noun()},
	"keys":                        {Prefix: ids.Key, Kind: "key"},
	"requests":                    {Prefix: ids.Request, Kind: "request"},
	"runs":                        {Prefix: ids.Run, Kind: "agent run"},
	"team/invitations":            {Prefix: people.InvitationID, Kind: "invitation"},
	"team/members":                {Prefix: ids.User, Kind: "member"},
	"webhooks":                    {Prefix: ids.Endpoint, Kind: "webhook endpoint"},
	"webhooks/{endpoint}/replays": {Prefix: ids.Replay, Kind: "replay"},
}

func (rt route) checkID(r *http.Request) error {
	before, _, _ := strings.Cut(rt.path, "/{id}")
	return pathIDs[before].Check(r)
}

// routes is the table of all pages and actions. Those of a workspace need the same
// scope as the API's routes for the same resource.
func routes() []route {
	return []route{
		// Sign-in.
		{method: "GET", path: "static/{file}", area: open, page: staticFile},
		{method: "GET", path: "{$}", area: open, page: start},
		{method: "GET", path: "login", area: open, private: true, page: loginPage},
		{method: "POST", path: "login", area: open, private: true, action: login, formPage: loginPage},
		{method: "GET", path: "setup", area: open, private: true, page: setUpPage},
		{method: "POST", path: "setup", area: open, private: true, action: setUp, formPage: setUpPage},
		{method: "POST", path: "logout", area: personal, action: logout},
		{method: "GET", path: "confirm", area: personal, page: confirmPage},
		{method: "POST", path: "confirm", area: personal, action: confirm, formPage: confirmPage},
		{method: "GET", path: "login/code", area: open, private: true, page: factorPage},
		{method: "POST", path: "login/code", area: open, private: true, action: finishLogin, formPage: factorPage},
		{method: "POST", path: "login/passkey/start", area: open, private: true, action: startPasskeyLogin},
		{method: "POST", path: "login/passkey", area: open, private: true, action: passkeyLogin, formPage: loginPage},
		{method: "POST", path: "login/oidc", area: open, private: true, action: startOIDC, formPage: loginPage},
		{method: "GET", path: "login/oidc/callback", area: open, private: true, page: finishOIDC},
		{method: "GET", path: "forgot", area: open, private: true, page: forgotPage},
		{method: "POST", path: "forgot", area: open, private: true, action: forgot, formPage: forgotPage},
		{method: "GET", path: "password", area: open, private: true, page: passwordPage},
		{method: "POST", path: "password", area: open, private: true, action: resetPassword, formPage: passwordPage},
		{method: "GET", path: "invitation", area: open, private: true, page: invitationPage},
		{method: "POST", path: "invitation", area: open, private: true, action: acceptInvitation, formPage: invitationPage},
		{method: "GET", path: "second-factor", area: personal, page: secondFactorPage},
		{method: "POST", path: "confirm/passkey/start", area: personal, action: startPasskeyConfirm},
		{method: "POST", path: "confirm/passkey", area: personal, action: passkeyConfirm, formPage: confirmPage},

		// Account.
		{method: "GET", path: "account", area: personal, page: accountPage},
		{method: "POST", path: "account/name", area: personal, action: renamePerson, formPage: accountPage},
		{method: "POST", path: "account/password", area: personal, action: changePassword, formPage: accountPage},
		{method: "POST", path: "account/app", area: personal, confirm: true, action: startApp, formPage: accountPage},
		{method: "GET", path: "account/app", area: personal, confirm: true, page: appPage},
		{method: "POST", path: "account/app/enable", area: personal, confirm: true, action: enableApp, formPage: appPage},
		{method: "POST", path: "account/app/disable", area: personal, confirm: true, action: disableApp, formPage: accountPage},
		{method: "POST", path: "account/app/codes", area: personal, confirm: true, action: renewCodes, formPage: accountPage},
		{method: "POST", path: "account/passkeys/start", area: personal, confirm: true, action: startPasskey},
		{method: "POST", path: "account/passkeys", area: personal, confirm: true, action: addPasskey, formPage: accountPage},
		{method: "POST", path: "account/passkeys/{id}/rename", area: personal, action: renamePasskey, formPage: accountPage},
		{method: "POST", path: "account/passkeys/{id}/delete", area: personal, confirm: true, action: deletePasskey, formPage: accountPage},
		{method: "POST", path: "account/sessions/revoke", area: personal, action: revokeOthers, formPage: accountPage},
		{method: "POST", path: "account/sessions/{id}/revoke", area: personal, action: revokeSession, formPage: accountPage},

		// Home.
		{method: "GET", path: "{$}", area: tenant, page: homePage},

		// Keys and projects.
		{method: "GET", path: "keys", area: tenant, scope: access.KeysRead, page: keysPage},
		{method: "GET", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, page: newKeyPage},
		{method: "POST", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, action: createKey, formPage: newKeyPage},
		{method: "GET", path: "keys/{id}", area: tenant, scope: access.KeysRead, page: keyPage},
		{method: "GET", path: "keys/{id}/edit", area: tenant, scope: access.KeysWrite, confirm: true, page: editKeyPage},
		{method: "POST", path: "keys/{id}/edit", area: tenant, scope: access.KeysWrite, confirm: true, action: updateKey, formPage: editKeyPage},
		{method: "GET", path: "keys/{id}/rotate", area: tenant, scope: access.KeysWrite, confirm: true, page: rotateKeyPage},
		{method: "POST", path: "keys/{id}/rotate", area: tenant, scope: access.KeysWrite, confirm: true, action: rotateKey, formPage: rotateKeyPage},
		{method: "POST", path: "keys/{id}/end-grace", area: tenant, scope: access.KeysWrite, action: endGrace, formPage: keyPage},
		{method: "POST", path: "keys/{id}/revoke", area: tenant, scope: access.KeysWrite, action: revokeKey, formPage: keyPage},
		{method: "GET", path: "keys/{id}/tokens", area: tenant, scope: access.KeysRead, page: tokensPage},
		{method: "POST", path: "keys/{id}/tokens/{token}/revoke", area: tenant, scope: access.ScopedTokensCreate, action: revokeToken},
		{method: "GET", path: "projects", area: tenant, scope: access.ProjectsRead, page: projectsPage},
		{method: "POST", path: "projects", area: tenant, scope: access.ProjectsWrite, action: createProject, formPage: projectsPage},
		{method: "GET", path: "projects/{id}", area: tenant, scope: access.ProjectsRead, page: projectPage},
		{method: "POST", path: "projects/{id}", area: tenant, scope: access.ProjectsWrite, action: updateProject, formPage: projectPage},
		{method: "POST", path: "projects/{id}/archive", area: tenant, scope: access.ProjectsWrite, action: archiveProject, formPage: projectPage},
		{method: "POST", path: "projects/{id}/restore", area: tenant, scope: access.ProjectsWrite, action: restoreProject, formPage: projectPage},

		// Usage, requests, the admin log, billing.
		{method: "GET", path: "usage", area: tenant, scope: access.UsageRead, page: usagePage},
		{method: "GET", path: "usage/export.csv", area: tenant, scope: access.UsageRead, download: true, page: exportUsage},
		{method: "GET", path: "requests", area: tenant, scope: access.AuditRead, page: requestsPage},
		{method: "GET", path: "requests/export.csv", area: tenant, scope: access.AuditRead, download: true, page: exportRequests},
		{method: "GET", path: "requests/{id}", area: tenant, scope: access.AuditRead, page: requestPage},
		{method: "GET", path: "log", area: tenant, scope: access.AuditRead, page: adminLogPage},
		{method: "GET", path: "billing", area: tenant, scope: access.BillingRead, page: billingPage},
		{method: "POST", path: "billing", area: tenant, scope: access.BillingWrite, confirm: true, action: changeBilling, formPage: billingPage},

		// Webhooks and deliveries.
		{method: "GET", path: "webhooks", area: tenant, scope: access.WebhooksRead, page: webhooksPage},
		{method: "GET", path: "webhooks/new", area: tenant, scope: access.WebhooksWrite, confirm: true, page: newEndpointPage},
		{method: "POST", path: "webhooks/new", area: tenant, scope: access.WebhooksWrite, confirm: true, action: createEndpoint, formPage: newEndpointPage},
		{method: "GET", path: "webhooks/{id}", area: tenant, scope: access.WebhooksRead, page: endpointPage},
		{method: "GET", path: "webhooks/{id}/edit", area: tenant, scope: access.WebhooksWrite, confirm: true, page: editEndpointPage},
		{method: "POST", path: "webhooks/{id}/edit", area: tenant, scope: access.WebhooksWrite, confirm: true, action: editEndpoint, formPage: editEndpointPage},
		{method: "POST", path: "webhooks/{id}/pause", area: tenant, scope: access.WebhooksWrite, action: pauseEndpoint, formPage: endpointPage},
		{method: "POST", path: "webhooks/{id}/resume", area: tenant, scope: access.WebhooksWrite, action: resumeEndpoint, formPage: endpointPage},
		{method: "GET", path: "webhooks/{id}/rotate", area: tenant, scope: access.WebhooksWrite, confirm: true, page: rotateSecretPage},
		{method: "POST", path: "webhooks/{id}/rotate", area: tenant, scope: access.WebhooksWrite, confirm: true, action: rotateSecret, formPage: rotateSecretPage},
		{method: "POST", path: "webhooks/{id}/end_grace", area: tenant, scope: access.WebhooksWrite, confirm: true, action: endSecretGrace, formPage: endpointPage},
		{method: "POST", path: "webhooks/{id}/test", area: tenant, scope: access.WebhooksWrite, action: testEndpoint, formPage: endpointPage},
		{method: "POST", path: "webhooks/{id}/delete", area: tenant, scope: access.WebhooksWrite, action: deleteEndpoint, formPage: endpointPage},
		{method: "GET", path: "webhooks/{id}/replay", area: tenant, scope: access.EventsReplay, page: newReplayPage},
		{method: "POST", path: "webhooks/{id}/replay", area: tenant, scope: access.EventsReplay, action: startReplay, formPage: newReplayPage},
		{method: "GET", path: "webhooks/{endpoint}/replays/{id}", area: tenant, scope: access.WebhooksRead, page: replayPage},
		{method: "GET", path: "deliveries", area: tenant, scope: access.WebhooksRead, page: deliveriesPage},
		{method: "POST", path: "deliveries", area: tenant, scope: access.EventsReplay, action: replaySelected, formPage: deliveriesPage},
		{method: "GET", path: "deliveries/{id}", area: tenant, scope: access.WebhooksRead, page: deliveryPage},
		{method: "POST", path: "deliveries/{id}/replay", area: tenant, scope: access.EventsReplay, action: replayDelivery, formPage: deliveryPage},
		{method: "GET", path: "events", area: tenant, scope: access.EventsRead, page: eventsPage},
		{method: "GET", path: "events/{id}", area: tenant, scope: access.EventsRead, page: eventPage},
		{method: "GET", path: "events/{id}/body", area: tenant, scope: access.EventsRead, download: true, page: eventBody},

		// Jobs and agent runs.
		{method: "GET", path: "jobs", area: tenant, scope: access.ImagesRead, page: jobsStart},
		{method: "GET", path: "jobs/images", area: tenant, scope: access.ImagesRead, page: jobsPage(media.Images)},
		{method: "GET", path: "jobs/images/{id}", area: tenant, scope: access.ImagesRead, page: jobPage(media.Images)},
		{method: "POST", path: "jobs/images/{id}/cancel", area: tenant, scope: access.ImagesCreate, action: cancelJob(media.Images), formPage: jobPage(media.Images)},
		{method: "POST", path: "jobs/images/{id}/delete", area: tenant, scope: access.ImagesCreate, action: deleteJob(media.Images), formPage: jobPage(media.Images)},
		{method: "GET", path: "jobs/videos", area: tenant, scope: access.VideosRead, page: jobsPage(media.Video)},
		{method: "GET", path: "jobs/videos/{id}", area: tenant, scope: access.VideosRead, page: jobPage(media.Video)},
		{method: "POST", path: "jobs/videos/{id}/cancel", area: tenant, scope: access.VideosCreate, action: cancelJob(media.Video), formPage: jobPage(media.Video)},
		{method: "POST", path: "jobs/videos/{id}/delete", area: tenant, scope: access.VideosCreate, action: deleteJob(media.Video), formPage: jobPage(media.Video)},
		{method: "GET", path: "jobs/voice", area: tenant, scope: access.VoiceRead, page: jobsPage(media.Voice)},
		{method: "GET", path: "jobs/voice/{id}", area: tenant, scope: access.VoiceRead, page: jobPage(media.Voice)},
		{method: "POST", path: "jobs/voice/{id}/cancel", area: tenant, scope: access.VoiceCreate, action: cancelJob(media.Voice), formPage: jobPage(media.Voice)},
		{method: "POST", path: "jobs/voice/{id}/delete", area: tenant, scope: access.VoiceCreate, action: deleteJob(media.Voice), formPage: jobPage(media.Voice)},
		{method: "GET", path: "runs", area: tenant, scope: access.AgentRunsRead, page: runsPage},
		{method: "GET", path: "runs/{id}", area: tenant, scope: access.AgentRunsRead, page: runPage},
		{method: "POST", path: "runs/{id}/approvals/{approval}", area: tenant, scope: access.AgentRunsApprove, action: decideRun, formPage: runPage},
		{method: "POST", path: "runs/{id}/cancel", area: tenant, scope: access.AgentRunsCreate, action: cancelRun, formPage: runPage},

		// Security, team, settings.
		{method: "GET", path: "security", area: tenant, scope: access.AuditRead, page: securityPage},
		{method: "POST", path: "security", area: tenant, scope: access.AuditRead, manages: true, action: setLeakPolicy, formPage: securityPage},
		{method: "GET", path: "team", area: tenant, page: teamPage},
		{method: "POST", path: "team/leave", area: tenant, action: leave, formPage: teamPage},
		{method: "POST", path: "team/members/{id}/role", area: tenant, manages: true, confirm: true, action: changeRole, formPage: teamPage},
		{method: "POST", path: "team/members/{id}/remove", area: tenant, manages: true, confirm: true, action: removeMember, formPage: teamPage},
		{method: "POST", path: "team/invitations", area: tenant, manages: true, confirm: true, action: invite, formPage: teamPage},
		{method: "POST", path: "team/invitations/{id}/again", area: tenant, manages: true, confirm: true, action: inviteAgain, formPage: teamPage},
		{method: "POST", path: "team/invitations/{id}/revoke", area: tenant, manages: true, action: revokeInvitation, formPage: teamPage},
		{method: "GET", path: "settings", area: tenant, page: settingsPage},
		{method: "POST", path: "settings", area: tenant, manages: true, action: updateSettings, formPage: settingsPage},
		{method: "POST", path: "settings/second-factor", area: tenant, manages: true, confirm: true, action: setRequireSecondFactor, formPage: settingsPage},
		{method: "POST", path: "settings/mail", area: tenant, manages: true, action: sendTestMail, formPage: settingsPage},
	}
}

func (s *Server) newMux(table []route) *http.ServeMux {
	mux := http.NewServeMux()
	for _, rt := range table {
		mux.HandleFunc(rt.pattern(), func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt) })
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

// redirectRoute redirects to a path.
func redirectRoute(to string) route {
	return route{handle: func(req *request) { req.redirect(to, flash{}) }}
}

var notFoundRoute = route{handle: func(req *request) { req.fail(errNoSuchPage) }}

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

// hasRoute reports whether there is a route for the method and path.
func hasRoute(mux *http.ServeMux, method, address string) bool {
	_, pattern := mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: address}})
	return pattern != "" && pattern != "/"
}

// serve serves a request by its route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rt route) {
	start := s.Now()
	setDeadlines(w)
	defer clearDeadlines(w) // the connection may serve other requests
	err := s.checkForm(w, r, rt)
	live := rt.page != nil && wantsUpdates(r)
	if rt.download || live {
		clearDeadlines(w)
	} else {
		ctx, cancel := web.WithPageTimeout(r.Context())
		defer cancel()
		r = r.WithContext(ctx)
	}
	req := &request{Exchange: web.NewExchange(w, r, s.TrustedProxies, start), s: s}
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
func (s *Server) checkForm(w http.ResponseWriter, r *http.Request, rt route) error {
	if err := s.sameSite.Check(r); err != nil {
		return fault.New(fault.InsufficientScope, "This request came from another site and was rejected. Open the dashboard and try again there.").Because(err)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if rt.action == nil {
		return nil
	}
	if err := r.ParseForm(); err != nil {
		return fault.New(fault.RequestTooLarge, "The form could not be read. It is too large or took too long to arrive.").Because(err)
	}
	return nil
}

// respond authorizes the request, then shows the page or performs the action.
func (req *request) respond(rt route) {
	if err := req.authorize(rt); err != nil {
		req.deny(rt, err)
		return
	}
	if rt.page != nil {
		req.flash = req.takeFlash()
		req.restoreForm()
		if rt.area == tenant {
			req.rememberWorkspace()
		}
		req.send(rt.page(req))
		return
	}
	if rt.confirm {
		req.clearSavedForm()
	}
	shown, err := rt.action(req)
	if err != nil && rt.formPage != nil && !req.Started {
		req.rejectForm(rt.formPage, err)
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
func (req *request) rejectForm(formPage page, err error) {
	f := req.Fault(err)
	status := fault.FamilyOf(f.Code).Status
	if status >= http.StatusInternalServerError {
		req.fail(err)
		return
	}
	if errors.Is(err, people.ErrConfirmationRequired) {
		req.redirectToConfirm()
		return
	}
	if errors.Is(err, errEditConflict) {
		req.R.PostForm = nil // or the next click would save the old values
	}
	req.problem = f
	shown, pageErr := formPage(req)
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
func (req *request) authorize(rt route) error {
	if err := req.findSession(); err != nil {
		return err
	}
	if rt.area == open {
		if rt.private {
			return req.requirePrivate()
		}
		return nil
	}
	if req.session == nil {
		return errSignIn
	}
	if rt.area == tenant {
		if err := req.enterWorkspace(); err != nil {
			return err
		}
		if rt.scope != "" {
			if err := req.principal.Require(rt.scope); err != nil {
				return err
			}
		}
		if rt.manages && !access.ManagesMembers(req.role) {
			return fault.New(fault.InsufficientScope, "Only owners and admins can do this.")
		}
	}
	if rt.confirm {
		if err := req.s.People.RequireConfirmed(req.session); err != nil {
			return err
		}
	}
	return rt.checkID(req.R)
}

// enterWorkspace reads the workspace and environment in the path. For people who
// aren't members, the workspace doesn't exist.
func (req *request) enterWorkspace() error {
	env, err := accounts.ParseEnvironment(req.R.PathValue("env"))
	if err != nil {
		return errNoSuchPage
	}
	id := req.R.PathValue("workspace")
	role, err := people.RoleIn(req.Context(), req.s.DB, req.session.UserID, id)
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
	req.workspace, req.env, req.role = w, env, role
	req.principal = access.PersonPrincipal(req.session.UserID, role, accounts.Tenant{WorkspaceID: id, Environment: env})
	return nil
}

// errSignIn makes deny redirect to the sign-in page.
var errSignIn = fault.New(fault.Authentication, "Sign in first.")

// deny redirects to the page where the person can get access, or shows the error.
func (req *request) deny(rt route, err error) {
	switch {
	case errors.Is(err, people.ErrConfirmationRequired):
		req.redirectToConfirm()
	case errors.Is(err, people.ErrSecondFactorRequired):
		req.redirectToSecondFactor()
	case fault.Is(err, fault.Authentication) && rt.area != open:
		var f flash
		switch {
		case rt.path == "logout":
			f.Notice = "You are signed out."
		case req.R.Method == http.MethodPost:
			f.Notice = "You were signed out, and nothing was changed. Sign in, then fill in the form again."
		}
		req.redirect("/dashboard/login"+req.returnQuery(), f)
	default:
		req.fail(err)
	}
}

// Route is an entry of the route table, for tests.
type Route struct {
	Method    string
	Path      string // the full path, in the syntax of http.ServeMux
	SignedIn  bool   // others are redirected to the sign-in page
	Workspace bool   // it belongs to a workspace and an environment
	Scope     access.Scope
	Manages   bool
	Confirm   bool
}

// Routes returns the table of all pages and actions.
func Routes() []Route {
	var out []Route
	for _, rt := range routes() {
		out = append(out, Route{rt.method, prefix[rt.area] + rt.path, rt.area != open, rt.area == tenant, rt.scope, rt.manages, rt.confirm})
	}
	return out
}
