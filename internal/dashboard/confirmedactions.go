package dashboard

import (
	"net/http"
	"net/url"
	"strings"
)

// confirmedActions say what the actions do that need a confirmation, by the paths in the table of routes.
var confirmedActions = map[string]string{
	"account/app":                  "set up an authenticator app",
	"account/app/enable":           "enable the authenticator app",
	"account/app/disable":          "disable the authenticator app",
	"account/app/codes":            "renew the recovery codes",
	"account/passkeys/start":       "add a passkey",
	"account/passkeys":             "add a passkey",
	"account/passkeys/{id}/delete": "delete the passkey",

	"keys/new":                       "create the key",
	"keys/{id}/edit":                 "change the key",
	"keys/{id}/rotate":               "rotate the key",
	"billing":                        "change the billing settings",
	"webhooks/new":                   "create the endpoint",
	"webhooks/{id}/edit":             "change the endpoint",
	"webhooks/{id}/rotate":           "rotate the secret of the endpoint",
	"webhooks/{id}/end_grace":        "end the grace period of the old secret",
	"federation/new":                 "create the federation rule",
	"federation/{id}/edit":           "change the federation rule",
	"tools/new":                      "add the tool server",
	"tools/{id}/edit":                "change the tool server",
	"tools/{id}/tools":               "change the tools of the server",
	"tools/{id}/rules/{tool}":        "change the rules of the tool",
	"tools/{id}/rules/{tool}/remove": "remove the rules of the tool",
	"tools/{id}/connect":             "connect the tool server",
	"team/members/{id}/role":         "change the role of the member",
	"team/members/{id}/content":      "change the member's access to content",
	"team/members/{id}/remove":       "remove the member",
	"team/invitations":               "send the invitation",
	"team/invitations/{id}/again":    "send the invitation again",
	"settings/responses":             "change how long responses are kept",
	"settings/second-factor":         "change whether members need a second factor",

	"server/providers/new":           "add the provider",
	"server/providers/{name}/edit":   "change the provider",
	"server/providers/{name}/delete": "delete the provider",
	"server/pricing":                 "change the markup",
	"server/routes":                  "save the route",
	"server/routes/{name}/delete":    "delete the route",
}

const workspacePath = Home + "w/{workspace}/{env}/"

// savedAction returns what the saved form with an ID does, or an empty string if the person has to send it again.
func (req *request) savedAction(id string) string {
	f := req.openForm()
	if f == nil || f.Action == "" || f.ID != id {
		return ""
	}
	action, err := url.Parse(f.Action)
	if err != nil {
		return ""
	}
	_, pattern := req.s.mux.Handler(&http.Request{Method: http.MethodPost, URL: action})
	return confirmedActions[actionPath(pattern)]
}

// actionPath returns the path of an action as the table of routes has it, without its area.
func actionPath(pattern string) string {
	_, path, _ := strings.Cut(pattern, " ")
	if inside, found := strings.CutPrefix(path, workspacePath); found {
		return inside
	}
	return strings.TrimPrefix(path, Home)
}
