package accounts

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/keyring"
)

// MaxProjects is how many projects a workspace may have in use in one
// environment. Those that are archived do not count: archiving makes room.
const MaxProjects = 1000

var projectID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckProjectID refuses what cannot be a project's id.
func CheckProjectID(param, id string) error {
	if keyring.ContainsSecret(id) {
		return fault.Invalid(param, "this looks like an API key; a project id is no secret")
	}
	if !projectID.MatchString(id) {
		return fault.Invalid(param, "a project id is 1 to 64 letters, digits, dots, underscores and dashes and begins with a letter or digit")
	}
	return nil
}

// Project groups usage inside a workspace and environment. Its id is the
// customer's own word.
type Project struct {
	WorkspaceID   string
	Environment   Environment
	ID            string
	Name          string
	MonthlyBudget *credits.Micro
	CreatedAt     time.Time
	ArchivedAt    *time.Time
}

// Status is active or archived.
func (p *Project) Status() string {
	if p.ArchivedAt != nil {
		return "archived"
	}
	return "active"
}

const projectColumns = "workspace_id, environment, id, name, monthly_budget, created_at, archived_at"

func scanProject(r db.Row) (*Project, error) {
	var p Project
	var env string
	var budget, archived *int64
	var created int64
	if err := r.Scan(&p.WorkspaceID, &env, &p.ID, &p.Name, &budget, &created, &archived); err != nil {
		return nil, err
	}
	p.Environment = Environment(env)
	p.MonthlyBudget = (*credits.Micro)(budget)
	p.CreatedAt = time.UnixMicro(created)
	p.ArchivedAt = db.Time(archived)
	return &p, nil
}

// CreateProject stores a new project.
func CreateProject(ctx context.Context, tx *db.Tx, p *Project, now time.Time) error {
	if err := CheckProjectID("id", p.ID); err != nil {
		return err
	}
	if p.Name == "" {
		p.Name = p.ID
	}
	if err := CheckName("name", p.Name); err != nil {
		return err
	}
	if err := belowCap(ctx, tx, p.WorkspaceID, p.Environment); err != nil {
		return err
	}
	p.CreatedAt = now
	_, err := tx.Exec(ctx, "INSERT INTO projects ("+projectColumns+") VALUES ($1, $2, $3, $4, $5, $6, NULL)",
		p.WorkspaceID, string(p.Environment), p.ID, p.Name, (*int64)(p.MonthlyBudget), now.UnixMicro())
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.InvalidState, "id", "there is a project %q already; an archived one is restored with PATCH", p.ID)
	}
	tx.Signal(SignalWorkspace, p.WorkspaceID)
	return err
}

// LockWorkspace makes others wait who lock the workspace, until the transaction
// ends.
func LockWorkspace(ctx context.Context, tx *db.Tx, id string) error {
	return tx.QueryRow(ctx, "SELECT id FROM workspaces WHERE id = $1"+tx.Lock("workspaces"), id).Scan(&id)
}

// belowCap locks the workspace, so that two projects at once cannot both take
// the last place.
func belowCap(ctx context.Context, tx *db.Tx, workspaceID string, env Environment) error {
	if err := LockWorkspace(ctx, tx, workspaceID); err != nil {
		return err
	}
	var n int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM projects WHERE workspace_id = $1 AND environment = $2 AND archived_at IS NULL",
		workspaceID, string(env)).Scan(&n)
	if err != nil {
		return err
	}
	if n >= MaxProjects {
		return fault.New(fault.LimitReached, "this workspace has %d projects in use, which is the limit; archive one that is not needed", MaxProjects)
	}
	return nil
}

// EnsureProject makes sure that a project can be used, and creates one that is
// new if the workspace allows that. param names, in errors, where the id came from.
func EnsureProject(ctx context.Context, tx *db.Tx, by audit.Actor, p *Project, param string, now time.Time) error {
	_, err := ensureProject(ctx, tx, by, p, param, now)
	return err
}

