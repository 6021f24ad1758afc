package dashboard

import (
	"context"
	"slices"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/webhooks"
)

// checklist is the first steps in an environment. Steps tick themselves.
type checklist struct {
	Steps     []checkStep
	Done      int
	Examples  []codeTab
	Providers string // the page where the person can connect a provider, or empty
	Key       *access.Key
	Request   *audit.Entry // the newest, or nil
}

type checkStep struct {
	Name string // selects the text in the template
	Done bool
}

// Percent returns how much is done.
func (c *checklist) Percent() int { return 100 * c.Done / len(c.Steps) }

// Open reports whether the steps are shown at first: until there is a request.
func (c *checklist) Open() bool {
	return !slices.ContainsFunc(c.Steps, func(s checkStep) bool { return s.Name == "request" && s.Done })
}

// dismissed is the value of the cookie for a checklist that the person has hidden.
const dismissed = "dismissed"

func (req *request) checklistCookie() string {
	return startCookie + "-" + req.workspace.ID + "-" + string(req.env)
}

// checklist returns the steps, or nil if all are done or the person has hidden them.
func (req *request) checklist(used bool) (*checklist, error) {
	if req.cookie(req.checklistCookie()) == dismissed {
		return nil, nil
	}
	c := &checklist{Examples: req.chatTabs(environmentKey)}
	done, err := checkedSteps(req.Context(), req.s.DB, req.workspace.In(req.env), req.session.UserID)
	if err != nil {
		return nil, err
	}
	keys, _, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{State: access.States[0]}, db.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		c.Key = keys[0]
	}
	newest, err := audit.List(req.Context(), req.s.DB, req.principal.Visibility(), audit.Filter{}, db.Page{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(newest.Rows) > 0 {
		c.Request = newest.Rows[0]
	}
	c.Steps = []checkStep{
		{"provider", len(req.s.Facts().Providers) > 0},
		{"key", c.Key != nil || used},
		{"request", c.Request != nil || used},
		{"webhook", done.webhook},
		{"invite", done.team},
		{"factor", done.factor},
		{"leaks", req.workspace.LeakPolicy == accounts.LeaksRevoked},
	}
	for _, s := range c.Steps {
		if s.Done {
			c.Done++
		}
	}
	if c.Done == len(c.Steps) {
		return nil, nil
	}
	c.Providers, err = req.providersPage()
	return c, err
}

func dismissChecklist(req *request) (*view, error) {
	req.setCookie(req.checklistCookie(), dismissed, 365*24*time.Hour)
	return req.redirect(req.to(""), flash{})
}

type stepsDone struct{ webhook, team, factor bool }

// checkedSteps reports which steps are done that other tables know about: an endpoint in the
// environment or a delivery through a tunnel, a second member or an invitation, and a second
// factor of the person.
func checkedSteps(ctx context.Context, q db.Querier, t accounts.Tenant, userID string) (s stepsDone, err error) {
	err = q.QueryRow(ctx, `SELECT
		EXISTS (SELECT 1 FROM endpoints WHERE workspace_id = $1 AND environment = $2 AND kind = $4 AND deleted_at IS NULL)
			OR EXISTS (SELECT 1 FROM endpoints e JOIN endpoint_stats s ON s.endpoint_id = e.id WHERE e.workspace_id = $1 AND e.environment = $2 AND e.kind = $5 AND s.last_success_at IS NOT NULL),
		(SELECT count(*) FROM (SELECT user_id FROM members WHERE workspace_id = $1 LIMIT 2) AS two) > 1 OR EXISTS (SELECT 1 FROM invitations WHERE workspace_id = $1),
		EXISTS (SELECT 1 FROM totp WHERE user_id = $3 AND enabled_at IS NOT NULL) OR EXISTS (SELECT 1 FROM passkeys WHERE user_id = $3)`,
		t.WorkspaceID, t.Environment, userID, string(webhooks.HTTP), string(webhooks.Tunnel)).Scan(&s.webhook, &s.team, &s.factor)
	return s, db.Wrap(err, "read checklist")
}
