package dashboard

import "turnpike/internal/access"

type menuItem struct {
	Name  string
	Path  string // also the section of its pages
	scope access.Scope
}

var menu = []menuItem{
	{"Home", "", ""},
	{"API keys", "keys", access.KeysRead},
	{"Projects", "projects", access.ProjectsRead},
	{"Routes", "routes", access.RoutesRead},
	{"Usage", "usage", access.UsageRead},
	{"Requests", "requests", access.AuditRead},
	{"Webhooks", "webhooks", access.WebhooksRead},
	{"Deliveries", "deliveries", access.WebhooksRead},
	{"Jobs", "jobs", access.ImagesRead},
	{"Agent runs", "runs", access.AgentRunsRead},
	{"Tool servers", "tools", access.ToolServersRead},
	{"Approvals", "approvals", access.ToolServersRead},
	{"Billing", "billing", access.BillingRead},
	{"Security", "security", access.AuditRead},
	{"Admin log", "log", access.AuditRead},
	{"Team", "team", ""},
	{"Settings", "settings", ""},
}

// Menu returns the entries that the person may open.
func (s *shell) Menu() []menuItem {
	var out []menuItem
	for _, m := range menu {
		if m.scope == "" || s.May(m.scope) {
			out = append(out, m)
		}
	}
	return out
}
