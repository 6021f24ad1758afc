package api

import (
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/jsonbody"
	"turnpike/internal/spend"
)

type projectObject struct {
	ID             string         `json:"id"`
	Object         string         `json:"object"`
	Name           string         `json:"name"`
	Environment    string         `json:"environment"`
	MonthlyBudget  *credits.Micro `json:"monthly_budget"`
	SpentThisMonth credits.Micro  `json:"spent_this_month"`
	Status         string         `json:"status"`
	CreatedAt      int64          `json:"created_at"`
	ArchivedAt     *int64         `json:"archived_at"`
}

func newProjectObject(p *accounts.Project) *projectObject {
	return &projectObject{ID: p.ID, Object: "project", Name: p.Name, Environment: string(p.Environment), MonthlyBudget: p.MonthlyBudget,
		Status: p.Status(), CreatedAt: p.CreatedAt.Unix(), ArchivedAt: unix(p.ArchivedAt)}
}

// projects shows projects with what was spent in them. Test calls are free, and
// a test project may have a live one's id.
func (c *Call) projects(q db.Querier, list ...*accounts.Project) ([]*projectObject, error) {
	out := make([]*projectObject, len(list))
	var ids []string
	for i, p := range list {
		out[i] = newProjectObject(p)
		if p.Environment == accounts.Live {
			ids = append(ids, spend.ProjectID(p.WorkspaceID, p.ID))
		}
	}
	spent, err := spend.Spent(c.Context(), q, spend.Project, ids, spend.PeriodOf(c.s.Now()))
	for _, o := range out {
		o.SpentThisMonth = spent[spend.ProjectID(c.Principal.WorkspaceID, o.ID)]
	}
	return out, err
}

func (c *Call) project(q db.Querier, p *accounts.Project) (*projectObject, error) {
	list, err := c.projects(q, p)
	return list[0], err
}

// changed stores a change of a project, and shows it.
func (c *Call) changed(tx *db.Tx, p *accounts.Project, action string) (any, error) {
	if err := spend.ChangeProject(c.Context(), tx, c.Actor(), p, action, c.s.Now()); err != nil {
		return nil, err
	}
	return c.project(tx, p)
}

// projectID is the project that the path names. A key that is pinned to
// another one does not see it.
func (c *Call) projectID() (string, error) {
	id := c.r.PathValue("id")
	if accounts.CheckProjectID("id", id) != nil || c.Principal.Project != "" && c.Principal.Project != id {
		return "", fault.NoSuch("project", masked(id, 64))
	}
	return id, nil
}

// lockProject reads it for a change, which a pinned key cannot make.
func (c *Call) lockProject(tx *db.Tx) (*accounts.Project, error) {
	id, err := c.projectID()
	if err != nil {
		return nil, err
	}
	if err := c.free(); err != nil {
		return nil, err
	}
	return accounts.GetProjectLocked(c.Context(), tx, c.Principal.WorkspaceID, c.Principal.Environment, id)
}

type createProjectRequest struct {
	ID            string         `json:"id"`
	Name          string         `json:"name"`
	MonthlyBudget *credits.Micro `json:"monthly_budget"`
}

func createProject(c *Call, tx *db.Tx, in createProjectRequest) (any, error) {
	if in.ID == "" {
		return nil, fault.Missing("id", "id must be the project's id, as sent in the Service-Project header")
	}
	if err := c.free(); err != nil {
		return nil, err
	}
	p := &accounts.Project{WorkspaceID: c.Principal.WorkspaceID, Environment: c.Principal.Environment, ID: in.ID, Name: in.Name, MonthlyBudget: in.MonthlyBudget}
	if err := accounts.CreateProject(c.Context(), tx, p, c.s.Now()); err != nil {
		return nil, err
	}
	if err := p.LogAction(c.Context(), tx, c.Actor(), "project.created", c.s.Now()); err != nil {
		return nil, err
	}
	return c.project(tx, p)
}

// free refuses a key that is pinned: it manages no projects, its own included,
// or it could lift its own budget.
func (c *Call) free() error {
	if c.Principal.Project == "" {
		return nil
	}
	return fault.New(fault.ProjectNotAllowed, "this key is for the project %q alone and cannot manage projects", c.Principal.Project)
}

func listProjects(c *Call) (any, error) {
	q := c.query(pageParams...)
	page := q.page("")
	if q.err != nil {
		return nil, q.err
	}
	if err := c.free(); err != nil {
		return nil, err
	}
	projects, more, err := accounts.ListProjects(c.Context(), c.s.DB, c.Principal.WorkspaceID, c.Principal.Environment, page)
	if err != nil {
		return nil, err
	}
	data, err := c.projects(c.s.DB, projects...)
	if err != nil {
		return nil, err
	}
	return newList(data, func(p *projectObject) string { return p.ID }, more), nil
}

func getProject(c *Call) (any, error) {
	id, err := c.projectID()
	if err != nil {
		return nil, err
	}
	p, err := accounts.GetProject(c.Context(), c.s.DB, c.Principal.WorkspaceID, c.Principal.Environment, id)
	if err != nil {
		return nil, err
	}
	return c.project(c.s.DB, p)
}

type updateProjectRequest struct {
	Name          jsonbody.Optional[string]        `json:"name"`
	MonthlyBudget jsonbody.Optional[credits.Micro] `json:"monthly_budget"`
	Status        jsonbody.Optional[string]        `json:"status"`
}

// updateProject changes a project. One that is archived is restored by it,
// unless the change says to leave it archived.
func updateProject(c *Call, tx *db.Tx, in updateProjectRequest) (any, error) {
	p, err := c.lockProject(tx)
	if err != nil {
		return nil, err
	}
	if in.Name.Set {
		p.Name = in.Name.Value
	}
	if in.MonthlyBudget.Set {
		p.MonthlyBudget = in.MonthlyBudget.Pointer()
	}
	switch {
	case !in.Status.Set || in.Status.Value == "active":
		p.ArchivedAt = nil
	case in.Status.Value == "archived":
		if p.ArchivedAt == nil {
			now := c.s.Now()
			p.ArchivedAt = &now
		}
	default:
		return nil, fault.Invalid("status", "status must be active or archived")
	}
	return c.changed(tx, p, "project.updated")
}

func archiveProject(c *Call, tx *db.Tx, _ struct{}) (any, error) {
	p, err := c.lockProject(tx)
	if err != nil {
		return nil, err
	}
	if p.ArchivedAt == nil {
		now := c.s.Now()
		p.ArchivedAt = &now
	}
	return c.changed(tx, p, "project.archived")
}
