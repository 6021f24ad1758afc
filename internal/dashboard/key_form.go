package dashboard

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/catalog"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/gateway"
	"turnpike/internal/modelroutes"
	"turnpike/internal/web"
)

type keyForm struct {
	Key      *access.Key // current values; empty for a new key
	Seen     string      // its fingerprint
	Presets  []preset
	Scopes   []scopeGroup
	Projects []*accounts.Project
	LastDay  string
	IPs      string
	Tools    string
	Limits   limitsForm
	allowedForm
	Metadata string
}

// preset is a common choice of scopes.
type preset struct {
	Name   string
	Title  string
	Note   string
	Chosen bool
	scopes []string
}

// scopeGroup is the scopes of one resource.
type scopeGroup struct {
	Resource string
	All      *scopeBox // the wildcard, if the person may grant it
	Scopes   []scopeBox
}

type scopeBox struct {
	Name   string
	Note   string
	Ticked bool
}

// choose is the preset for individually selected scopes.
const choose = "choose"

// notCalls are scopes that create something without calling a model.
var notCalls = []access.Scope{access.ScopedTokensCreate}

// grantable returns the scopes that the person may give to a key, except for ContentRead.
func (req *request) grantable(which func(access.Scope) bool) []string {
	var out []string
	for _, s := range access.Scopes() {
		if req.principal.Grant.Allows(s) && which(s) && s != access.ContentRead {
			out = append(out, string(s))
		}
	}
	return out
}

func (req *request) presets() []preset {
	has := func(end string) func(access.Scope) bool {
		return func(s access.Scope) bool { return strings.HasSuffix(string(s), end) }
	}
	creates := has(":create")
	calls := func(s access.Scope) bool {
		return s == access.ModelsRead || creates(s) && !slices.Contains(notCalls, s)
	}
	all := preset{Name: "everything", Title: "Everything", Note: "Including future features.", scopes: []string{"*"}}
	if !slices.Contains(req.principal.Scopes, "*") {
		all.Title, all.Note = "All of your scopes", "The current scopes of your role."
		all.scopes = req.grantable(func(access.Scope) bool { return true })
	}
	return []preset{
		{Name: "calls", Title: "Model requests only", Note: "Chat, embeddings, images, video, voice and agent runs. No keys, no settings.", scopes: req.grantable(calls)},
		{Name: "read", Title: "Read only", Note: "Lists, usage and logs. No model requests and no changes.", scopes: req.grantable(has(":read"))},
		all,
		{Name: choose, Title: "Custom", Note: "Select the permissions one by one."},
	}
}

// newKeyForm returns the form of a key, with its scopes selected. Wildcards of the key
// have their own checkbox.
func (req *request) newKeyForm(k *access.Key, chosen string) (*keyForm, error) {
	f := &keyForm{Key: k, Seen: keyFingerprint(k), Presets: req.presets(), Limits: newLimitsForm(k.Limits, k.Raise, req.now())}
	for i, p := range f.Presets {
		f.Presets[i].Chosen = p.Name == chosen
	}
	names := req.grantable(func(access.Scope) bool { return true })
	if req.principal.Grant.Allows(access.ContentRead) {
		names = append(names, string(access.ContentRead)) // which no preset includes
	}
	for _, s := range k.Scopes {
		if !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	for _, name := range names {
		resource, _, _ := strings.Cut(name, ":")
		i := slices.IndexFunc(f.Scopes, func(g scopeGroup) bool { return g.Resource == resource })
		if i < 0 {
			i, f.Scopes = len(f.Scopes), append(f.Scopes, scopeGroup{Resource: resource})
		}
		box := scopeBox{name, scopeNotes[access.Scope(name)], slices.Contains(k.Scopes, name)}
		if strings.HasSuffix(name, ":*") {
			f.Scopes[i].All = &box
		} else {
			f.Scopes[i].Scopes = append(f.Scopes[i].Scopes, box)
		}
	}
	if slices.Contains(req.principal.Scopes, "*") {
		for i, g := range f.Scopes {
			if name := g.Resource + ":*"; g.All == nil && len(g.Scopes) > 1 {
				f.Scopes[i].All = &scopeBox{Name: name}
			}
		}
	}
	if k.ExpiresAt != nil {
		f.LastDay = lastDay(*k.ExpiresAt)
	}
	f.IPs, f.Tools, f.allowedForm = showAddresses(k.AllowedIPs), showList(k.AllowedTools), newAllowedForm(k.Allowed)
	f.Metadata = showMetadata(k.Metadata)
	var err error
	f.Projects, _, err = accounts.ListProjects(req.Context(), req.s.DB, req.workspace.In(req.env), db.Page{Limit: accounts.MaxProjects})
	return f, err
}

func newKeyPage(req *request) (*view, error) {
	f, err := req.newKeyForm(&access.Key{}, "calls")
	return &view{template: "key_new", title: "New API key", data: f}, err
}

func createKey(req *request) (*view, error) {
	k := &access.Key{Tenant: req.workspace.In(req.env)}
	if err := req.readKey(req.s.DB, k); err != nil {
		return nil, err
	}
	value, err := writeValue(req, func(tx *db.Tx) (string, error) {
		if k.Project != "" {
			if err := req.s.Keys.PinToProject(req.Context(), tx, req.caller(), k, k.Project); err != nil {
				return "", err
			}
		}
		return req.s.Keys.Create(req.Context(), tx, req.caller(), k)
	})
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("keys/"+k.ID), flash{Notice: "Key created.", Secret: value, Of: k.ID})
}

