package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/ids"
	"turnpike/internal/media"
	"turnpike/internal/people"
	"turnpike/internal/web"
)

// handler builds a view, or performs an action and redirects to a page.
type handler func(req *request) (*view, error)

// load returns a handler for the resource in the path.
func load[T any](read func(*request) (T, error), handle func(*request, T) (*view, error)) handler {
	return func(req *request) (*view, error) {
		resource, err := read(req)
		if err != nil {
			return nil, err
		}
		return handle(req, resource)
	}
}

// Route is an entry of the route table.
type Route struct {
	Method    string // GET for a page, POST for an action
	Path      string // in the syntax of http.ServeMux
	SignedIn  bool   // only for people who are signed in
	Workspace bool   // only for members, in one environment of the workspace
	Operator  bool   // only for people who run the server

	Scope    access.Scope // that the person's role must have, in a workspace
	Manages  bool         // only owners and admins
	Confirm  bool         // only after a recent proof of identity
	Download bool         // a file, which may take long
	Data     bool         // JSON for a script

	id       web.PathID // the format of the {id} in the path
	private  bool       // only over a connection that no one else can read
	page     handler
	action   handler
	formPage handler            // shown again if the action was rejected
	handle   func(req *request) // instead of page and action, for any client
}

// pathIDs are the formats of the {id} of routes, by the path before it. Handlers check the
// IDs of projects, which customers choose.
var pathIDs = map[string]web.PathID{
	"account/passkeys":            {Prefix: people.PasskeyID, Kind: "passkey"},
	"account/sessions":            {Prefix: people.SessionID, Kind: "session"},
	"deliveries":                  {Prefix: ids.Delivery, Kind: "delivery"},
	"events":                      {Prefix: ids.Event, Kind: "event"},
	"keys":                        {Prefix: ids.Key, Kind: "key"},
	"playground/requests":         {Prefix: ids.Request, Kind: "request"},
	"requests":                    {Prefix: ids.Request, Kind: "request"},
	"runs":                        {Prefix: ids.Run, Kind: "agent run"},
	"team/invitations":            {Prefix: people.InvitationID, Kind: "invitation"},
	"team/members":                {Prefix: ids.User, Kind: "member"},
	"approvals":                   {Prefix: ids.Approval, Kind: "approval"},
	"tools":                       {Prefix: ids.ToolServer, Kind: "tool server"},
	"users":                       {Prefix: ids.EndUser, Kind: "user"},
	"routes":                      {Prefix: ids.Route, Kind: "route"},
	"federation":                  {Prefix: ids.FederationRule, Kind: "federation rule"},
	"webhooks":                    {Prefix: ids.Endpoint, Kind: "webhook endpoint"},
	"webhooks/{endpoint}/replays": {Prefix: ids.Replay, Kind: "replay"},
}

