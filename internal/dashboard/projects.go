package dashboard

import (
	"errors"
	"net/url"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/spend"
	"turnpike/internal/web"
)

type projectRow struct {
	*accounts.Project
	Spent credits.Micro
	Path  string // of its page, after projects/
}

// projectRows adds the spending of projects. Test requests are free, and a test
// project may have the same ID as a live one.
func (req *request) projectRows(list ...*accounts.Project) ([]projectRow, error) {
	var names []string
	for _, p := range list {
		if p.Environment == accounts.Live {
			names = append(names, spend.ProjectID(p.WorkspaceID, p.ID))
		}
	}
	spent, err := spend.Spent(req.Context(), req.ledger(), spend.Project, names, spend.PeriodOf(req.now()))
	rows := make([]projectRow, len(list))
	for i, p := range list {
		rows[i] = projectRow{p, spent[spend.ProjectID(p.WorkspaceID, p.ID)], url.PathEscape(p.ID)}
	}
	return rows, err
}

type projectsData struct {
	Projects []projectRow
	Next     pager
}

func projectsPage(req *request) (*view, error) {
	page := req.page("")
	list, more, err := accounts.ListProjects(req.Context(), req.s.DB, req.workspace.In(req.env), page)
	if err != nil {
		return nil, err
	}
	rows, err := req.projectRows(list...)
	if err != nil {
		return nil, err
	}
	d := projectsData{Projects: rows, Next: req.pager(page, more, func() string { return list[len(list)-1].ID })}
	return &view{template: "projects", title: "Projects", data: d, live: true}, nil
}

func createProject(req *request) (*view, error) {
	p := &accounts.Project{Tenant: req.workspace.In(req.env), ID: req.form("id"), Name: req.form("name")}
	var budgetErr error
	p.MonthlyBudget, budgetErr = req.formCredits("monthly_budget")
	var daysErr error
	p.ContentDays, daysErr = req.formNumber("content_log_days")
	if err := errors.Join(budgetErr, daysErr, req.readAllowed(&p.Allowed, req.routesIn(req.s.DB, p.ID))); err != nil {
		return nil, errors.Join(accounts.CheckProjectID("id", p.ID), err)
	}
	err := req.write(func(tx *db.Tx) error {
		if err := accounts.CreateProject(req.Context(), tx, p, req.now()); err != nil {
			return err
		}
		return p.LogAction(req.Context(), tx, req.actor(), "project.created", req.now())
	})
	if fault.Is(err, fault.InvalidState) {
		return nil, fault.Param(fault.InvalidState, "id", "A project with the ID %s already exists.", p.ID)
	}
	if err != nil {
		return nil, err
	}
	return req.redirect(req.to("projects/"+url.PathEscape(p.ID)), flash{Notice: "Project created."})
}

func (req *request) projectID() (string, error) {
	if err := accounts.CheckProjectID("id", req.id()); err != nil {
		return "", fault.NoSuch("project", web.Sanitize(req.id(), 64))
	}
	return req.id(), nil
}

type projectData struct {
	Project projectRow
	Seen    string // the fingerprint of the form's values
	allowedForm
	Form   limitsForm
	Limits []limitRow
	Days   *daily
	Keys   []keyRow
	More   bool // keys
}

func projectPage(req *request) (*view, error) {
	id, err := req.projectID()
	if err != nil {
		return nil, err
	}
	p, err := accounts.GetProject(req.Context(), req.s.DB, req.workspace.In(req.env), id)
	if err != nil {
		return nil, err
	}
	rows, err := req.projectRows(p)
	if err != nil {
		return nil, err
	}
	d := projectData{Project: rows[0], Seen: projectFingerprint(p), Form: newLimitsForm(p.Limits, p.Raise, req.now()), allowedForm: newAllowedForm(p.Allowed)}
	if d.Limits, err = req.limitRows(spend.Account{Level: spend.Project, ID: spend.ProjectID(p.WorkspaceID, p.ID)}, p.Limits); err != nil {
		return nil, err
	}
	if d.Days, err = req.lastDays(spend.UsageQuery{Project: p.ID}, p.Raise.Apply(p.MonthlyBudget, req.now())); err != nil {
		return nil, err
	}
	keys, more, err := req.s.Keys.Search(req.Context(), req.s.DB, req.principal.Visibility(), access.KeyFilter{Project: p.ID}, db.Page{Limit: rowsPerPage})
	if err != nil {
		return nil, err
	}
	d.More = more
	d.Keys, err = req.keyRows(keys...)
	return &view{template: "project", title: p.Name, data: d, live: true}, err
}

func updateProject(req *request) (*view, error) {
	budget, budgetErr := req.formCredits("monthly_budget")
	thresholds, thresholdsErr := req.formThresholds()
	days, daysErr := req.formNumber("content_log_days")
	return req.changeProject("project.updated", "Project saved.", func(tx *db.Tx, p *accounts.Project) error {
		before := projectFingerprint(p)
		p.Name, p.MonthlyBudget, p.AlertThresholds, p.ContentDays = req.form("name"), budget, thresholds, days
		p.ContentOptOut = req.form("content_log_opt_out") != ""
		if err := errors.Join(budgetErr, thresholdsErr, daysErr, req.readAllowed(&p.Allowed, req.routesIn(tx, p.ID)), req.readLimits(&p.Limits, &p.Raise)); err != nil {
			return errors.Join(accounts.CheckName("name", p.Name), err)
		}
		return req.checkEditConflict(before, projectFingerprint(p))
	})
}

func archiveProject(req *request) (*view, error) {
	return req.changeProject("project.archived", "Project archived. Its requests are rejected.", func(_ *db.Tx, p *accounts.Project) error {
		p.Archive(req.now())
		return nil
	})
}

func restoreProject(req *request) (*view, error) {
	return req.changeProject("project.updated", "Project restored.", func(_ *db.Tx, p *accounts.Project) error {
		p.ArchivedAt = nil
		return nil
	})
}

func (req *request) changeProject(action, notice string, change func(tx *db.Tx, p *accounts.Project) error) (*view, error) {
	id, err := req.projectID()
	if err != nil {
		return nil, err
	}
	return req.save(req.to("projects/"+url.PathEscape(id)), notice, func(tx *db.Tx) error {
		_, err := accounts.ChangeProject(req.Context(), tx, accounts.ProjectChange{Tenant: req.workspace.In(req.env), ID: id, Action: action,
			Change: accounts.Change[accounts.Project]{By: req.actor(), At: req.now(), Apply: func(p *accounts.Project) error { return change(tx, p) }}})
		return err
	})
}
