package accounts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// MaxProjects limits the active projects of an environment. Archived ones don't count.
const MaxProjects = 1000

var projectID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckProjectID checks the ID of a project.
func CheckProjectID(param, id string) error {
	if keyring.ContainsSecret(id) {
		return fault.Invalid(param, "This looks like an API key. Use a project ID that is not a secret.")
	}
	if !projectID.MatchString(id) {
		return fault.Invalid(param, "A project ID has 1 to 64 letters, digits, dots, underscores and dashes, and starts with a letter or digit.")
	}
	return nil
}

// Project groups usage within an environment. The customer chooses its ID.
type Project struct {
	Tenant
	ID            string
	Name          string
	MonthlyBudget *credits.Micro
	Allowed       catalog.Allowed
	Raise         *Raise // of the monthly budget; nil for none
	Limits        []Limit
	ContentDays   *int64 // of the content log; nil or 0 turns it off
	ContentOptOut bool   // requests can leave themselves out of the content log
	CreatedAt     time.Time
	ArchivedAt    *time.Time

	AlertThresholds AlertThresholds // of the budget; nil for the workspace's
}

// Archive archives the project, unless it is already.
func (p *Project) Archive(now time.Time) {
	if p.ArchivedAt == nil {
		p.ArchivedAt = &now
	}
}

// Status is active or archived.
func (p *Project) Status() string {
	if p.ArchivedAt != nil {
		return "archived"
	}
	return "active"
}

var projectTable = db.Table{Name: "projects", Key: 3, Columns: "workspace_id, environment, id, name, monthly_budget, archived_at, alert_thresholds, allowed_models, allowed_providers, limits, temporary_raise, content_log_days, content_log_opt_out"}

var projectColumns = projectTable.Columns + ", created_at"

var scanProject = db.Scanner(func(p *Project) []any {
	return []any{&p.WorkspaceID, &p.Environment, &p.ID, &p.Name, &p.MonthlyBudget, &p.ArchivedAt, &p.AlertThresholds, &p.Allowed.Models, &p.Allowed.Providers, &p.Limits, &p.Raise, &p.ContentDays, &p.ContentOptOut, &p.CreatedAt}
})

// row returns the values of projectTable.
func (p *Project) row() []any {
	return []any{p.WorkspaceID, p.Environment, p.ID, p.Name, (*int64)(p.MonthlyBudget), db.Micros(p.ArchivedAt), p.AlertThresholds.Stored(),
		db.NullList(p.Allowed.Models), db.NullList(p.Allowed.Providers), StoredLimits(p.Limits), db.JSON(p.Raise), p.ContentDays, p.ContentOptOut}
}

// CreateProject stores a new project.
func CreateProject(ctx context.Context, tx *db.Tx, p *Project, now time.Time) error {
	invalid := CheckProjectID("id", p.ID)
	if invalid == nil || p.Name != "" {
		p.Name = cmp.Or(p.Name, p.ID)
		invalid = errors.Join(invalid, CheckName("name", p.Name))
	}
	if err := errors.Join(invalid, p.AlertThresholds.Check(), p.Allowed.Check(), p.Raise.Check(p.MonthlyBudget, now), ReplaceLimits(nil, p.Limits), CheckContentDays(p.ContentDays)); err != nil {
		return err
	}
	if err := checkProjectLimit(ctx, tx, p.Tenant); err != nil {
		return err
	}
	p.CreatedAt = now
	_, err := tx.Exec(ctx, db.Insert(projectTable.Name, projectColumns), append(p.row(), now.UnixMicro())...)
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.InvalidState, "id", "Project %q already exists. Restore an archived project with PATCH.", p.ID)
	}
	tx.Signal(SignalWorkspace, p.WorkspaceID)
	return err
}

// LockWorkspace locks a workspace until the transaction ends.
func LockWorkspace(ctx context.Context, tx *db.Tx, id string) error {
	return tx.QueryRow(ctx, "SELECT id FROM workspaces WHERE id = $1"+tx.Lock("workspaces"), id).Scan(&id)
}

// checkProjectLimit locks the workspace, so that concurrent requests can't exceed the limit.
func checkProjectLimit(ctx context.Context, tx *db.Tx, t Tenant) error {
	if err := LockWorkspace(ctx, tx, t.WorkspaceID); err != nil {
		return err
	}
	n, err := db.Value[int64](tx.QueryRow(ctx, "SELECT count(*) FROM projects WHERE workspace_id = $1 AND environment = $2 AND archived_at IS NULL",
		t.WorkspaceID, t.Environment))
	if err != nil {
		return err
	}
	if n >= MaxProjects {
		return fault.New(fault.LimitReached, "This workspace has %d active projects, which is the limit. Archive one that you no longer need.", MaxProjects)
	}
	return nil
}

