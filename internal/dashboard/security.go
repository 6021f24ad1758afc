package dashboard

import (
	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/leaks"
)

type securityData struct {
	Reports []*leaks.Note
	Next    pager
	Policy  accounts.LeakPolicy
	GitLab  bool // GitLab's reports are enabled
	Base    string
	Pattern string
	Words   []string // prefixes of keys
}

// keyPattern finds strings that look like keys. Unlike turnpike scan, it can't verify
// their checksums.
const keyPattern = "tp_(?:live|test|scoped)_[0-9A-Za-z]{38}"

func securityPage(req *request) (*view, error) {
	page := req.page(leaks.IDPrefix)
	reports, more, err := leaks.List(req.Context(), req.s.DB, req.workspace.In(req.env), page)
	if err != nil {
		return nil, err
	}
	d := securityData{Reports: reports, Next: req.pager(page, more, func() string { return reports[len(reports)-1].ID }),
		Policy: req.workspace.LeakPolicy, GitLab: req.s.Leaks.AcceptsGitLab(), Base: req.s.PublicURL, Pattern: keyPattern,
		Words: []string{access.PrefixLive, access.PrefixTest, access.PrefixScoped}}
	return &view{template: "security", title: "Security", data: d}, nil
}

func setLeakPolicy(req *request) (*view, error) {
	policy := accounts.LeakPolicy(req.form("leak_policy"))
	return req.changeWorkspace("security", "Policy saved.", func(w *accounts.Workspace) error {
		w.LeakPolicy = policy
		return nil
	})
}