// ensureProject is EnsureProject; it reports whether it created the project.
func ensureProject(ctx context.Context, tx *db.Tx, by audit.Actor, p *Project, param string, now time.Time) (created bool, err error) {
	if err := CheckProjectID(param, p.ID); err != nil {
		return false, err
	}
	found, err := GetProject(ctx, tx, p.WorkspaceID, p.Environment, p.ID)
	if fault.Is(err, fault.NotFound) {
		// Again under the lock: another request may have just created it.
		if err := LockWorkspace(ctx, tx, p.WorkspaceID); err != nil {
			return false, err
		}
		found, err = GetProject(ctx, tx, p.WorkspaceID, p.Environment, p.ID)
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
	return true, audit.LogAction(ctx, tx, by, audit.Action{WorkspaceID: p.WorkspaceID, Environment: string(p.Environment), Project: p.ID,
		Action: "project.created", Target: p.ID}, map[string]any{"name": p.Name, "monthly_budget": p.MonthlyBudget, "by_first_use": true}, now)
}

func (p *Project) unknown(param string) error {
	return fault.Param(fault.UnknownProject, param, "there is no project %q; create it with POST /v1/projects", p.ID)
}

func (p *Project) usable(param string) error {
	if p.ArchivedAt != nil {
		return fault.Param(fault.UnknownProject, param, "project %q is archived; restore it with PATCH /v1/projects/%s", p.ID, p.ID)
	}
	return nil
}

const projectByID = "SELECT " + projectColumns + " FROM projects WHERE workspace_id = $1 AND environment = $2 AND id = $3"

// GetProject returns one project.
func GetProject(ctx context.Context, q db.Querier, workspaceID string, env Environment, id string) (*Project, error) {
	return oneProject(id, q.QueryRow(ctx, projectByID, workspaceID, string(env), id))
}

// GetProjectLocked is GetProject for a change: the project stays as it was
// read until the transaction ends.
func GetProjectLocked(ctx context.Context, tx *db.Tx, workspaceID string, env Environment, id string) (*Project, error) {
	return oneProject(id, tx.QueryRow(ctx, projectByID+tx.Lock("projects"), workspaceID, string(env), id))
}

func oneProject(id string, r db.Row) (*Project, error) {
	p, err := scanProject(r)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("project", id)
	}
	return p, err
}

// SaveProject stores a project's changed name, budget and archival. One that
// comes back needs a place among those in use.
func SaveProject(ctx context.Context, tx *db.Tx, p *Project) error {
	stored, err := GetProject(ctx, tx, p.WorkspaceID, p.Environment, p.ID)
	if err != nil {
		return err
	}
	if p.Name != stored.Name {
		if err := CheckName("name", p.Name); err != nil {
			return err
		}
	}
	if stored.ArchivedAt != nil && p.ArchivedAt == nil {
		if err := belowCap(ctx, tx, p.WorkspaceID, p.Environment); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, `UPDATE projects SET name = $4, monthly_budget = $5, archived_at = $6
		WHERE workspace_id = $1 AND environment = $2 AND id = $3`,
		p.WorkspaceID, string(p.Environment), p.ID, p.Name, (*int64)(p.MonthlyBudget), db.Micros(p.ArchivedAt))
	tx.Signal(SignalWorkspace, p.WorkspaceID)
	return err
}

// LogProject writes into the admin log what somebody did to a project.
func LogProject(ctx context.Context, tx *db.Tx, by audit.Actor, p *Project, action string, now time.Time) error {
	return audit.LogAction(ctx, tx, by, audit.Action{WorkspaceID: p.WorkspaceID, Environment: string(p.Environment), Project: p.ID, Action: action, Target: p.ID},
		map[string]any{"name": p.Name, "monthly_budget": p.MonthlyBudget, "status": p.Status()}, now)
}

// ListProjects returns a page of projects by age.
func ListProjects(ctx context.Context, q db.Querier, workspaceID string, env Environment, page db.Page) ([]*Project, bool, error) {
	query := "SELECT " + projectColumns + " FROM projects WHERE workspace_id = $1 AND environment = $2"
	args := []any{workspaceID, string(env), int64(page.Limit + 1)}
	if page.After != "" {
		after, err := GetProject(ctx, q, workspaceID, env, page.After)
		if fault.Is(err, fault.NotFound) {
			err = fault.Invalid("after", "there is no project %q to go on from", page.After)
		}
		if err != nil {
			return nil, false, err
		}
		query += fmt.Sprintf(" AND (created_at, id) %s ($4, $5)", page.Past())
		args = append(args, after.CreatedAt.UnixMicro(), after.ID)
	}
	query += fmt.Sprintf(" ORDER BY created_at %[1]s, id %[1]s LIMIT $3", page.Order())
	rows, err := q.Query(ctx, query, args...)
	list, err := db.All(rows, err, scanProject)
	list, more := db.Cut(page, list)
	return list, more, err
}

// Directory answers, for every request, whether a project may be used, from
// memory. It creates a project at its first use.
type Directory struct {
	// NewPerDay is how many projects a key may create by their first use in a UTC
	// day; 0 is no limit. It must be set before the directory is used.
	NewPerDay int64

	db  *db.DB
	now func() time.Time

	mu         sync.RWMutex
	known      map[projectKey]*Project // those that can be used
	workspaces map[string]*Workspace
	// generation tells a read that was under way from one that began after a
	// change, so that an old answer is not remembered past it.
	generation atomic.Int64
}

