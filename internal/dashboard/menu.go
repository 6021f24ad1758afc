package dashboard

import (
	"strconv"
	"time"

	"turnpike/internal/access"
)

type menuGroup struct {
	Name  string // empty for the first
	Items []menuItem
}

type menuItem struct {
	Name  string
	Path  string // also the section of its pages
	Icon  string
	Key   string // which opens it after g, or empty
	Count string // of what waits for a decision, or empty
	scope access.Scope
}

var menu = []menuGroup{
	{"", []menuItem{
		{Name: "Home", Path: "", Icon: "house", Key: "h"},
	}},
	{"Build", []menuItem{
		{Name: "Playground", Path: "playground", Icon: "square-terminal", Key: "y"},
		{Name: "API keys", Path: "keys", Icon: "key-round", Key: "k", scope: access.KeysRead},
		{Name: "Projects", Path: "projects", Icon: "folder", Key: "p", scope: access.ProjectsRead},
		{Name: "Models", Path: "models", Icon: "boxes", Key: "m", scope: access.ModelsRead},
		{Name: "Routes", Path: "routes", Icon: "route", Key: "o", scope: access.RoutesRead},
		{Name: "Users", Path: "users", Icon: "circle-user", scope: access.UsersRead},
		{Name: "Tool servers", Path: "tools", Icon: "plug", scope: access.ToolServersRead},
	}},
	{"Monitor", []menuItem{
		{Name: "Usage", Path: "usage", Icon: "chart-column", Key: "u", scope: access.UsageRead},
		{Name: "Requests", Path: "requests", Icon: "list", Key: "r", scope: access.AuditRead},
		{Name: "Jobs", Path: "jobs", Icon: "image", Key: "j", scope: access.ImagesRead},
		{Name: "Agent runs", Path: "runs", Icon: "bot", Key: "a", scope: access.AgentRunsRead},
		{Name: "Approvals", Path: "approvals", Icon: "hand", scope: access.ToolServersRead},
	}},
	{"Deliver", []menuItem{
		{Name: "Webhooks", Path: "webhooks", Icon: "webhook", Key: "w", scope: access.WebhooksRead},
		{Name: "Deliveries", Path: "deliveries", Icon: "send", Key: "d", scope: access.WebhooksRead},
	}},
	{"Manage", []menuItem{
		{Name: "Billing", Path: "billing", Icon: "credit-card", Key: "b", scope: access.BillingRead},
		{Name: "Team", Path: "team", Icon: "users", Key: "t"},
		{Name: "Security", Path: "security", Icon: "shield", scope: access.AuditRead},
		{Name: "Admin log", Path: "log", Icon: "scroll-text", Key: "l", scope: access.AuditRead},
		{Name: "Settings", Path: "settings", Icon: "settings", Key: "s"},
	}},
}

// Menu returns the entries that the person may open, with what waits for a decision.
func (s *shell) Menu() ([]menuGroup, error) {
	var out []menuGroup
	for _, g := range menu {
		shown := menuGroup{Name: g.Name}
		for _, m := range g.Items {
			if m.scope != "" && !s.May(m.scope) {
				continue
			}
			waiting, err := s.req.waiting(m.Path)
			if err != nil {
				return nil, err
			}
			m.Count = waiting
			shown.Items = append(shown.Items, m)
		}
		if len(shown.Items) > 0 {
			out = append(out, shown)
		}
	}
	return out, nil
}

// maxMenuCount is the highest number that the menu shows.
const maxMenuCount = 9

// waiting returns how many decisions the pages of a section wait for.
func (req *request) waiting(section string) (string, error) {
	n := 0
	switch section {
	case "runs":
		runs, err := req.awaitingApproval()
		if err != nil {
			return "", err
		}
		n = len(runs.Rows)
	case "approvals":
		calls, err := req.pendingToolCalls()
		if err != nil {
			return "", err
		}
		n = len(calls)
	}
	switch {
	case n == 0:
		return "", nil
	case n > maxMenuCount:
		return strconv.Itoa(maxMenuCount) + "+", nil
	}
	return strconv.Itoa(n), nil
}

// Theme returns light or dark if the person has chosen one in this browser, or an empty
// string to follow the system.
func (s *shell) Theme() string {
	switch theme := s.req.cookie(themeCookie); theme {
	case "light", "dark":
		return theme
	}
	return ""
}

func chooseTheme(req *request) (*view, error) {
	theme := req.form("theme")
	if theme == "system" {
		theme = ""
	}
	req.setCookie(themeCookie, theme, 365*24*time.Hour)
	return req.redirect(dashboardPath(req.query("next")), flash{})
}
