package dashboard

import (
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/leaks"
)

type securityData struct {
	Now     time.Time
	Reports []*leaks.Note
	Next    pager
	Policy  accounts.LeakPolicy
	GitLab  bool // whether the operator takes GitLab's reports
	Base    string
	Pattern string
	Words   []string // that every key begins with
}

// keyPattern finds what looks like a key. The checksum that tells a key from a
// lookalike is more than a pattern can say; turnpike scan knows it.
const keyPattern = "tp_(?:live|test|scoped)_[0-9A-Za-z]{38}"

func securityPage(v *visit) (*view, error) {
	page := v.page(leaks.IDPrefix)
	reports, more, err := leaks.List(v.ctx(), v.s.DB, v.workspace.ID, string(v.env), page)
	if err != nil {
		return nil, err
	}
	d := securityData{Now: v.now(), Reports: reports, Next: v.pager(page, more, func() string { return reports[len(reports)-1].ID }),
		Policy: v.workspace.LeakPolicy, GitLab: v.s.Leaks.TakesGitLab(), Base: v.s.PublicURL, Pattern: keyPattern,
		Words: []string{access.PrefixLive, access.PrefixTest, access.PrefixScoped}}
	return &view{template: "security", title: "Security", data: d}, nil
}

func setLeakPolicy(v *visit) (*view, error) {
	policy := accounts.LeakPolicy(v.form("leak_policy"))
	err := v.write(func(tx *db.Tx) error {
		if err := accounts.SetLeakPolicy(v.ctx(), tx, v.workspace.ID, policy); err != nil {
			return err
		}
		return v.logWorkspace(tx, map[string]any{"leak_policy": policy})
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("security"), flash{Notice: "The policy is saved. It counts from now on."})
	return nil, nil
}