// ProjectUse is the use of a project by an actor. Param is where the ID comes from, for errors.
type ProjectUse struct {
	By      audit.Actor
	Project *Project
	Param   string
}

// EnsureProject checks that a project is usable. It creates a missing one if the workspace allows that.
func EnsureProject(ctx context.Context, tx *db.Tx, use ProjectUse, now time.Time) (created bool, err error) {
	p, param := use.Project, use.Param
	if err := CheckProjectID(param, p.ID); err != nil {
		return false, err
	}
	found, err := GetProject(ctx, tx, p.Tenant, p.ID)
	if fault.Is(err, fault.NotFound) {
		// Check again under the lock: another request may have created it.
		if err := LockWorkspace(ctx, tx, p.WorkspaceID); err != nil {
			return false, err
		}
		found, err = GetProject(ctx, tx, p.Tenant, p.ID)
	}
	if err == nil {
		return false, found.usable(param)
	}
	if !fault.Is(err, fault.NotFound) {
		return false, err
	}
	w, err := GetWorkspace(ctx, tx, p.WorkspaceID)
	if err != nil {
		return false, err
	}
	if w.StrictProjects {
		return false, p.unknown(param)
	}
	p.MonthlyBudget = w.DefaultProjectBudget
	if err := CreateProject(ctx, tx, p, now); err != nil {
		return false, err
	}
	return true, use.By.Log(ctx, tx, audit.Action{Tenant: p.Tenant, Project: p.ID,
		Action: "project.created", Target: p.ID}, map[string]any{"name": p.Name, "monthly_budget": p.MonthlyBudget, "by_first_use": true}, now)
}

func (p *Project) unknown(param string) error {
	return fault.Param(fault.UnknownProject, param, "Unknown project %q. Create it with POST /v1/projects.", p.ID)
}

func (p *Project) usable(param string) error {
	if p.ArchivedAt != nil {
		return fault.Param(fault.UnknownProject, param, "Project %q is archived. Restore it with PATCH /v1/projects/%s.", p.ID, p.ID)
	}
	return nil
}

var projectByID = "SELECT " + projectColumns + " FROM projects WHERE workspace_id = $1 AND environment = $2 AND id = $3"

// GetProject returns one project.
func GetProject(ctx context.Context, q db.Querier, t Tenant, id string) (*Project, error) {
	return oneProject(id, q.QueryRow(ctx, projectByID, t.WorkspaceID, t.Environment, id))
}

// GetProjectLocked returns a project and locks it until the transaction ends.
func GetProjectLocked(ctx context.Context, tx *db.Tx, t Tenant, id string) (*Project, error) {
	return oneProject(id, tx.QueryRow(ctx, projectByID+tx.Lock("projects"), t.WorkspaceID, t.Environment, id))
}

func oneProject(id string, r db.Row) (*Project, error) {
	p, err := scanProject(r)
	return p, db.OrNoSuch(err, "project", id)
}

// ProjectRules are what follows from a change of a project.
var ProjectRules Rules[Project]

// ProjectChange is a change of a project. The admin log calls it Action.
type ProjectChange struct {
	Tenant
	ID     string
	Action string
	Change[Project]
}

// ChangeProject changes a project. A restored project counts toward the limit.
func ChangeProject(ctx context.Context, tx *db.Tx, c ProjectChange) (*Project, error) {
	before, err := GetProjectLocked(ctx, tx, c.Tenant, c.ID)
	if err != nil {
		return nil, err
	}
	p := *before
	if err := c.Apply(&p); err != nil {
		return nil, err
	}
	if err := p.check(before, c.At); err != nil {
		return nil, err
	}
	if before.ArchivedAt != nil && p.ArchivedAt == nil {
		if err := checkProjectLimit(ctx, tx, p.Tenant); err != nil {
			return nil, err
		}
	}
	if _, err := projectTable.Update(ctx, tx, before.row(), p.row()); err != nil {
		return nil, err
	}
	tx.Signal(SignalWorkspace, p.WorkspaceID)
	if err := ProjectRules.Follow(ctx, tx, Changed[Project]{before, &p, c.At}); err != nil {
		return nil, err
	}
	return &p, p.LogAction(ctx, tx, c.By, c.Action, c.At)
}