// keyToChange returns the key in the path if the person may change it.
func (req *request) keyToChange() (*access.Key, error) {
	k, err := req.key()
	if err != nil {
		return nil, err
	}
	if k.RevokedAt != nil {
		return nil, fault.New(fault.InvalidState, "The key is revoked and cannot be changed.")
	}
	if !req.caller().CanManage(k) {
		return nil, fault.New(fault.InsufficientScope, "The key has more scopes than your role. Ask an owner or admin to change it.")
	}
	return k, nil
}

func editKeyPage(req *request, k *access.Key) (*view, error) {
	chosen := choose
	if slices.Equal(k.Scopes, []string{"*"}) {
		chosen = "everything"
	}
	f, err := req.newKeyForm(k, chosen)
	return &view{template: "key_edit", title: "Edit " + k.Name, data: f}, err
}

func updateKey(req *request) (*view, error) {
	return req.save(req.to("keys/"+req.id()), "Key saved. The change takes effect on every node within 10 seconds.", func(tx *db.Tx) error {
		_, err := req.s.Keys.Change(req.Context(), tx, req.id(), access.Change[access.Key]{By: req.caller(), Apply: func(k *access.Key) error {
			before := *k
			if err := req.readKey(tx, k); err != nil {
				return err
			}
			if err := req.checkEditConflict(keyFingerprint(&before), keyFingerprint(k)); err != nil {
				return err
			}
			if k.Project == "" || k.Project == before.Project {
				return nil
			}
			return req.s.Keys.PinToProject(req.Context(), tx, req.caller(), k, k.Project)
		}})
		return err
	})
}

// readKey reads all fields of the form and returns all their errors.
func (req *request) readKey(q db.Querier, k *access.Key) error {
	var errs [9]error
	k.Name, k.Scopes, k.Project = req.form("name"), req.formScopes(), req.form("project")
	k.MonthlyBudget, errs[0] = req.formCredits("monthly_budget")
	errs[1] = req.readLimits(&k.Limits, &k.Raise)
	k.RateLimit, errs[2] = req.formNumber("rate_limit")
	k.ExpiresAt, errs[3] = req.formLastDay("expires_at", k.ExpiresAt)
	k.AlertThresholds, errs[4] = req.formThresholds()
	k.AlertEmail = req.form("alert_email")
	k.Metadata, errs[5] = parseMetadata(req.form("metadata"))
	k.ExternalID = req.form("external_id")
	k.AllowedTools = parseList(req.form("allowed_tools"))
	errs[6] = req.readAllowed(&k.Allowed, req.routesIn(q, k.Project))
	k.AllowedIPs, errs[7] = access.ParseAllowedIPs(words(req.form("allowed_ips")))
	k.ContentDays, errs[8] = req.formNumber("content_log_days")
	k.ContentOptOut = req.form("content_log_opt_out") != ""
	if err := errors.Join(errs[:]...); err != nil {
		return errors.Join(accounts.CheckName("name", k.Name), k.Check(), err)
	}
	return nil
}

func showMetadata(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, name+"="+m[name])
	}
	return strings.Join(lines, "\n")
}

func parseMetadata(text string) (map[string]string, error) {
	m := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, fault.Invalid("metadata", "Write each pair of metadata on its own line, as name=value.")
		}
		if _, twice := m[name]; twice {
			return nil, fault.Invalid("metadata", "The metadata has %s twice.", name)
		}
		m[name] = strings.TrimSpace(value)
	}
	return m, nil
}

// words splits a list with commas, spaces or lines.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(", \r\n\t", r) })
}

// noneAllowed is what a form shows for an empty list. An empty field allows all.
const noneAllowed = "none"

func showList(list []string) string {
	if list != nil && len(list) == 0 {
		return noneAllowed
	}
	return strings.Join(list, ", ")
}

func parseList(text string) []string {
	switch list := words(text); {
	case len(list) == 0:
		return nil
	case len(list) == 1 && list[0] == noneAllowed:
		return []string{}
	default:
		return list
	}
}

// allowedForm is the allowed models and providers of a key or a project.
type allowedForm struct{ Models, Providers string }

func newAllowedForm(a catalog.Allowed) allowedForm {
	return allowedForm{showList(a.Models), showList(a.Providers)}
}

// KnownModels returns the models and routes that a list of models can name.
func (s *shell) KnownModels() ([]string, error) {
	callable, err := s.req.s.Gateway.Models(s.req.Context(), gateway.Owner{Principal: s.req.principal})
	if err != nil {
		return nil, err
	}
	names := web.Map(callable.Models, func(m *catalog.Model) string { return m.ID })
	for _, name := range callable.Router {
		if strings.HasPrefix(name, catalog.RoutePrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// readAllowed reads the lists of a form. Only changed lists are checked, because models of others may have
// been removed since.
func (req *request) readAllowed(a *catalog.Allowed, routes func() ([]string, error)) error {
	before := newAllowedForm(*a)
	after := catalog.Allowed{Models: parseList(req.form(catalog.AllowedModelsField)), Providers: parseList(req.form(catalog.AllowedProvidersField))}
	changed := after
	if newAllowedForm(after).Models == before.Models {
		changed.Models = nil
	}
	if newAllowedForm(after).Providers == before.Providers {
		changed.Providers = nil
	}
	*a = after
	return errors.Join(changed.Check(), req.s.Gateway.CheckAllowed(changed, routes))
}

// routesIn returns a function with the names of the workspace's routes that requests in a project can use.
func (req *request) routesIn(q db.Querier, project string) func() ([]string, error) {
	return func() ([]string, error) {
		return modelroutes.Names(req.Context(), q, req.workspace.In(req.env), project)
	}
}

// formScopes returns the scopes of the preset, or the selected ones.
func (req *request) formScopes() []string {
	for _, p := range req.presets() {
		if p.Name == req.form("preset") && p.Name != choose {
			return p.scopes
		}
	}
	return req.R.PostForm["scopes"]
}
