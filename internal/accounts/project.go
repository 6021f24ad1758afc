package accounts

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

// MaxProjects is how many projects a workspace may have in one environment.
const MaxProjects = 1000

var projectID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// CheckProjectID refuses what cannot be a project's id.
func CheckProjectID(param, id string) error {
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
	if err := checkName("name", p.Name); err != nil {
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

// belowCap locks the workspace, so that two creations at once cannot both take
// the last place.
func belowCap(ctx context.Context, tx *db.Tx, workspaceID string, env Environment) error {
	var id string
	if err := tx.QueryRow(ctx, "SELECT id FROM workspaces WHERE id = $1"+tx.Lock("workspaces"), workspaceID).Scan(&id); err != nil {
		return err
	}
	var n int64
	err := tx.QueryRow(ctx, "SELECT count(*) FROM projects WHERE workspace_id = $1 AND environment = $2",
		workspaceID, string(env)).Scan(&n)
	if err != nil {
		return err
	}
	if n >= MaxProjects {
		return fault.New(fault.LimitReached, "this workspace has %d projects, which is the limit", MaxProjects)
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

// SaveProject stores a project's changed name, budget and archival.
func SaveProject(ctx context.Context, tx *db.Tx, p *Project) error {
	if err := checkName("name", p.Name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `UPDATE projects SET name = $4, monthly_budget = $5, archived_at = $6
		WHERE workspace_id = $1 AND environment = $2 AND id = $3`,
		p.WorkspaceID, string(p.Environment), p.ID, p.Name, (*int64)(p.MonthlyBudget), db.Micros(p.ArchivedAt))
	tx.Signal(SignalWorkspace, p.WorkspaceID)
	return err
}

// ListProjects returns a page of projects by age.
func ListProjects(ctx context.Context, q db.Querier, workspaceID string, env Environment, page db.Page) ([]*Project, bool, error) {
	query := "SELECT " + projectColumns + " FROM projects WHERE workspace_id = $1 AND environment = $2"
	args := []any{workspaceID, string(env), int64(page.Limit + 1)}
	if page.After != "" {
		after, err := GetProject(ctx, q, workspaceID, env, page.After)
		if err != nil {
			return nil, false, fault.Invalid("after", "there is no project %q to go on from", page.After)
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
	db  *db.DB
	now func() time.Time

	mu    sync.RWMutex
	known map[projectKey]bool // false: archived
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
	dir := &Directory{db: d, now: now, known: map[projectKey]bool{}}
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
}

// Use checks that the project, whose id has the right shape, may be used and
// creates it if it is new and the workspace allows that. Nothing is created for a caller that may not.
func (d *Directory) Use(ctx context.Context, workspaceID string, env Environment, id string, mayCreate bool) error {
	key := projectKey{workspaceID, env, id}
	d.mu.RLock()
	usable, known := d.known[key]
	d.mu.RUnlock()
	generation := d.generation.Load()
	if !known {
		var err error
		if usable, err = d.load(ctx, key, mayCreate); err != nil {
			return err
		}
		d.mu.Lock()
		if generation == d.generation.Load() {
			d.known[key] = usable
		}
		d.mu.Unlock()
	}
	if !usable {
		return fault.Param(fault.UnknownProject, "Service-Project", "project %q is archived; restore it with PATCH /v1/projects/%s", id, id)
	}
	return nil
}

func (d *Directory) load(ctx context.Context, key projectKey, mayCreate bool) (usable bool, err error) {
	p, err := GetProject(ctx, d.db, key.workspaceID, key.environment, key.id)
	if err == nil {
		return p.ArchivedAt == nil, nil
	}
	if !fault.Is(err, fault.NotFound) {
		return false, err
	}
	w, err := GetWorkspace(ctx, d.db, key.workspaceID)
	if err != nil {
		return false, err
	}
	if w.StrictProjects || !mayCreate {
		return false, fault.Param(fault.UnknownProject, "Service-Project", "there is no project %q; create it with POST /v1/projects", key.id)
	}
	err = d.db.Write(ctx, func(tx *db.Tx) error {
		return CreateProject(ctx, tx, &Project{WorkspaceID: key.workspaceID, Environment: key.environment, ID: key.id,
			MonthlyBudget: w.DefaultProjectBudget}, d.now())
	})
	if fault.Is(err, fault.InvalidState) { // somebody else was faster
		return true, nil
	}
	return err == nil, err
}