// check validates what a change has set.
func (p *Project) check(before *Project, now time.Time) error {
	if p.Name != before.Name {
		if err := CheckName("name", p.Name); err != nil {
			return err
		}
	}
	if !p.Raise.Equal(before.Raise) {
		if err := p.Raise.Check(p.MonthlyBudget, now); err != nil {
			return err
		}
	}
	return cmp.Or(p.AlertThresholds.Check(), p.Allowed.Check(), ReplaceLimits(before.Limits, p.Limits), CheckContentDays(p.ContentDays))
}

// LogAction writes an action on the project to the admin log.
func (p *Project) LogAction(ctx context.Context, tx *db.Tx, by audit.Actor, action string, now time.Time) error {
	return by.Log(ctx, tx, audit.Action{Tenant: p.Tenant, Project: p.ID, Action: action, Target: p.ID},
		map[string]any{"name": p.Name, "monthly_budget": p.MonthlyBudget, "allowed_models": p.Allowed.Models, "allowed_providers": p.Allowed.Providers, "status": p.Status(), "alert_thresholds": p.AlertThresholds, "temporary_raise": p.Raise, "limits": p.Limits, "content_log_days": p.ContentDays, "content_log_opt_out": p.ContentOptOut}, now)
}

// ListProjects returns a page of projects by creation time.
func ListProjects(ctx context.Context, q db.Querier, t Tenant, page db.Page) ([]*Project, bool, error) {
	query := "SELECT " + projectColumns + " FROM projects WHERE workspace_id = $1 AND environment = $2"
	args := []any{t.WorkspaceID, t.Environment, int64(page.Limit + 1)}
	if page.After != "" {
		after, err := GetProject(ctx, q, t, page.After)
		if fault.Is(err, fault.NotFound) {
			err = fault.Invalid("after", "Unknown project %q.", page.After)
		}
		if err != nil {
			return nil, false, err
		}
		query += fmt.Sprintf(" AND (created_at, id) %s ($4, $5)", page.Past())
		args = append(args, after.CreatedAt.UnixMicro(), after.ID)
	}
	query += fmt.Sprintf(" ORDER BY created_at %[1]s, id %[1]s LIMIT $3", page.Order())
	list, err := db.List(ctx, q, scanProject, query, args...)
	list, more := db.Cut(page, list)
	return list, more, err
}

// Directory caches workspaces and projects for requests, and creates projects at their first use.
type Directory struct {
	// NewPerDay limits how many projects a key may create by first use per UTC day; 0 for no limit.
	NewPerDay atomic.Int64

	db  *db.DB
	now func() time.Time

	mu         sync.RWMutex
	known      map[projectKey]*Project // active projects
	workspaces map[string]*Workspace
	// generation detects reads that started before a change, so that they aren't cached after it.
	generation atomic.Int64
}

type projectKey struct {
	Tenant
	id string
}

// NewDirectory returns a directory that follows changes on any node.
func NewDirectory(d *db.DB, now func() time.Time) *Directory {
	dir := &Directory{db: d, now: now, known: map[projectKey]*Project{}, workspaces: map[string]*Workspace{}}
	d.OnSignal(SignalWorkspace, dir.invalidate)
	return dir
}

func (d *Directory) invalidate(workspaceID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation.Add(1)
	for k := range d.known {
		if workspaceID == "" || k.WorkspaceID == workspaceID {
			delete(d.known, k)
		}
	}
	if workspaceID == "" {
		clear(d.workspaces)
	}
	delete(d.workspaces, workspaceID)
}

// Budgets returns the workspace and the project, which is nil if its ID is empty. Both must not be changed.
// They are usually served from memory.
func (d *Directory) Budgets(ctx context.Context, t Tenant, project string) (*Workspace, *Project, error) {
	return d.budgets(ctx, projectKey{t, project})
}

// AllowedModels returns the models that requests of a project may use. A project that is created by its
// first use has no limits. It is usually served from memory.
func (d *Directory) AllowedModels(ctx context.Context, t Tenant, project string) (catalog.Allowed, error) {
	_, p, err := d.budgets(ctx, projectKey{t, project})
	switch {
	case fault.Is(err, fault.NotFound):
		return catalog.Allowed{}, nil
	case err != nil:
		return catalog.Allowed{}, err
	}
	return p.Allowed, nil
}

