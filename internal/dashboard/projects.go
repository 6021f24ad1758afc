package dashboard

import (
	"net/url"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
	"turnpike/internal/spend"
)

// projectRow is a project with what was spent in it this month.
type projectRow struct {
	*accounts.Project
	Spent credits.Micro
	Path  string // of its page, behind projects/
}

// projectRows adds what a list of projects does not know of itself. Test calls
// are free, and a test project may have a live one's id.
func (v *visit) projectRows(list ...*accounts.Project) ([]projectRow, error) {
	var names []string
	for _, p := range list {
		if p.Environment == accounts.Live {
			names = append(names, spend.ProjectID(p.WorkspaceID, p.ID))
		}
	}
	spent, err := spend.Spent(v.ctx(), v.s.DB, spend.Project, names, spend.PeriodOf(v.now()))
	rows := make([]projectRow, len(list))
	for i, p := range list {
		rows[i] = projectRow{p, spent[spend.ProjectID(p.WorkspaceID, p.ID)], url.PathEscape(p.ID)}
	}
	return rows, err
}

type projectsData struct {
	Now      time.Time
	Projects []projectRow
	Next     pager
}

func projectsPage(v *visit) (*view, error) {
	page := v.page("")
	list, more, err := accounts.ListProjects(v.ctx(), v.s.DB, v.workspace.ID, v.env, page)
	if err != nil {
		return nil, err
	}
	rows, err := v.projectRows(list...)
	if err != nil {
		return nil, err
	}
	d := projectsData{Now: v.now(), Projects: rows, Next: v.pager(page, more, func() string { return list[len(list)-1].ID })}
	return &view{template: "projects", title: "Projects", data: d, live: true}, nil
}

func createProject(v *visit) (*view, error) {
	p := &accounts.Project{WorkspaceID: v.workspace.ID, Environment: v.env, ID: v.form("id"), Name: v.form("name")}
	var err error
	if p.MonthlyBudget, err = v.formCredits("monthly_budget"); err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		if err := accounts.CreateProject(v.ctx(), tx, p, v.now()); err != nil {
			return err
		}
		return p.LogAction(v.ctx(), tx, v.actor(), "project.created", v.now())
	})
	if fault.Is(err, fault.InvalidState) {
		return nil, fault.Param(fault.InvalidState, "id", "there is a project with the id %s already", p.ID)
	}
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("projects/"+url.PathEscape(p.ID)), flash{Notice: "The project was created."})
	return nil, nil
}

// projectID is the project that the path names.
func (v *visit) projectID() (string, error) {
	id := v.r.PathValue("id")
	if accounts.CheckProjectID("id", id) != nil {
		return "", fault.NoSuch("project", keyring.Mask(id[:min(len(id), 64)]))
	}
	return id, nil
}

type projectData struct {
	Now     time.Time
	Project projectRow
	Seen    string // the mark of what the form begins with
	Days    *daily
	Keys    []keyRow
	More    bool // keys
}

func projectPage(v *visit) (*view, error) {
	id, err := v.projectID()
	if err != nil {
		return nil, err
	}
	p, err := accounts.GetProject(v.ctx(), v.s.DB, v.workspace.ID, v.env, id)
	if err != nil {
		return nil, err
	}
	rows, err := v.projectRows(p)
	if err != nil {
		return nil, err
	}
	d := projectData{Now: v.now(), Project: rows[0], Seen: projectMark(p)}
	if d.Days, err = v.lastDays(spend.UsageQuery{Project: p.ID}); err != nil {
		return nil, err
	}
	keys, more, err := v.s.Keys.Search(v.ctx(), v.s.DB, v.principal.Visibility(), access.KeyFilter{Project: p.ID}, db.Page{Limit: rowsPerPage})
	if err != nil {
		return nil, err
	}
	d.More = more
	d.Keys, err = v.keyRows(keys...)
	return &view{template: "project", title: p.Name, data: d, live: true}, err
}

func updateProject(v *visit) (*view, error) {
	budget, err := v.formCredits("monthly_budget")
	if err != nil {
		return nil, err
	}
	return v.changeProject("project.updated", "The project was changed.", func(p *accounts.Project) error {
		was := projectMark(p)
		p.Name, p.MonthlyBudget = v.form("name"), budget
		return v.overtaken(was, projectMark(p))
	})
}

func archiveProject(v *visit) (*view, error) {
	return v.changeProject("project.archived", "The project is archived: calls for it are refused.", func(p *accounts.Project) error {
		if p.ArchivedAt == nil {
			now := v.now()
			p.ArchivedAt = &now
		}
		return nil
	})
}

func restoreProject(v *visit) (*view, error) {
	return v.changeProject("project.updated", "The project is back in use.", func(p *accounts.Project) error {
		p.ArchivedAt = nil
		return nil
	})
}

// changeProject stores what change does to the project that the path names.
func (v *visit) changeProject(action, notice string, change func(p *accounts.Project) error) (*view, error) {
	id, err := v.projectID()
	if err != nil {
		return nil, err
	}
	err = v.write(func(tx *db.Tx) error {
		p, err := accounts.GetProjectLocked(v.ctx(), tx, v.workspace.ID, v.env, id)
		if err != nil {
			return err
		}
		if err := change(p); err != nil {
			return err
		}
		return spend.ChangeProject(v.ctx(), tx, v.actor(), p, action, v.now())
	})
	if err != nil {
		return nil, err
	}
	v.redirect(v.to("projects/"+url.PathEscape(id)), flash{Notice: notice})
	return nil, nil
}
