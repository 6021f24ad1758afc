package dashboard

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/endusers"
	"turnpike/internal/gateway"
)

// findResult is an object that the command palette offers.
type findResult struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
	URL    string `json:"url"`
}

const (
	// maxFound is how many objects of a kind the palette offers.
	maxFound = 5
	// maxNamed is how many objects of a kind are searched by name, except keys.
	maxNamed = 200
)

// find returns the object with the ID that the query is, and those whose names contain it,
// as JSON, each kind if the person's role can read it.
func find(req *request) (*view, error) {
	text := strings.TrimSpace(req.query("q"))
	results := []findResult{}
	if text != "" && len(text) <= maxSearch && utf8.ValidString(text) {
		path, err := req.locate(text)
		if err != nil {
			return nil, err
		}
		if path != "" {
			results = append(results, findResult{Kind: "Open", Name: text, URL: path})
		}
		for _, f := range finders {
			if f.scope != "" && !req.principal.Grant.Allows(f.scope) {
				continue
			}
			found, err := f.find(req, text)
			if err != nil {
				return nil, err
			}
			results = append(results, found[:min(len(found), maxFound)]...)
		}
	}
	body, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	req.W.Header().Set("Content-Type", "application/json")
	req.WriteHeader(http.StatusOK)
	_, _ = req.W.Write(body) // the browser may have disconnected
	return nil, nil
}

type finder struct {
	scope access.Scope
	find  func(req *request, text string) ([]findResult, error)
}

var finders = []finder{
	{access.KeysRead, (*request).findKeys},
	{access.ProjectsRead, (*request).findProjects},
	{access.WebhooksRead, (*request).findEndpoints},
	{access.RoutesRead, (*request).findRoutes},
	{access.ToolServersRead, (*request).findToolServers},
	{access.KeysRead, (*request).findRules},
	{access.ModelsRead, (*request).findModels},
	{access.UsersRead, (*request).findUsers},
	{"", (*request).findMembers},
	{"", (*request).findProviders},
}

// matching returns the results whose name or detail contains the text.
func matching(text string, all []findResult) []findResult {
	var out []findResult
	for _, r := range all {
		if containsFold(r.Name, text) || containsFold(r.Detail, text) {
			out = append(out, r)
		}
	}
	return out
}

func containsFold(s, part string) bool {
	return strings.Contains(strings.ToLower(s), strings.ToLower(part))
}

func (req *request) findKeys(text string) (out []findResult, err error) {
	keys, _, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{Text: text}, db.Page{Limit: maxFound})
	for _, k := range keys {
		out = append(out, findResult{"API key", k.Name, k.Hint(), req.to("keys/" + k.ID)})
	}
	return out, err
}

func (req *request) findProjects(text string) (all []findResult, err error) {
	list, _, err := accounts.ListProjects(req.Context(), req.s.DB, req.workspace.In(req.env), db.Page{Limit: maxNamed})
	for _, p := range list {
		all = append(all, findResult{"Project", cmp.Or(p.Name, p.ID), p.ID, req.to("projects/" + url.PathEscape(p.ID))})
	}
	return matching(text, all), err
}

func (req *request) findEndpoints(text string) (all []findResult, err error) {
	list, err := req.s.Webhooks.List(req.Context(), req.s.DB, req.principal.Visibility(), false, db.Page{Limit: maxNamed})
	if err != nil {
		return nil, err
	}
	for _, e := range list.Rows {
		all = append(all, findResult{"Webhook endpoint", cmp.Or(e.Description, e.URL), e.URL, req.to("webhooks/" + e.ID)})
	}
	return matching(text, all), nil
}

func (req *request) findRoutes(text string) (all []findResult, err error) {
	list, err := req.s.Routes.List(req.Context(), req.s.DB, req.principal.Visibility())
	for _, r := range list {
		all = append(all, findResult{"Route", r.Name, strings.Join(r.Models, ", "), req.to("routes/" + r.ID)})
	}
	return matching(text, all), err
}

func (req *request) findToolServers(text string) (all []findResult, err error) {
	list, err := req.s.ToolServers.List(req.Context(), req.s.DB, req.principal.Visibility(), db.Page{Limit: maxNamed})
	if err != nil {
		return nil, err
	}
	for _, s := range list.Rows {
		all = append(all, findResult{"Tool server", s.Label, s.URL, req.to("tools/" + s.ID)})
	}
	return matching(text, all), nil
}

func (req *request) findMembers(text string) (all []findResult, err error) {
	list, err := accounts.ListUsers(req.Context(), req.s.DB, req.workspace.ID)
	for _, u := range list {
		all = append(all, findResult{"Member", cmp.Or(u.Name, u.Email), u.Email, req.to("team")})
	}
	return matching(text, all), err
}

func (req *request) findRules(text string) (all []findResult, err error) {
	list, err := req.s.Federation.List(req.Context(), req.s.DB, req.principal.Visibility(), db.Page{Limit: maxNamed})
	if err != nil {
		return nil, err
	}
	for _, r := range list.Rows {
		all = append(all, findResult{"Federation rule", r.Name, r.Issuer, req.to("federation/" + r.ID)})
	}
	return matching(text, all), nil
}

func (req *request) findModels(text string) (all []findResult, err error) {
	callable, err := req.s.Gateway.Models(req.Context(), gateway.Owner{Principal: req.principal})
	if err != nil {
		return nil, err
	}
	for _, m := range callable.Models {
		if containsFold(m.ID, text) {
			all = append(all, findResult{"Model", m.ID, m.Provider, req.to("models?" + url.Values{"q": {m.ID}}.Encode())})
		}
	}
	return all, nil
}

// findUsers finds the end user with an ID of the workspace, and those of the newest ones whose ID contains the text.
func (req *request) findUsers(text string) (all []findResult, err error) {
	t := req.workspace.In(req.env)
	exact, _, err := endusers.List(req.Context(), req.s.DB, t, endusers.Filter{Name: text}, db.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	newest, _, err := endusers.List(req.Context(), req.s.DB, t, endusers.Filter{}, db.Page{Limit: maxNamed})
	for i, u := range append(exact, newest...) {
		if i == 0 || len(exact) == 0 || u.ID != exact[0].ID {
			all = append(all, findResult{"User", u.Name, u.ID, req.to("users/" + u.ID)})
		}
	}
	return matching(text, all), err
}

// findProviders finds providers for operators, whose pages only they can open.
func (req *request) findProviders(text string) (all []findResult, err error) {
	is, err := req.isOperator()
	if err != nil || !is {
		return nil, err
	}
	for _, name := range req.s.Facts().Providers {
		all = append(all, findResult{"Provider", name, "", providerPath(name)})
	}
	return matching(text, all), nil
}
