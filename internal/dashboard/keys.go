package dashboard

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/spend"
)

// keyRow is a key with what it has spent this month.
type keyRow struct {
	*access.Key
	State string
	Spent credits.Micro
}

// keyRows adds what a list of keys does not know of itself.
func (v *visit) keyRows(list ...*access.Key) ([]keyRow, error) {
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.ID
	}
	spent, err := spend.Spent(v.ctx(), v.s.DB, spend.Key, names, spend.PeriodOf(v.now()))
	rows := make([]keyRow, len(list))
	for i, k := range list {
		rows[i] = keyRow{Key: k, State: k.Status(v.now()), Spent: spent[k.ID]}
	}
	return rows, err
}

type keysData struct {
	Now  time.Time
	Keys []keyRow
	Next pager
}

func keysPage(v *visit) (*view, error) {
	page := v.page(ids.Key)
	keys, more, err := v.s.Keys.List(v.ctx(), v.s.DB, v.workspace.ID, v.env, page)
	if err != nil {
		return nil, err
	}
	rows, err := v.keyRows(keys...)
	if err != nil {
		return nil, err
	}
	d := keysData{Now: v.now(), Keys: rows, Next: v.pager(page, more, func() string { return keys[len(keys)-1].ID })}
	return &view{template: "keys", title: "API keys", data: d, live: true}, nil
}

type newKeyData struct {
	Scopes   []scopeGroup
	Projects []*accounts.Project
}

// scopeGroup is the scopes of one resource.
type scopeGroup struct {
	Resource string
	Scopes   []string
}

// grantable are the scopes that the person may give to a key, by resource.
func (v *visit) grantable() []scopeGroup {
	var out []scopeGroup
	for _, s := range access.Scopes() {
		if !v.principal.Grant.Allows(s) {
			continue
		}
		resource, _, _ := strings.Cut(string(s), ":")
		if n := len(out); n > 0 && out[n-1].Resource == resource {
			out[n-1].Scopes = append(out[n-1].Scopes, string(s))
			continue
		}
		out = append(out, scopeGroup{resource, []string{string(s)}})
	}
	return out
}

func newKeyPage(v *visit) (*view, error) {
	projects, _, err := accounts.ListProjects(v.ctx(), v.s.DB, v.workspace.ID, v.env, db.Page{Limit: accounts.MaxProjects})
	if err != nil {
		return nil, err
	}
	return &view{template: "key_new", title: "New API key", data: newKeyData{Scopes: v.grantable(), Projects: projects}}, nil
}

func createKey(v *visit) (*view, error) {
	k := &access.Key{WorkspaceID: v.workspace.ID, Environment: v.env, Name: v.form("name"), Scopes: v.r.PostForm["scopes"]}
	if slices.Contains(k.Scopes, "*") {
		k.Scopes = []string{"*"}
	}
	if err := v.readKeyLimits(k); err != nil {
		return nil, err
	}
	var value string
	err := v.write(func(tx *db.Tx) (err error) {
		if k.Project != "" {
			p := &accounts.Project{WorkspaceID: k.WorkspaceID, Environment: k.Environment, ID: k.Project}
			if err := accounts.EnsureProject(v.ctx(), tx, v.actor(), p, "project", true, v.now()); err != nil {
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

// readKeyLimits reads what bounds a key: budget, rate, project, addresses, end.
func (v *visit) readKeyLimits(k *access.Key) (err error) {
	if k.MonthlyBudget, err = v.formCredits("monthly_budget"); err != nil {
		return err
	}
	if k.RateLimit, err = v.formNumber("rate_limit"); err != nil {
		return err
	}
	if k.ExpiresAt, err = v.formDay("expires_at"); err != nil {
		return err
	}
	k.Project = v.form("project")
	k.AllowedIPs, err = access.ParseAllowedIPs(strings.FieldsFunc(v.form("allowed_ips"), func(r rune) bool { return strings.ContainsRune(", \r\n\t", r) }))
	return err
}

// formCredits reads an amount; an empty field is none.
func (v *visit) formCredits(name string) (*credits.Micro, error) {
	s := strings.ReplaceAll(v.form(name), ",", "")
	if s == "" {
		return nil, nil
	}
	m, err := credits.Parse(s)
	if err != nil || m < 0 {
		return nil, fault.Invalid(name, "an amount is a number of credits, such as 100 or 2.5")
	}
	return &m, nil
}

// formNumber reads a whole number; an empty field is none.
func (v *visit) formNumber(name string) (*int64, error) {
	s := strings.ReplaceAll(v.form(name), ",", "")
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return nil, fault.Invalid(name, "this must be a whole number")
	}
	return &n, nil
}

// formDay reads a day, which ends at midnight UTC; an empty field is none.
func (v *visit) formDay(name string) (*time.Time, error) {
	s := v.form(name)
	if s == "" {
		return nil, nil
	}
	day, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return nil, fault.Invalid(name, "a day is written as 2006-01-31")
	}
	day = day.AddDate(0, 0, 1)
	return &day, nil
}

type keyData struct {
	Now    time.Time
	Key    keyRow
	Secret string // right after it was made
	Base   string // of the API, for the example
}

func keyPage(v *visit) (*view, error) {
	id, err := v.pathID(ids.Key, "key")
	if err != nil {
		return nil, err
	}
	k, err := v.s.Keys.Get(v.ctx(), v.s.DB, v.workspace.ID, v.env, id)
	if err != nil {
		return nil, err
	}
	rows, err := v.keyRows(k)
	if err != nil {
		return nil, err
	}
	return &view{template: "key", title: k.Name, data: keyData{Now: v.now(), Key: rows[0], Secret: v.shownSecret(k.ID), Base: v.s.PublicURL}, live: true}, nil
}
