// Package modelroutes holds the routes of workspaces and projects: names for lists of models. Operators
// define their own in the configuration.
package modelroutes

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

const (
	maxRoutes = 100 // per workspace and environment
	maxModels = 16
	maxWeight = 1000

	minTimeout = 100 * time.Millisecond
	maxTimeout = time.Hour
)

// Prefix begins the name of a route in requests.
const Prefix = "route/"

// Strategy is how a route orders its models.
type Strategy string

// The strategies.
const (
	InOrder   Strategy = "order"
	ByWeight  Strategy = "weight"
	ByLatency Strategy = "latency"
	ByPrice   Strategy = "price"
)

// Strategies lists all strategies.
var Strategies = []Strategy{InOrder, ByWeight, ByLatency, ByPrice}

// Spec is what a route does.
type Spec struct {
	Models   []string
	Strategy Strategy // empty is InOrder
	Weights  []int    // of the models; nil if they are equal
	// Timeout is how long each attempt may take until the first chunk of a stream or the whole of
	// another response; 0 for no limit.
	Timeout time.Duration
}

// Weight returns the weight of a model.
func (s *Spec) Weight(model int) float64 {
	if s.Weights == nil {
		return 1
	}
	return float64(max(1, s.Weights[model]))
}

// Route is a route of a workspace or a project.
type Route struct {
	ID string
	accounts.Tenant
	Project string // empty for the whole workspace
	Name    string
	Spec
	CreatedAt time.Time
	CreatedBy string
}

const columns = "id, workspace_id, environment, project, name, models, strategy, weights, timeout_ms, created_at, created_by"

type storedRoute struct {
	Route
	timeoutMS int64
}

var scan = db.Scanner(func(r *storedRoute) []any {
	return []any{&r.ID, &r.WorkspaceID, &r.Environment, &r.Project, &r.Name, &r.Models, &r.Strategy, &r.Weights, &r.timeoutMS, &r.CreatedAt, &r.CreatedBy}
})

func (r *storedRoute) route() *Route {
	r.Timeout = time.Duration(r.timeoutMS) * time.Millisecond
	return &r.Route
}

func (r *Route) row() []any {
	var weights any
	if r.Weights != nil {
		weights = db.JSON(r.Weights)
	}
	return []any{r.ID, r.WorkspaceID, r.Environment, db.OrNull(r.Project), r.Name, db.JSON(r.Models), string(r.Strategy), weights, r.Timeout.Milliseconds(), r.CreatedAt.UnixMicro(), r.CreatedBy}
}

// Service manages routes.
type Service struct {
	DB  *db.DB
	Now func() time.Time
	// IsTaken reports whether the operator has a route with a name.
	IsTaken func(name string) bool
}

// SignalRoutes is sent with the ID of a workspace whose routes have changed.
const SignalRoutes = "model_routes"

// Create stores a new route.
func (s *Service) Create(ctx context.Context, tx *db.Tx, by audit.Actor, r *Route) error {
	if err := s.Check(r); err != nil {
		return err
	}
	if err := accounts.LockWorkspace(ctx, tx, r.WorkspaceID); err != nil { // makes the count exact
		return err
	}
	if r.Project != "" {
		if _, err := accounts.GetProject(ctx, tx, r.Tenant, r.Project); err != nil {
			if fault.Is(err, fault.NotFound) {
				err = fault.Invalid("project", "Unknown project %q. Create it with POST /v1/projects.", r.Project)
			}
			return err
		}
	}
	n, err := db.Value[int](tx.QueryRow(ctx, "SELECT count(*) FROM workspace_routes WHERE workspace_id = $1 AND environment = $2", r.WorkspaceID, r.Environment))
	if err != nil {
		return fmt.Errorf("count routes: %w", err)
	}
	if n >= maxRoutes {
		return fault.New(fault.LimitReached, "A workspace can have at most %d routes per environment. Delete one first.", maxRoutes)
	}
	r.ID, r.CreatedAt, r.CreatedBy = ids.New(ids.Route), s.Now(), by.Name
	if _, err := tx.Exec(ctx, db.Insert("workspace_routes", columns), r.row()...); err != nil {
		return r.stored(err)
	}
	return s.changed(ctx, tx, by, r, "route.created")
}

// stored returns the error of a statement that stores a route.
func (r *Route) stored(err error) error {
	if errors.Is(err, db.ErrExists) {
		return fault.Param(fault.InvalidState, "name", "A route named %q already exists. Change it with PATCH, or choose another name.", r.Name)
	}
	return db.Wrap(err, "store route")
}

// table has what changes of a route can write.
var table = db.Table{Name: "workspace_routes", Key: 1, Columns: "id, name, models, strategy, weights, timeout_ms"}

// Change changes a route.
func (s *Service) Change(ctx context.Context, tx *db.Tx, c audit.Change[Route]) (*Route, error) {
	before, err := s.GetLocked(ctx, tx, c.Visibility, c.ID)
	if err != nil {
		return nil, err
	}
	r := *before
	if err := c.Apply(&r); err != nil {
		return nil, err
	}
	if err := s.Check(&r); err != nil {
		return nil, err
	}
	if _, err := table.Update(ctx, tx, before.changeable(), r.changeable()); err != nil {
		return nil, r.stored(err)
	}
	return &r, s.changed(ctx, tx, c.By, &r, "route.updated")
}

// changeable returns the values of table.
func (r *Route) changeable() []any { return append([]any{r.ID}, r.row()[4:9]...) }