// Routes returns the table of all pages and actions. Those of a workspace need the same
// scope as the API's routes for the same resource.
func Routes() []Route {
	keyPage, endpointPage, runPage := load((*request).key, showKey), load((*request).endpoint, showEndpoint), load((*request).run, showRun)
	toolServerPage := load((*request).toolServer, showToolServer)
	toolRules := load((*request).ruledTool, toolRulesPage)
	modelRoutePage := load((*request).modelRoute, showModelRoute)
	passkey := (*request).relyingParty
	public := []Route{
		{Path: "static/{file}", page: staticFile},
		{Path: "{$}", page: start},
	}
	signIn := []Route{
		{Path: "login", page: loginPage, action: login},
		{Path: "setup", page: setUpPage, action: setUp},
		{Path: "login/code", page: factorPage, action: finishLogin},
		{Path: "login/passkey/start", action: load(passkey, startPasskeyLogin)},
		{Path: "login/passkey", action: load(passkey, passkeyLogin), formPage: loginPage},
		{Path: "login/oidc", action: startOIDC, formPage: loginPage},
		{Path: "login/oidc/callback", page: finishOIDC},
		{Path: "forgot", page: forgotPage, action: forgot},
		{Path: "password", page: passwordPage, action: resetPassword},
		{Path: "invitation", page: invitationPage, action: acceptInvitation},
	}
	personal := []Route{
		{Path: "logout", action: logout},
		{Path: "theme", action: chooseTheme},
		{Path: "confirm", page: confirmPage, action: confirm},
		{Path: "second-factor", page: secondFactorPage},
		{Path: "confirm/passkey/start", action: load(passkey, startPasskeyConfirm)},
		{Path: "confirm/passkey", action: load(passkey, passkeyConfirm), formPage: confirmPage},
		{Path: "account", page: accountPage},
		{Path: "account/name", action: renamePerson, formPage: accountPage},
		{Path: "account/password", action: changePassword, formPage: accountPage},
		{Path: "account/app", Confirm: true, action: startApp, formPage: accountPage},
		{Path: "account/app", Confirm: true, page: appPage},
		{Path: "account/app/enable", Confirm: true, action: enableApp, formPage: appPage},
		{Path: "account/app/disable", Confirm: true, action: disableApp, formPage: accountPage},
		{Path: "account/app/codes", Confirm: true, action: renewCodes, formPage: accountPage},
		{Path: "account/passkeys/start", Confirm: true, action: load(passkey, startPasskey)},
		{Path: "account/passkeys", Confirm: true, action: load(passkey, addPasskey), formPage: accountPage},
		{Path: "account/passkeys/{id}/rename", action: renamePasskey, formPage: accountPage},
		{Path: "account/passkeys/{id}/delete", Confirm: true, action: deletePasskey, formPage: accountPage},
		{Path: "account/sessions/revoke", action: revokeOthers, formPage: accountPage},
		{Path: "account/sessions/{id}/revoke", action: revokeSession, formPage: accountPage},
	}
	workspace := []Route{
		{Path: "{$}", page: homePage},
		{Path: "start/dismiss", action: dismissChecklist},

		// Keys and projects.
		{Path: "keys", Scope: access.KeysRead, page: keysPage},
		{Path: "keys/new", Scope: access.KeysWrite, Confirm: true, page: newKeyPage, action: createKey},
		{Path: "keys/{id}", Scope: access.KeysRead, page: showKeyOrPlayground(keyPage)},
		{Path: "keys/{id}/edit", Scope: access.KeysWrite, Confirm: true, page: load((*request).keyToChange, editKeyPage), action: updateKey},
		{Path: "keys/{id}/rotate", Scope: access.KeysWrite, Confirm: true, page: load((*request).keyToChange, rotateKeyPage), action: rotateKey},
		{Path: "keys/{id}/end-grace", Scope: access.KeysWrite, action: endGrace, formPage: keyPage},
		{Path: "keys/{id}/revoke", Scope: access.KeysWrite, action: revokeKey, formPage: keyPage},
		{Path: "keys/{id}/tokens", Scope: access.KeysRead, page: load((*request).key, tokensPage)},
		{Path: "keys/{id}/tokens/{token}/revoke", Scope: access.ScopedTokensCreate, action: revokeToken},
		{Path: "projects", Scope: access.ProjectsRead, page: projectsPage},
		{Path: "projects", Scope: access.ProjectsWrite, action: createProject, formPage: projectsPage},
		{Path: "projects/{id}", Scope: access.ProjectsRead, page: projectPage},
		{Path: "projects/{id}", Scope: access.ProjectsWrite, action: updateProject, formPage: projectPage},
		{Path: "projects/{id}/archive", Scope: access.ProjectsWrite, action: archiveProject, formPage: projectPage},
		{Path: "projects/{id}/restore", Scope: access.ProjectsWrite, action: restoreProject, formPage: projectPage},

		{Path: "routes", Scope: access.RoutesRead, page: modelRoutesPage},
		{Path: "routes", Scope: access.RoutesWrite, action: createModelRoute, formPage: modelRoutesPage},
		{Path: "routes/{id}", Scope: access.RoutesRead, page: modelRoutePage},
		{Path: "routes/{id}", Scope: access.RoutesWrite, action: updateModelRoute, formPage: modelRoutePage},
		{Path: "routes/{id}/delete", Scope: access.RoutesWrite, action: deleteModelRoute, formPage: modelRoutePage},

		{Path: "users", Scope: access.UsersRead, page: usersPage},
		{Path: "users", Scope: access.UsersWrite, action: updateUserSettings, formPage: usersPage},
		{Path: "users/{id}", Scope: access.UsersRead, page: userPage},
		{Path: "users/{id}", Scope: access.UsersWrite, action: updateUser, formPage: userPage},
		{Path: "users/{id}/block", Scope: access.UsersWrite, action: blockUser(true, "User blocked."), formPage: userPage},
		{Path: "users/{id}/unblock", Scope: access.UsersWrite, action: blockUser(false, "User unblocked."), formPage: userPage},
		{Path: "users/{id}/delete", Scope: access.UsersWrite, action: deleteUser, formPage: userPage},

		{Path: "models", Scope: access.ModelsRead, page: modelsPage},

		// The playground. Its script calls the API with tokens from here.
		{Path: "playground", page: playgroundPage},
		{Path: "playground/token", Scope: access.ChatCompletionsCreate, Data: true, action: sendJSON(mintPlaygroundToken)},
		{Path: "playground/models", Scope: access.ModelsRead, Data: true, page: sendJSON(playgroundModels)},
		{Path: "playground/requests/{id}", Scope: access.AuditRead, Data: true, page: sendJSON(playgroundRequest)},

		// Usage, requests, the admin log, billing.
		{Path: "usage", Scope: access.UsageRead, page: usagePage},
		{Path: "usage/export.csv", Scope: access.UsageRead, Download: true, page: exportUsage},
		{Path: "requests", Scope: access.AuditRead, page: requestsPage},
		{Path: "requests/export.csv", Scope: access.AuditRead, Download: true, page: exportRequests},
		{Path: "requests/{id}", Scope: access.AuditRead, page: requestPage},
		{Path: "requests/{id}/content", Scope: access.ContentRead, page: contentPage},
		{Path: "log", Scope: access.AuditRead, page: adminLogPage},
		{Path: "billing", Scope: access.BillingRead, page: billingPage},
		{Path: "billing", Scope: access.BillingWrite, Confirm: true, action: changeBilling, formPage: billingPage},

		// Webhooks and deliveries.
		{Path: "webhooks", Scope: access.WebhooksRead, page: webhooksPage},
		{Path: "webhooks/new", Scope: access.WebhooksWrite, Confirm: true, page: newEndpointPage, action: createEndpoint},
		{Path: "webhooks/{id}", Scope: access.WebhooksRead, page: endpointPage},
		{Path: "webhooks/{id}/edit", Scope: access.WebhooksWrite, Confirm: true, page: load((*request).endpoint, editEndpointPage), action: editEndpoint},
		{Path: "webhooks/{id}/pause", Scope: access.WebhooksWrite, action: pauseEndpoint, formPage: endpointPage},
		{Path: "webhooks/{id}/resume", Scope: access.WebhooksWrite, action: resumeEndpoint, formPage: endpointPage},
		{Path: "webhooks/{id}/rotate", Scope: access.WebhooksWrite, Confirm: true, page: load((*request).endpoint, rotateSecretPage), action: rotateSecret},
		{Path: "webhooks/{id}/end_grace", Scope: access.WebhooksWrite, Confirm: true, action: endSecretGrace, formPage: endpointPage},
		{Path: "webhooks/{id}/test", Scope: access.WebhooksWrite, action: testEndpoint, formPage: endpointPage},
		{Path: "webhooks/{id}/delete", Scope: access.WebhooksWrite, action: deleteEndpoint, formPage: endpointPage},
		{Path: "webhooks/{id}/replay", Scope: access.EventsReplay, page: load((*request).endpoint, newReplayPage), action: load((*request).endpoint, startReplay)},
		{Path: "webhooks/{endpoint}/replays/{id}", Scope: access.WebhooksRead, page: replayPage},
		{Path: "deliveries", Scope: access.WebhooksRead, page: deliveriesPage},
		{Path: "deliveries", Scope: access.EventsReplay, action: replaySelected, formPage: deliveriesPage},
		{Path: "deliveries/{id}", Scope: access.WebhooksRead, page: deliveryPage},
		{Path: "deliveries/{id}/replay", Scope: access.EventsReplay, action: replayDelivery, formPage: deliveryPage},
		{Path: "events", Scope: access.EventsRead, page: eventsPage},
		{Path: "events/{id}", Scope: access.EventsRead, page: load((*request).event, eventPage)},
		{Path: "events/{id}/body", Scope: access.EventsRead, Download: true, page: load((*request).event, eventBody)},

		// Jobs and agent runs.
		{Path: "jobs", Scope: access.ImagesRead, page: jobsStart},
		{Path: "runs", Scope: access.AgentRunsRead, page: runsPage},
		{Path: "runs/{id}", Scope: access.AgentRunsRead, page: runPage},
		{Path: "runs/{id}/approvals/{approval}", Scope: access.AgentRunsApprove, action: decideRun, formPage: runPage},
		{Path: "runs/{id}/cancel", Scope: access.AgentRunsCreate, action: cancelRun, formPage: runPage},

		// Tool servers, and calls of MCP clients that need an approval.
		{Path: "federation", Scope: access.KeysRead, page: federationPage},
		{Path: "federation/new", Scope: access.KeysWrite, Confirm: true, page: newRulePage, action: createRule},
		{Path: "federation/{id}", Scope: access.KeysRead, page: load((*request).rule, showRule)},
		{Path: "federation/{id}/edit", Scope: access.KeysWrite, Confirm: true, page: load((*request).rule, editRulePage), action: editRule},
		{Path: "federation/{id}/delete", Scope: access.KeysWrite, action: deleteRule, formPage: load((*request).rule, showRule)},

		{Path: "tools", Scope: access.ToolServersRead, page: toolServersPage},
		{Path: "tools/new", Scope: access.ToolServersWrite, Confirm: true, page: newToolServerPage, action: createToolServer},
		{Path: "tools/{id}", Scope: access.ToolServersRead, page: toolServerPage},
		{Path: "tools/{id}/edit", Scope: access.ToolServersWrite, Confirm: true, page: load((*request).toolServer, editToolServerPage), action: editToolServer},
		{Path: "tools/{id}/tools", Scope: access.ToolServersWrite, Confirm: true, action: setTools, formPage: toolServerPage},
		{Path: "tools/{id}/rules/{tool}", Scope: access.ToolServersWrite, Confirm: true, page: toolRules, action: load((*request).ruledTool, setToolRules)},
		{Path: "tools/{id}/rules/{tool}/remove", Scope: access.ToolServersWrite, Confirm: true, action: load((*request).ruledTool, removeToolRules), formPage: toolRules},
		{Path: "tools/{id}/connect", Scope: access.ToolServersWrite, Confirm: true, action: connectToolServer, formPage: toolServerPage},
		{Path: "tools/{id}/disconnect", Scope: access.ToolServersWrite, action: disconnectToolServer, formPage: toolServerPage},
		{Path: toolCallback, Scope: access.ToolServersWrite, page: finishToolConnection},
		{Path: "tools/{id}/refresh", Scope: access.ToolServersWrite, action: refreshToolServer, formPage: toolServerPage},
		{Path: "tools/{id}/delete", Scope: access.ToolServersWrite, action: deleteToolServer, formPage: toolServerPage},
		{Path: "approvals", Scope: access.ToolServersRead, page: approvalsPage},
		{Path: "approvals/{id}", Scope: access.AgentRunsApprove, action: decideToolCall, formPage: approvalsPage},

		// Security, team, settings.
		{Path: "security", Scope: access.AuditRead, page: securityPage},
		{Path: "security", Scope: access.AuditRead, Manages: true, action: setLeakPolicy, formPage: securityPage},
		{Path: "team", page: teamPage},
		{Path: "find", Data: true, page: find},
		{Path: "team/leave", action: leave, formPage: teamPage},
		{Path: "team/members/{id}/role", Manages: true, Confirm: true, action: changeRole, formPage: teamPage},
		{Path: "team/members/{id}/content", Manages: true, Confirm: true, action: allowContent, formPage: teamPage},
		{Path: "team/members/{id}/remove", Manages: true, Confirm: true, action: removeMember, formPage: teamPage},
		{Path: "team/invitations", Manages: true, Confirm: true, action: invite, formPage: teamPage},
		{Path: "team/invitations/{id}/again", Manages: true, Confirm: true, action: inviteAgain, formPage: teamPage},
		{Path: "team/invitations/{id}/revoke", Manages: true, action: revokeInvitation, formPage: teamPage},
		{Path: "settings", page: settingsPage},
		{Path: "settings", Manages: true, action: updateSettings, formPage: settingsPage},
		{Path: "settings/responses", Manages: true, Confirm: true, action: setResponseRetention, formPage: settingsPage},
		{Path: "settings/second-factor", Manages: true, Confirm: true, action: setRequireSecondFactor, formPage: settingsPage},
		{Path: "settings/mail", Manages: true, action: sendTestMail, formPage: settingsPage},
		{Path: "settings/notifications", Manages: true, action: updateNotifications, formPage: settingsPage},
		{Path: "settings/notifications/test", Manages: true, action: testNotifications, formPage: settingsPage},
	}
	for _, tab := range jobTabs {
		path, id := "jobs/"+tab.Path, web.PathID{Prefix: tab.Kind.Prefix(), Kind: tab.Kind.Noun()}
		workspace = append(workspace,
			Route{Path: path, Scope: tab.Reads, page: tab.listPage},
			Route{Path: path + "/{id}", id: id, Scope: tab.Reads, page: tab.jobPage},
			Route{Path: path + "/{id}/cancel", id: id, Scope: tab.Writes, action: tab.cancel, formPage: tab.jobPage},
			Route{Path: path + "/{id}/delete", id: id, Scope: tab.Writes, action: tab.remove, formPage: tab.jobPage})
		if tab.Kind == media.Images {
			workspace = append(workspace, Route{Path: path + "/{id}/images.zip", id: id, Scope: tab.Reads, Download: true, page: tab.downloadImages})
		}
	}
	for _, tab := range batchTabs {
		workspace = append(workspace, tab.routes()...)
	}
	providerPage := load((*request).provider, showProvider)
	server := []Route{
		{Path: "server", page: serverPage},
		{Path: "server/providers/new", Confirm: true, page: newProviderPage, action: createProvider},
		{Path: "server/providers/{name}", page: providerPage},
		{Path: "server/providers/{name}/edit", Confirm: true, page: load((*request).provider, editProviderPage), action: editProvider},
		{Path: "server/providers/{name}/models", page: discoveredModelsPage},
		{Path: "server/pricing", Confirm: true, action: setMarkup, formPage: serverPage},
		{Path: "server/providers/{name}/test", action: testProvider, formPage: providerPage},
		{Path: "server/providers/{name}/delete", Confirm: true, action: deleteProvider, formPage: providerPage},
		{Path: "server/routes", Confirm: true, action: createRoute, formPage: serverPage},
		{Path: "server/routes/{name}/delete", Confirm: true, action: deleteRoute, formPage: serverPage},
	}
	return slices.Concat(
		expand(Route{Path: Home, SignedIn: true, Operator: true}, server),
		expand(Route{Path: Home}, public),
		expand(Route{Path: Home, private: true}, signIn),
		expand(Route{Path: Home, SignedIn: true}, personal),
		expand(Route{Path: workspacePath, SignedIn: true, Workspace: true}, workspace))
}

// expand completes the routes of an area. An entry with a page and an action becomes two
// routes: the page is the form of the action.
func expand(area Route, list []Route) []Route {
	var out []Route
	for _, rt := range list {
		before, _, _ := strings.Cut(rt.Path, "/{id}")
		rt.id, rt.Path = cmp.Or(rt.id, pathIDs[before]), area.Path+rt.Path
		rt.SignedIn, rt.Workspace, rt.Operator, rt.private = area.SignedIn, area.Workspace, area.Operator, area.private
		page, action, confirm := rt.page, rt.action, rt.Confirm
		if page != nil {
			rt.Method, rt.action = http.MethodGet, nil
			rt.Confirm = confirm && action == nil // sending the form needs it, opening it doesn't
			out = append(out, rt)
		}
		if action != nil {
			rt.Method, rt.page, rt.action, rt.Confirm = http.MethodPost, nil, action, confirm
			if page != nil {
				rt.formPage = page
			}
			out = append(out, rt)
		}
	}
	return out
}
