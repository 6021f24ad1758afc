package dashboard

import (
	"strings"

	"turnpike/internal/accounts"
	"turnpike/internal/keyring"
	"turnpike/internal/leaks"
)

type securityData struct {
	Reports []*leaks.Note
	Next    pager
	Policy  accounts.LeakPolicy
	GitLab  bool // GitLab's reports are enabled
	Base    string
	Pattern string
	Words   []string // prefixes of secrets
}

func securityPage(req *request) (*view, error) {
	page := req.page(leaks.IDPrefix)
	reports, more, err := leaks.List(req.Context(), req.s.DB, req.workspace.In(req.env), page)
	if err != nil {
		return nil, err
	}
	d := securityData{Reports: reports, Next: req.pager(page, more, func() string { return reports[len(reports)-1].ID }),
		Policy: req.workspace.LeakPolicy, GitLab: req.s.Leaks.AcceptsGitLab(), Base: req.s.PublicURL, Pattern: keyring.Pattern(), Words: keyring.Prefixes()}
	return &view{template: "security", title: "Security", data: d}, nil
}

func setLeakPolicy(req *request) (*view, error) {
	policy := accounts.LeakPolicy(req.form("leak_policy"))
	return req.changeWorkspace("security", "Policy saved.", func(w *accounts.Workspace) error {
		w.LeakPolicy = policy
		return nil
	})
}

// Join returns the prefixes as one text.
func (d securityData) Join(separator string) string { return strings.Join(d.Words, separator) }
