package dashboard

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/fault"
	"turnpike/internal/media"
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
	long    bool         // a file, which may take its time
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
		{method: "GET", path: "login/code", area: open, page: factorPage},
		{method: "POST", path: "login/code", area: open, deed: finishLogin, back: factorPage},
		{method: "POST", path: "login/passkey/start", area: open, deed: startPasskeyLogin},
		{method: "POST", path: "login/passkey", area: open, deed: passkeyLogin, back: loginPage},
		{method: "POST", path: "login/oidc", area: open, deed: startOIDC, back: loginPage},
		{method: "GET", path: "login/oidc/callback", area: open, page: finishOIDC},
		{method: "GET", path: "forgot", area: open, page: forgotPage},
		{method: "POST", path: "forgot", area: open, deed: forgot, back: forgotPage},
		{method: "GET", path: "password", area: open, page: passwordPage},
		{method: "POST", path: "password", area: open, deed: resetPassword, back: passwordPage},
		{method: "GET", path: "invitation", area: open, page: invitationPage},
		{method: "POST", path: "invitation", area: open, deed: acceptInvitation, back: invitationPage},
		{method: "GET", path: "second-factor", area: personal, page: secondFactorPage},
		{method: "POST", path: "confirm/passkey/start", area: personal, deed: startPasskeyConfirm},
		{method: "POST", path: "confirm/passkey", area: personal, deed: passkeyConfirm, back: confirmPage},

		// One's own account.
		{method: "GET", path: "account", area: personal, page: accountPage},
		{method: "POST", path: "account/name", area: personal, deed: renamePerson, back: accountPage},
		{method: "POST", path: "account/password", area: personal, deed: changePassword, back: accountPage},
		{method: "POST", path: "account/app", area: personal, confirm: true, deed: startApp, back: accountPage},
		{method: "GET", path: "account/app", area: personal, confirm: true, page: appPage},
		{method: "POST", path: "account/app/enable", area: personal, confirm: true, deed: enableApp, back: appPage},
		{method: "POST", path: "account/app/disable", area: personal, confirm: true, deed: disableApp, back: accountPage},
		{method: "POST", path: "account/app/codes", area: personal, confirm: true, deed: renewCodes, back: accountPage},
		{method: "POST", path: "account/passkeys/start", area: personal, confirm: true, deed: startPasskey},
		{method: "POST", path: "account/passkeys", area: personal, confirm: true, deed: addPasskey, back: accountPage},
		{method: "POST", path: "account/passkeys/{id}/rename", area: personal, deed: renamePasskey, back: accountPage},
		{method: "POST", path: "account/passkeys/{id}/delete", area: personal, confirm: true, deed: deletePasskey, back: accountPage},
		{method: "POST", path: "account/sessions/revoke", area: personal, deed: revokeOthers, back: accountPage},
		{method: "POST", path: "account/sessions/{id}/revoke", area: personal, deed: revokeSession, back: accountPage},

		// Home.
		{method: "GET", path: "{$}", area: tenant, page: homePage},

		// Keys and projects.
		{method: "GET", path: "keys", area: tenant, scope: access.KeysRead, page: keysPage},
		{method: "GET", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, page: newKeyPage},
		{method: "POST", path: "keys/new", area: tenant, scope: access.KeysWrite, confirm: true, deed: createKey, back: newKeyPage},
		{method: "GET", path: "keys/{id}", area: tenant, scope: access.KeysRead, page: keyPage},
		{method: "GET", path: "keys/{id}/edit", area: tenant, scope: access.KeysWrite, confirm: true, page: editKeyPage},
		{method: "POST", path: "keys/{id}/edit", area: tenant, scope: access.KeysWrite, confirm: true, deed: updateKey, back: editKeyPage},
		{method: "GET", path: "keys/{id}/rotate", area: tenant, scope: access.KeysWrite, confirm: true, page: rotateKeyPage},
		{method: "POST", path: "keys/{id}/rotate", area: tenant, scope: access.KeysWrite, confirm: true, deed: rotateKey, back: rotateKeyPage},
		{method: "POST", path: "keys/{id}/end-grace", area: tenant, scope: access.KeysWrite, deed: endGrace, back: keyPage},
		{method: "POST", path: "keys/{id}/revoke", area: tenant, scope: access.KeysWrite, deed: revokeKey, back: keyPage},
		{method: "GET", path: "keys/{id}/tokens", area: tenant, scope: access.KeysRead, page: tokensPage},
		{method: "POST", path: "keys/{id}/tokens/{token}/revoke", area: tenant, scope: access.ScopedTokensCreate, deed: revokeToken},
		{method: "GET", path: "projects", area: tenant, scope: access.ProjectsRead, page: projectsPage},
		{method: "POST", path: "projects", area: tenant, scope: access.ProjectsWrite, deed: createProject, back: projectsPage},
		{method: "GET", path: "projects/{id}", area: tenant, scope: access.ProjectsRead, page: projectPage},
		{method: "POST", path: "projects/{id}", area: tenant, scope: access.ProjectsWrite, deed: updateProject, back: projectPage},
		{method: "POST", path: "projects/{id}/archive", area: tenant, scope: access.ProjectsWrite, deed: archiveProject, back: projectPage},
		{method: "POST", path: "projects/{id}/restore", area: tenant, scope: access.ProjectsWrite, deed: restoreProject, back: projectPage},

		// Usage, requests, the admin log, billing.
		{method: "GET", path: "usage", area: tenant, scope: access.UsageRead, page: usagePage},
		{method: "GET", path: "usage/export.csv", area: tenant, scope: access.UsageRead, long: true, page: exportUsage},
		{method: "GET", path: "requests", area: tenant, scope: access.AuditRead, page: requestsPage},
		{method: "GET", path: "requests/export.csv", area: tenant, scope: access.AuditRead, long: true, page: exportRequests},
		{method: "GET", path: "requests/{id}", area: tenant, scope: access.AuditRead, page: requestPage},
		{method: "GET", path: "log", area: tenant, scope: access.AuditRead, page: adminLogPage},
		{method: "GET", path: "billing", area: tenant, scope: access.BillingRead, page: billingPage},
		{method: "POST", path: "billing", area: tenant, scope: access.BillingWrite, confirm: true, deed: changeBilling, back: billingPage},

		// Webhooks and deliveries.
		{method: "GET", path: "webhooks", area: tenant, scope: access.WebhooksRead, page: webhooksPage},
		{method: "GET", path: "webhooks/new", area: tenant, scope: access.WebhooksWrite, confirm: true, page: newEndpointPage},
		{method: "POST", path: "webhooks/new", area: tenant, scope: access.WebhooksWrite, confirm: true, deed: createEndpoint, back: newEndpointPage},
		{method: "GET", path: "webhooks/{id}", area: tenant, scope: access.WebhooksRead, page: endpointPage},
		{method: "GET", path: "webhooks/{id}/edit", area: tenant, scope: access.WebhooksWrite, confirm: true, page: editEndpointPage},
		{method: "POST", path: "webhooks/{id}/edit", area: tenant, scope: access.WebhooksWrite, confirm: true, deed: editEndpoint, back: editEndpointPage},
		{method: "POST", path: "webhooks/{id}/pause", area: tenant, scope: access.WebhooksWrite, deed: pauseEndpoint, back: endpointPage},
		{method: "POST", path: "webhooks/{id}/resume", area: tenant, scope: access.WebhooksWrite, deed: resumeEndpoint, back: endpointPage},
		{method: "GET", path: "webhooks/{id}/rotate", area: tenant, scope: access.WebhooksWrite, confirm: true, page: rotateSecretPage},
		{method: "POST", path: "webhooks/{id}/rotate", area: tenant, scope: access.WebhooksWrite, confirm: true, deed: rotateSecret, back: rotateSecretPage},
		{method: "POST", path: "webhooks/{id}/end_grace", area: tenant, scope: access.WebhooksWrite, confirm: true, deed: endSecretGrace, back: endpointPage},
		{method: "POST", path: "webhooks/{id}/test", area: tenant, scope: access.WebhooksWrite, deed: testEndpoint, back: endpointPage},
		{method: "POST", path: "webhooks/{id}/delete", area: tenant, scope: access.WebhooksWrite, deed: deleteEndpoint, back: endpointPage},
		{method: "GET", path: "webhooks/{id}/replay", area: tenant, scope: access.EventsReplay, page: newReplayPage},
		{method: "POST", path: "webhooks/{id}/replay", area: tenant, scope: access.EventsReplay, deed: startReplay, back: newReplayPage},
		{method: "GET", path: "webhooks/{endpoint}/replays/{id}", area: tenant, scope: access.WebhooksRead, page: replayPage},
		{method: "GET", path: "deliveries", area: tenant, scope: access.WebhooksRead, page: deliveriesPage},
		{method: "POST", path: "deliveries", area: tenant, scope: access.EventsReplay, deed: replaySelected, back: deliveriesPage},
		{method: "GET", path: "deliveries/{id}", area: tenant, scope: access.WebhooksRead, page: deliveryPage},
		{method: "POST", path: "deliveries/{id}/replay", area: tenant, scope: access.EventsReplay, deed: replayDelivery, back: deliveryPage},
		{method: "GET", path: "events", area: tenant, scope: access.EventsRead, page: eventsPage},
		{method: "GET", path: "events/{id}", area: tenant, scope: access.EventsRead, page: eventPage},
		{method: "GET", path: "events/{id}/body", area: tenant, scope: access.EventsRead, long: true, page: eventBody},

		// Jobs and agent runs.
		{method: "GET", path: "jobs", area: tenant, scope: access.ImagesRead, page: jobsStart},
		{method: "GET", path: "jobs/images", area: tenant, scope: access.ImagesRead, page: jobsPage(media.Images)},
		{method: "GET", path: "jobs/images/{id}", area: tenant, scope: access.ImagesRead, page: jobPage(media.Images)},
		{method: "POST", path: "jobs/images/{id}/cancel", area: tenant, scope: access.ImagesCreate, deed: cancelJob(media.Images), back: jobPage(media.Images)},
		{method: "POST", path: "jobs/images/{id}/delete", area: tenant, scope: access.ImagesCreate, deed: deleteJob(media.Images), back: jobPage(media.Images)},
		{method: "GET", path: "jobs/videos", area: tenant, scope: access.VideosRead, page: jobsPage(media.Video)},
		{method: "GET", path: "jobs/videos/{id}", area: tenant, scope: access.VideosRead, page: jobPage(media.Video)},
		{method: "POST", path: "jobs/videos/{id}/cancel", area: tenant, scope: access.VideosCreate, deed: cancelJob(media.Video), back: jobPage(media.Video)},
		{method: "POST", path: "jobs/videos/{id}/delete", area: tenant, scope: access.VideosCreate, deed: deleteJob(media.Video), back: jobPage(media.Video)},
		{method: "GET", path: "jobs/voice", area: tenant, scope: access.VoiceRead, page: jobsPage(media.Voice)},
		{method: "GET", path: "jobs/voice/{id}", area: tenant, scope: access.VoiceRead, page: jobPage(media.Voice)},
		{method: "POST", path: "jobs/voice/{id}/cancel", area: tenant, scope: access.VoiceCreate, deed: cancelJob(media.Voice), back: jobPage(media.Voice)},
		{method: "POST", path: "jobs/voice/{id}/delete", area: tenant, scope: access.VoiceCreate, deed: deleteJob(media.Voice), back: jobPage(media.Voice)},
		{method: "GET", path: "runs", area: tenant, scope: access.AgentRunsRead, page: runsPage},
		{method: "GET", path: "runs/{id}", area: tenant, scope: access.AgentRunsRead, page: runPage},
		{method: "POST", path: "runs/{id}/approvals/{approval}", area: tenant, scope: access.AgentRunsApprove, deed: decideRun, back: runPage},
		{method: "POST", path: "runs/{id}/cancel", area: tenant, scope: access.AgentRunsCreate, deed: cancelRun, back: runPage},

		// Security, team, settings.
		{method: "GET", path: "security", area: tenant, scope: access.AuditRead, page: securityPage},
		{method: "POST", path: "security", area: tenant, scope: access.AuditRead, manages: true, deed: setLeakPolicy, back: securityPage},
		{method: "GET", path: "team", area: tenant, page: teamPage},
		{method: "POST", path: "team/leave", area: tenant, deed: leave, back: teamPage},
		{method: "POST", path: "team/members/{id}/role", area: tenant, manages: true, confirm: true, deed: changeRole, back: teamPage},
		{method: "POST", path: "team/members/{id}/remove", area: tenant, manages: true, confirm: true, deed: removeMember, back: teamPage},
		{method: "POST", path: "team/invitations", area: tenant, manages: true, confirm: true, deed: invite, back: teamPage},
		{method: "POST", path: "team/invitations/{id}/again", area: tenant, manages: true, confirm: true, deed: inviteAgain, back: teamPage},
		{method: "POST", path: "team/invitations/{id}/revoke", area: tenant, manages: true, deed: revokeInvitation, back: teamPage},
		{method: "GET", path: "settings", area: tenant, page: settingsPage},
		{method: "POST", path: "settings", area: tenant, manages: true, deed: updateSettings, back: settingsPage},
		{method: "POST", path: "settings/second-factor", area: tenant, manages: true, confirm: true, deed: setRequireSecondFactor, back: settingsPage},
		{method: "POST", path: "settings/mail", area: tenant, manages: true, deed: sendTestMail, back: settingsPage},
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
		v := visitOf(w)
		if r.Method == http.MethodGet && known(mux, http.MethodPost, r.URL.Path) {
			v.redirect(pageAbove(mux, r.URL.Path), flash{})
			return
		}
		v.fail(fault.New(fault.NotFound, "there is no such page"))
	})
	return mux
}