// ContentLog returns how many days the content of a project's requests is kept, 0 if it isn't, and whether requests can
// leave themselves out. It is usually served from memory.
func (d *Directory) ContentLog(ctx context.Context, t Tenant, project string) (days int64, optOut bool, err error) {
	_, p, err := d.budgets(ctx, projectKey{t, project})
	switch {
	case fault.Is(err, fault.NotFound):
		return 0, false, nil
	case err != nil || p.ContentDays == nil:
		return 0, false, err
	}
	return *p.ContentDays, p.ContentOptOut, nil
}

// LeakPolicy returns the workspace's policy. It is usually served from memory.
func (d *Directory) LeakPolicy(ctx context.Context, workspaceID string) (LeakPolicy, error) {
	w, _, err := d.budgets(ctx, projectKey{Tenant: Tenant{WorkspaceID: workspaceID}})
	if err != nil {
		return LeaksIgnored, err
	}
	return w.LeakPolicy, nil
}

// ResponseRetention returns how long the workspace's responses are stored. It is usually served from memory.
func (d *Directory) ResponseRetention(ctx context.Context, workspaceID string) (time.Duration, error) {
	w, _, err := d.budgets(ctx, projectKey{Tenant: Tenant{WorkspaceID: workspaceID}})
	if err != nil {
		return 0, err
	}
	return w.ResponseRetention, nil
}

func (d *Directory) budgets(ctx context.Context, key projectKey) (w *Workspace, p *Project, err error) {
	d.mu.RLock()
	w, p = d.workspaces[key.WorkspaceID], d.known[key]
	d.mu.RUnlock()
	if w != nil && (p != nil || key.id == "") {
		return w, p, nil
	}
	generation := d.generation.Load()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if w, err = GetWorkspace(ctx, d.db, key.WorkspaceID); err != nil {
		return nil, nil, err
	}
	if key.id != "" {
		if p, err = GetProject(ctx, d.db, key.Tenant, key.id); err != nil {
			return nil, nil, err
		}
	}
	d.store(w, key, p, generation)
	return w, p, nil
}

// store caches what was read, unless something changed since the read started.
func (d *Directory) store(w *Workspace, key projectKey, p *Project, generation int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if generation != d.generation.Load() {
		return
	}
	d.workspaces[w.ID] = w
	if p != nil && p.ArchivedAt == nil {
		d.known[key] = p
	}
}

// projectHeader is the header with a request's project, for errors.
const projectHeader = "Service-Project"

// loadTimeout is how long a request waits for the database.
const loadTimeout = 4 * time.Second

// Use checks that a request may use the project, and reports whether it exists. A new one is allowed
// if both the workspace and allowNew permit it. It only reads: Create and CreateIn create the project.
func (d *Directory) Use(ctx context.Context, p Project, allowNew bool) (exists bool, err error) {
	key := projectKey{p.Tenant, p.ID}
	d.mu.RLock()
	_, known := d.known[key]
	d.mu.RUnlock()
	if known {
		return true, nil
	}
	reading, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	found, err := GetProject(reading, d.db, p.Tenant, p.ID)
	if fault.Is(err, fault.NotFound) {
		w, err := GetWorkspace(reading, d.db, p.WorkspaceID)
		if err == nil && (w.StrictProjects || !allowNew) {
			err = p.unknown(projectHeader)
		}
		return false, err
	}
	if err == nil {
		err = found.usable(projectHeader)
	}
	if err == nil {
		_, _, err = d.budgets(ctx, key) // caches it
	}
	return true, err
}

// Create creates a project at its first use by a key, unless it exists.
func (d *Directory) Create(ctx context.Context, by audit.Actor, p Project) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	return d.db.Write(ctx, func(tx *db.Tx) error { return d.CreateIn(ctx, tx, by, p) })
}

// CreateIn is Create in a transaction.
func (d *Directory) CreateIn(ctx context.Context, tx *db.Tx, by audit.Actor, p Project) error {
	now := d.now()
	created, err := EnsureProject(ctx, tx, ProjectUse{by, &p, projectHeader}, now)
	if err != nil || !created {
		return err
	}
	today := ExpiringLimit{ID: "new_projects/" + by.Name, Max: d.NewPerDay.Load(), Granularity: 24 * time.Hour}
	err = today.Add(ctx, tx, now.Add(time.Microsecond), now) // until the next midnight in UTC
	var full *LimitReachedError
	if errors.As(err, &full) {
		return fault.Param(fault.LimitReached, projectHeader, "This key has created %d projects today by naming them, which is the limit. Create the project %q with POST /v1/projects, name one that exists, or retry after %s.",
			full.Max, p.ID, full.Until.UTC().Format(time.RFC3339))
	}
	return err
}
