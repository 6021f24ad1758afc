package dashboard

import "turnpike/internal/access"

// menuItem is an entry of the side menu.
type menuItem struct {
	Name    string
	Path    string
	Section string
	scope   access.Scope
}

var menu = []menuItem{
	{"Home", "", "home", ""},
	{"API keys", "keys", "keys", access.KeysRead},
	{"Projects", "projects", "projects", access.ProjectsRead},
	{"Usage", "usage", "usage", access.UsageRead},
	{"Requests", "requests", "requests", access.AuditRead},
	{"Webhooks", "webhooks", "webhooks", access.WebhooksRead},
	{"Deliveries", "deliveries", "deliveries", access.WebhooksRead},
	{"Jobs", "jobs", "jobs", access.ImagesRead},
	{"Agent runs", "runs", "runs", access.AgentRunsRead},
	{"Billing", "billing", "billing", access.BillingRead},
	{"Security", "security", "security", access.AuditRead},
	{"Admin log", "log", "log", access.AuditRead},
	{"Team", "team", "team", ""},
	{"Settings", "settings", "settings", ""},
}

// Menu returns the entries that the person may open.
func (s *shell) Menu() []menuItem {
	var out []menuItem
	for _, m := range menu {
		if m.scope == "" || s.May(string(m.scope)) {
			out = append(out, m)
		}
	}
	return out
}