// pageAbove is the page that a form belongs to: its address is opened when
// somebody loads what a refused form has shown, or had to sign in again.
func pageAbove(mux *http.ServeMux, address string) string {
	// An address may be anybody's, and lead out of the dashboard: above the root
	// there is only the root.
	for at := path.Dir(address); strings.HasPrefix(at, Home); at = path.Dir(at) {
		if known(mux, http.MethodGet, at) {
			return at
		}
	}
	return Home
}

// known reports whether the path can be asked for in this way.
func known(mux *http.ServeMux, method, address string) bool {
	_, pattern := mux.Handler(&http.Request{Method: method, URL: &url.URL{Path: address}})
	return pattern != "" && pattern != "/"
}

// serve lets the visit in and answers it.
func (v *visit) serve(rt route) {
	if rt.deed != nil {
		// Before anybody is asked who they are: a form that takes its time must
		// not be done under rights that are gone when it has arrived.
		if err := v.r.ParseForm(); err != nil {
			v.fail(fault.New(fault.RequestTooLarge, "the form cannot be read; it may be too large, or took too long to come").Because(err))
			return
		}
	}
	watches := rt.page != nil && v.wantsUpdates()
	if rt.long || watches {
		v.takeYourTime()
	} else {
		defer v.impatient()()
	}
	if watches {
		v.keepUpdated(rt)
		return
	}
	err := v.admit(rt)
	if err != nil {
		v.turnedAway(rt, err)
		return
	}
	if rt.page != nil {
		v.flash = v.takeFlash()
		v.takeTyped()
		if rt.area == tenant {
			v.rememberPlace()
		}
		v.answer(rt.page(v))
		return
	}
	if rt.confirm {
		v.forgetTyped()
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
	if err == error(errOvertaken) { //nolint:errorlint // as above
		v.r.PostForm = nil // shown again it would be saved with the next click
	}
	v.problem = f
	shown, pageErr := rt.back(v)
	if pageErr != nil || shown == nil {
		v.fail(err)
		return
	}
	shown.status = status
	shown.live = false // there may be no page at the address that the form went to
	v.sayWhen(f)
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
	w, err := accounts.GetWorkspace(v.ctx(), v.s.DB, id)
	if err != nil {
		return err
	}
	if w.RequireSecondFactor && v.session.SecondFactorAt == nil {
		return people.ErrSecondFactor
	}
	v.workspace, v.env, v.role = w, env, role
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
	case err == error(people.ErrSecondFactor): //nolint:errorlint // as above
		v.askForSecondFactor()
	case fault.Is(err, fault.Authentication) && rt.area != open:
		var f flash
		switch {
		case rt.path == "logout":
			f.Notice = "You are signed out."
		case v.r.Method == http.MethodPost:
			f.Notice = "You were signed out, and nothing was changed. Sign in, then fill in the form again."
		}
		v.redirect("/dashboard/login"+v.comeBack(), f)
	default:
		v.fail(err)
	}
}
