package dashboard

import (
	"slices"
	"strings"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

// keyForm is what the form of a key begins with.
type keyForm struct {
	Key      *access.Key // as it is; an empty one for a new key
	Seen     string      // the mark of it
	Presets  []preset
	Scopes   []scopeGroup
	Projects []*accounts.Project
	LastDay  string
	IPs      string
}

// preset is a choice of scopes that many keys have.
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
	Scopes   []scopeBox
}

type scopeBox struct {
	Name   string
	Ticked bool
}

// choose is the preset that takes what is ticked.
const choose = "choose"

// notCalls are scopes that create something without calling a model.
var notCalls = []access.Scope{access.ScopedTokensCreate}

// grantable are the scopes that the person may give to a key.
func (v *visit) grantable(which func(access.Scope) bool) []string {
	var out []string
	for _, s := range access.Scopes() {
		if v.principal.Grant.Allows(s) && which(s) {
			out = append(out, string(s))
		}
	}
	return out
}

func (v *visit) presets() []preset {
	has := func(end string) func(access.Scope) bool {
		return func(s access.Scope) bool { return strings.HasSuffix(string(s), end) }
	}
	creates := has(":create")
	calls := func(s access.Scope) bool {
		return s == access.ModelsRead || creates(s) && !slices.Contains(notCalls, s)
	}
	all := preset{Name: "everything", Title: "Everything", Note: "Also what is added to Turnpike later.", scopes: []string{"*"}}
	if !slices.Contains(v.principal.Scopes, "*") {
		all.Title, all.Note = "Everything that you may do", "As your role allows it today."
		all.scopes = v.grantable(func(access.Scope) bool { return true })
	}
	return []preset{
		{Name: "calls", Title: "Model calls only", Note: "Chat, embeddings, images, video, voice and agent runs. No keys, no settings.", scopes: v.grantable(calls)},
		{Name: "read", Title: "Read only", Note: "Lists, usage and logs. It can neither call a model nor change anything.", scopes: v.grantable(has(":read"))},
		all,
		{Name: choose, Title: "Choose", Note: "Tick what the key may do. Everything else is refused."},
	}
}

// newKeyForm is the form of a key, with its scopes ticked. A wildcard that the
// key has stays a box of its own.
func (v *visit) newKeyForm(k *access.Key, chosen string) (*keyForm, error) {
	f := &keyForm{Key: k, Seen: keyMark(k), Presets: v.presets()}
	for i, p := range f.Presets {
		f.Presets[i].Chosen = p.Name == chosen
	}
	names := v.grantable(func(access.Scope) bool { return true })
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
		f.Scopes[i].Scopes = append(f.Scopes[i].Scopes, scopeBox{name, slices.Contains(k.Scopes, name)})
	}
	if k.ExpiresAt != nil {
		f.LastDay = lastDay(*k.ExpiresAt)
	}
	f.IPs = showAddresses(k.AllowedIPs)
	var err error
	f.Projects, _, err = accounts.ListProjects(v.ctx(), v.s.DB, v.workspace.ID, v.env, db.Page{Limit: accounts.MaxProjects})
	return f, err
}

func newKeyPage(v *visit) (*view, error) {
	f, err := v.newKeyForm(&access.Key{}, "calls")
	return &view{template: "key_new", title: "New API key", data: f}, err
}

func createKey(v *visit) (*view, error) {
	k := &access.Key{WorkspaceID: v.workspace.ID, Environment: v.env}
	if err := v.readKey(k); err != nil {
		return nil, err
	}
	var value string
	err := v.write(func(tx *db.Tx) (err error) {
		if k.Project != "" {
			if err := v.s.Keys.PinToProject(v.ctx(), tx, v.caller(), k, k.Project); err != nil {
				return err
			}
		}
		value, err = v.s.Keys.Create(v.ctx(), tx, v.caller(), k)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("keys/"+k.ID), flash{Notice: "The key was created.", Secret: value, Of: k.ID})
	return nil, nil
}

// keyToChange is the key that the path names, if the person may change it.
func (v *visit) keyToChange() (*access.Key, error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	k, err := v.s.Keys.Get(v.ctx(), v.s.DB, v.principal.Visibility(), id)
	if err != nil {
		return nil, err
	}
	if k.RevokedAt != nil {
		return nil, fault.New(fault.InvalidState, "the key is revoked, so it cannot be changed")
	}
	if !v.caller().CanManage(k) {
		return nil, fault.New(fault.InsufficientScope, "the key may do more than your role; ask an owner or an admin to change it")
	}
	return k, nil
}

func editKeyPage(v *visit) (*view, error) {
	k, err := v.keyToChange()
	if err != nil {
		return nil, err
	}
	chosen := choose
	if slices.Equal(k.Scopes, []string{"*"}) {
		chosen = "everything"
	}
	f, err := v.newKeyForm(k, chosen)
	return &view{template: "key_edit", title: "Edit " + k.Name, data: f}, err
}

func updateKey(v *visit) (*view, error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		before, err := v.s.Keys.GetLocked(v.ctx(), tx, v.principal.Visibility(), id)
		if err != nil {
			return err
		}
		k := *before
		if err := v.readKey(&k); err != nil {
			return err
		}
		if err := v.overtaken(keyMark(before), keyMark(&k)); err != nil {
			return err
		}
		if k.Project != "" && k.Project != before.Project {
			if err := v.s.Keys.PinToProject(v.ctx(), tx, v.caller(), &k, k.Project); err != nil {
				return err
			}
		}
		if err := v.s.Keys.Update(v.ctx(), tx, v.caller(), before, &k); err != nil {
			return err
		}
		spend.ReclaimLeases(tx, spend.Account{Level: spend.Key, ID: k.ID}, spend.PeriodOf(v.now()))
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("keys/"+id), flash{Notice: "The key was changed. Requests follow the change within a second."})
	return nil, nil
}

// readKey reads the form into a key.
func (v *visit) readKey(k *access.Key) (err error) {
	k.Name, k.Scopes, k.Project = v.form("name"), v.formScopes(), v.form("project")
	if k.MonthlyBudget, err = v.formCredits("monthly_budget"); err != nil {
		return err
	}
	if k.RateLimit, err = v.formNumber("rate_limit"); err != nil {
		return err
	}
	if k.ExpiresAt, err = v.formLastDay("expires_at", k.ExpiresAt); err != nil {
		return err
	}
	k.AllowedIPs, err = access.ParseAllowedIPs(strings.FieldsFunc(v.form("allowed_ips"), func(r rune) bool { return strings.ContainsRune(", \r\n\t", r) }))
	return err
}

// formScopes are those of the preset, or those that are ticked.
func (v *visit) formScopes() []string {
	for _, p := range v.presets() {
		if p.Name == v.form("preset") && p.Name != choose {
			return p.scopes
		}
	}
	return v.r.PostForm["scopes"]
}