// Delete deletes a route.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, by audit.Actor, r *Route) error {
	if _, err := tx.Exec(ctx, "DELETE FROM workspace_routes WHERE id = $1", r.ID); err != nil {
		return fmt.Errorf("delete route: %w", err)
	}
	return s.changed(ctx, tx, by, r, "route.deleted")
}

func (s *Service) changed(ctx context.Context, tx *db.Tx, by audit.Actor, r *Route, action string) error {
	tx.Signal(SignalRoutes, r.WorkspaceID)
	return by.Log(ctx, tx, audit.Action{Tenant: r.Tenant, Project: r.Project, Action: action, Target: r.ID},
		map[string]any{"name": r.Name, "models": r.Models, "strategy": r.Strategy, "weights": r.Weights, "timeout_ms": r.Timeout.Milliseconds()}, s.Now())
}

// Get returns a visible route.
func (s *Service) Get(ctx context.Context, q db.Querier, vis visibility.Filter, id string) (*Route, error) {
	return get(ctx, q, vis, id, "")
}

// GetLocked is Get, and locks the route.
func (s *Service) GetLocked(ctx context.Context, tx *db.Tx, vis visibility.Filter, id string) (*Route, error) {
	return get(ctx, tx, vis, id, tx.Lock("workspace_routes"))
}

func get(ctx context.Context, q db.Querier, vis visibility.Filter, id, lock string) (*Route, error) {
	r, err := db.FindOne(ctx, q, db.Search{Table: "workspace_routes", Columns: columns, Where: vis.Rows(), Lock: lock}, id, scan)
	if err != nil {
		return nil, db.OrNoSuch(err, "route", id)
	}
	return r.route(), nil
}

// List returns the visible routes by name. There are at most maxRoutes.
func (s *Service) List(ctx context.Context, q db.Querier, vis visibility.Filter) ([]*Route, error) {
	query, args := "SELECT "+columns+" FROM workspace_routes WHERE workspace_id = $1 AND environment = $2", []any{vis.WorkspaceID, vis.Environment}
	if vis.Project != "" {
		query, args = query+" AND project = $3", append(args, vis.Project)
	}
	found, err := db.List(ctx, q, scan, query, args...)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	list := make([]*Route, len(found))
	for i, r := range found {
		list[i] = r.route()
	}
	slices.SortFunc(list, func(a, b *Route) int { return strings.Compare(a.Name+" "+a.Project, b.Name+" "+b.Project) })
	return list, nil
}

// Names returns the names of the workspace's routes that requests in a project can use.
func Names(ctx context.Context, q db.Querier, t accounts.Tenant, project string) ([]string, error) {
	names, err := db.List(ctx, q, db.Value[string], "SELECT name FROM workspace_routes WHERE workspace_id = $1 AND environment = $2 AND (project IS NULL OR project = $3)",
		t.WorkspaceID, t.Environment, project)
	return names, db.Wrap(err, "list names of routes")
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// Check returns the errors of all fields.
func (s *Service) Check(r *Route) error {
	if r.Strategy == "" {
		r.Strategy = InOrder
	}
	errs := []error{s.checkName(r.Name), r.checkModels()}
	if !slices.Contains(Strategies, r.Strategy) {
		errs = append(errs, fault.Invalid("strategy", "strategy must be order, weight, latency or price."))
	}
	errs = append(errs, r.checkWeights())
	if r.Timeout != 0 && (r.Timeout < minTimeout || r.Timeout > maxTimeout) {
		errs = append(errs, fault.Invalid("timeout_ms", "timeout_ms must be from %d to %d.", minTimeout.Milliseconds(), maxTimeout.Milliseconds()))
	}
	return errors.Join(errs...)
}

func (s *Service) checkName(name string) error {
	switch {
	case name == "":
		return fault.Missing("name", "name is required. Clients use the route as route/NAME.")
	case !validName.MatchString(name):
		return fault.Invalid("name", "name must have 1 to 64 of a-z, 0-9 and -.")
	case s.IsTaken(name):
		return fault.Param(fault.InvalidState, "name", "The operator has a route named %q, which would be used instead. Choose another name.", name)
	}
	return nil
}

func (r *Route) checkWeights() error {
	switch {
	case r.Weights != nil && r.Strategy == InOrder:
		return fault.Invalid("weights", "weights have no effect on the strategy order. Set strategy to weight, latency or price.")
	case r.Weights != nil && len(r.Weights) != len(r.Models):
		return fault.Invalid("weights", "weights has %d entries for %d models. Send one for each.", len(r.Weights), len(r.Models))
	case slices.ContainsFunc(r.Weights, func(w int) bool { return w < 1 || w > maxWeight }):
		return fault.Invalid("weights", "weights must be from 1 to %d.", maxWeight)
	}
	return nil
}

func (r *Route) checkModels() error {
	switch {
	case len(r.Models) == 0:
		return fault.Missing("models", "models is required: the models to try.")
	case len(r.Models) > maxModels:
		return fault.Invalid("models", "models must have at most %d entries.", maxModels)
	}
	for i, model := range r.Models {
		if model == "auto" || strings.HasPrefix(model, "auto:") || strings.HasPrefix(model, Prefix) {
			return fault.Invalid("models", "models must not contain %q. A route consists of models.", model)
		}
		if slices.Contains(r.Models[:i], model) {
			return fault.Invalid("models", "models contains %q twice.", model)
		}
	}
	return nil
}
