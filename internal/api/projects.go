package api

import (
	"context"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type projectObject struct {
	ID             string               `json:"id"`
	Object         string               `json:"object"`
	Name           string               `json:"name"`
	Environment    accounts.Environment `json:"environment"`
	MonthlyBudget  *credits.Micro       `json:"monthly_budget"`
	SpentThisMonth credits.Micro        `json:"spent_this_month"`
	allowedLists
	limitsObject
	ContentLogDays *int64 `json:"content_log_days"`
	ContentOptOut  bool   `json:"content_log_opt_out"`
	Status         string `json:"status"`
	CreatedAt      int64  `json:"created_at"`
	ArchivedAt     *int64 `json:"archived_at"`

	AlertThresholds *accounts.AlertThresholds `json:"alert_thresholds"`
	Forecast        *forecastObject           `json:"forecast"`
}

// thresholdsOrNull returns nil for thresholds that are inherited.
func thresholdsOrNull(t accounts.AlertThresholds) *accounts.AlertThresholds {
	if t == nil {
		return nil
	}
	return &t
}

func newProjectObject(p *accounts.Project, now time.Time) *projectObject {
	return &projectObject{limitsObject: newLimitsObject(p.Limits, p.Raise, now), ID: p.ID, Object: "project", Name: p.Name, Environment: p.Environment, MonthlyBudget: p.MonthlyBudget, allowedLists: newAllowedLists(p.Allowed),
		Status: p.Status(), CreatedAt: p.CreatedAt.Unix(), ArchivedAt: unix(p.ArchivedAt), AlertThresholds: thresholdsOrNull(p.AlertThresholds), ContentLogDays: p.ContentDays, ContentOptOut: p.ContentOptOut}
}

// projects returns projects with their spending. Test requests are free, and a
// test project may have the same ID as a live one.
func (c *Call) projects(ctx context.Context, q db.Querier, list ...*accounts.Project) ([]*projectObject, error) {
	out := make([]*projectObject, len(list))
	var ids []string
	var budgets []spend.Budgets
	now := c.s.Now()
	for i, p := range list {
		out[i] = newProjectObject(p, now)
		if p.Environment == accounts.Live {
			id := spend.ProjectID(p.WorkspaceID, p.ID)
			ids = append(ids, id)
			budgets = append(budgets, spend.Budgets{Owner: spend.Account{Level: spend.Project, ID: id}, Limits: p.Limits})
		}
	}
	spent, err := spend.Spent(ctx, q, spend.Project, ids, spend.PeriodOf(now))
	if err != nil {
		return out, err
	}
	underLimits, err := spend.SpentUnderLimits(ctx, q, budgets, now)
	for _, o := range out {
		o.SpentThisMonth = spent[spend.ProjectID(c.Principal.WorkspaceID, o.ID)]
		o.Forecast = newForecastObject(o.SpentThisMonth, o.MonthlyBudget, c.s.Now())
		o.addSpent(underLimits)
	}
	return out, err
}

func (c *Call) project(ctx context.Context, q db.Querier, p *accounts.Project) (*projectObject, error) {
	list, err := c.projects(ctx, q, p)
	return list[0], err
}

// projectID returns the project ID in the path. A key that is pinned to another
// project can't see it.
func (c *Call) projectID() (string, error) {
	id := c.R.PathValue("id")
	if accounts.CheckProjectID("id", id) != nil || c.Principal.Project != "" && c.Principal.Project != id {
		return "", fault.NoSuch("project", web.Sanitize(id, 64))
	}
	return id, nil
}

// changeProject changes the project in the path. Pinned keys can't.
func (c *Call) changeProject(ctx context.Context, tx *db.Tx, action string, apply func(*accounts.Project) error) (any, error) {
	id, err := c.projectID()
	if err != nil {
		return nil, err
	}
	if err := c.requireUnpinned(); err != nil {
		return nil, err
	}
	p, err := accounts.ChangeProject(ctx, tx, accounts.ProjectChange{Tenant: c.Principal.Tenant, ID: id, Action: action,
		Change: accounts.Change[accounts.Project]{By: c.Actor(), At: c.s.Now(), Apply: apply}})
	if err != nil {
		return nil, err
	}
	return c.project(ctx, tx, p)
}

type createProjectRequest struct {
	ID            string         `json:"id"`
	Name          string         `json:"name"`
	MonthlyBudget *credits.Micro `json:"monthly_budget"`
	limitFields

	AlertThresholds accounts.AlertThresholds `json:"alert_thresholds"`
	allowedLists
	ContentLogDays *int64 `json:"content_log_days"`
	ContentOptOut  bool   `json:"content_log_opt_out"`
}

func createProject(ctx context.Context, c *Call, tx *db.Tx, in createProjectRequest) (any, error) {
	if in.ID == "" {
		return nil, fault.Missing("id", "id is required. It is the ID that requests send in the Service-Project header.")
	}
	if err := c.requireUnpinned(); err != nil {
		return nil, err
	}
	p := &accounts.Project{Tenant: c.Principal.Tenant, ID: in.ID, Name: in.Name, MonthlyBudget: in.MonthlyBudget, AlertThresholds: in.AlertThresholds, ContentDays: in.ContentLogDays, ContentOptOut: in.ContentOptOut}
	var err error
	if p.Allowed, err = c.readAllowed(in.allowedLists, c.routesIn(ctx, tx, p.ID)); err != nil {
		return nil, err
	}
	if err := c.applyLimits(in.limitFields, &p.Limits, &p.Raise); err != nil {
		return nil, err
	}
	if err := accounts.CreateProject(ctx, tx, p, c.s.Now()); err != nil {
		return nil, err
	}
	if err := p.LogAction(ctx, tx, c.Actor(), "project.created", c.s.Now()); err != nil {
		return nil, err
	}
	return c.project(ctx, tx, p)
}

// requireUnpinned rejects pinned keys. They can't manage any project, or they
// could raise their own budget.
func (c *Call) requireUnpinned() error {
	if c.Principal.Project == "" {
		return nil
	}
	return fault.New(fault.ProjectNotAllowed, "This key is pinned to project %q and cannot list or manage projects.", c.Principal.Project)
}

func listProjects(ctx context.Context, c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page("")
	if q.err != nil {
		return nil, q.err
	}
	if err := c.requireUnpinned(); err != nil {
		return nil, err
	}
	projects, more, err := accounts.ListProjects(ctx, c.s.DB, c.Principal.Tenant, page)
	if err != nil {
		return nil, err
	}
	data, err := c.projects(ctx, c.s.DB, projects...)
	if err != nil {
		return nil, err
	}
	return newList(data, func(p *projectObject) string { return p.ID }, more), nil
}

func getProject(ctx context.Context, c *Call) (any, error) {
	id, err := c.projectID()
	if err != nil {
		return nil, err
	}
	p, err := accounts.GetProject(ctx, c.s.DB, c.Principal.Tenant, id)
	if err != nil {
		return nil, err
	}
	return c.project(ctx, c.s.DB, p)
}

type updateProjectRequest struct {
	Name          jsonbody.Optional[string]        `json:"name"`
	MonthlyBudget jsonbody.Optional[credits.Micro] `json:"monthly_budget"`
	Status        jsonbody.Optional[string]        `json:"status"`
	limitFields

	AlertThresholds jsonbody.Optional[accounts.AlertThresholds] `json:"alert_thresholds"`
	allowedChanges
	ContentLogDays jsonbody.Optional[int64] `json:"content_log_days"`
	ContentOptOut  jsonbody.Optional[bool]  `json:"content_log_opt_out"`
}

// updateProject changes a project, and restores an archived one unless the status
// is archived.
func updateProject(ctx context.Context, c *Call, tx *db.Tx, in updateProjectRequest) (any, error) {
	return c.changeProject(ctx, tx, "project.updated", func(p *accounts.Project) error {
		set(&p.Name, in.Name)
		setNullable(&p.MonthlyBudget, in.MonthlyBudget)
		set(&p.AlertThresholds, in.AlertThresholds)
		setNullable(&p.ContentDays, in.ContentLogDays)
		set(&p.ContentOptOut, in.ContentOptOut)
		if err := c.changeAllowed(&p.Allowed, in.allowedChanges, c.routesIn(ctx, tx, p.ID)); err != nil {
			return err
		}
		if err := c.applyLimits(in.limitFields, &p.Limits, &p.Raise); err != nil {
			return err
		}
		switch {
		case !in.Status.Set || in.Status.Value == "active":
			p.ArchivedAt = nil
		case in.Status.Value == "archived":
			p.Archive(c.s.Now())
		default:
			return fault.Invalid("status", "status must be active or archived.")
		}
		return nil
	})
}

func archiveProject(ctx context.Context, c *Call, tx *db.Tx, _ struct{}) (any, error) {
	return c.changeProject(ctx, tx, "project.archived", func(p *accounts.Project) error {
		p.Archive(c.s.Now())
		return nil
	})
}