type projectKey struct {
	workspaceID string
	environment Environment
	id          string
}

// NewDirectory makes a directory that follows changes made on any node.
func NewDirectory(d *db.DB, now func() time.Time) *Directory {
	dir := &Directory{db: d, now: now, known: map[projectKey]*Project{}, workspaces: map[string]*Workspace{}}
	d.OnSignal(SignalWorkspace, dir.forget)
	return dir
}

func (d *Directory) forget(workspaceID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation.Add(1)
	for k := range d.known {
		if workspaceID == "" || k.workspaceID == workspaceID {
			delete(d.known, k)
		}
	}
	if workspaceID == "" {
		clear(d.workspaces)
	}
	delete(d.workspaces, workspaceID)
}

// Budgets are the caps of a call beside its key's own: the workspace's and the
// project's, which may be empty. Most calls read them from memory.
func (d *Directory) Budgets(ctx context.Context, workspaceID string, env Environment, project string) (workspace, ofProject *credits.Micro, err error) {
	w, p, err := d.budgets(ctx, workspaceID, projectKey{workspaceID, env, project})
	if err != nil {
		return nil, nil, err
	}
	if p != nil {
		ofProject = p.MonthlyBudget
	}
	return w.MonthlyCredits, ofProject, nil
}

// LeakPolicy is the workspace's. Most requests read it from memory.
func (d *Directory) LeakPolicy(ctx context.Context, workspaceID string) (LeakPolicy, error) {
	w, _, err := d.budgets(ctx, workspaceID, projectKey{})
	if err != nil {
		return LeaksIgnored, err
	}
	return w.LeakPolicy, nil
}

func (d *Directory) budgets(ctx context.Context, workspaceID string, key projectKey) (w *Workspace, p *Project, err error) {
	d.mu.RLock()
	w, p = d.workspaces[workspaceID], d.known[key]
	d.mu.RUnlock()
	if w != nil && (p != nil || key.id == "") {
		return w, p, nil
	}
	generation := d.generation.Load()
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	if w, err = GetWorkspace(ctx, d.db, workspaceID); err != nil {
		return nil, nil, err
	}
	if key.id != "" {
		if p, err = GetProject(ctx, d.db, workspaceID, key.environment, key.id); err != nil {
			return nil, nil, err
		}
	}
	d.remember(w, key, p, generation)
	return w, p, nil
}

// remember keeps what was read, unless something changed since the reading began.
func (d *Directory) remember(w *Workspace, key projectKey, p *Project, generation int64) {
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

// projectHeader is where requests name their project, for errors.
const projectHeader = "Service-Project"

// loadPatience is how long a request waits for the store to know its project.
const loadPatience = 4 * time.Second

// Use checks that a request may name the project, and reports whether it
// exists. A new one passes if the workspace allows that and so does the caller.
// It only reads: CreateIn and Create create it once there is something to do
// in it.
func (d *Directory) Use(ctx context.Context, p Project, allowNew bool) (exists bool, err error) {
	key := projectKey{p.WorkspaceID, p.Environment, p.ID}
	d.mu.RLock()
	_, known := d.known[key]
	d.mu.RUnlock()
	if known {
		return true, nil
	}
	reading, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	found, err := GetProject(reading, d.db, p.WorkspaceID, p.Environment, p.ID)
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
		_, _, err = d.budgets(ctx, p.WorkspaceID, key) // which remembers it
	}
	return true, err
}

// Create creates a project at its first use by a key, unless it exists.
func (d *Directory) Create(ctx context.Context, by audit.Actor, p Project) error {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	return d.db.Write(ctx, func(tx *db.Tx) error { return d.CreateIn(ctx, tx, by, p) })
}

// CreateIn is Create in a transaction.
func (d *Directory) CreateIn(ctx context.Context, tx *db.Tx, by audit.Actor, p Project) error {
	now := d.now()
	created, err := ensureProject(ctx, tx, by, &p, projectHeader, now)
	if err != nil || !created {
		return err
	}
	today := Cap{ID: "new_projects/" + by.Name, Max: d.NewPerDay, Slice: 24 * time.Hour}
	err = today.Add(ctx, tx, now.Add(time.Microsecond), now) // until the next midnight in UTC
	var full *CapReached
	if errors.As(err, &full) {
		return fault.Param(fault.LimitReached, projectHeader, "This key has created %d projects today by naming them, which is the limit. Create the project %q with POST /v1/projects, name one that exists, or retry after %s.",
			full.Max, p.ID, full.Until.UTC().Format(time.RFC3339))
	}
	return err
}
