package modelroutes

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/visibility"
)

const (
	// maxCached limits how many workspaces a node remembers.
	maxCached = 10_000
	// loadTimeout is how long a request waits for the database.
	loadTimeout = 4 * time.Second
)

// Directory caches routes for requests. It follows changes on any node.
type Directory struct {
	service *Service

	mu    sync.RWMutex
	known map[accounts.Tenant]byProject
	// generation detects reads that started before a change, so that they aren't cached after it.
	generation atomic.Int64
}

// byProject has the routes of a tenant by project and name. Those without a project have an empty one.
type byProject map[string]map[string]*Route

// NewDirectory returns an empty directory.
func NewDirectory(s *Service) *Directory {
	d := &Directory{service: s, known: map[accounts.Tenant]byProject{}}
	s.DB.OnSignal(SignalRoutes, d.forget)
	return d
}

// forget drops the routes of a workspace, or all if the ID is empty.
func (d *Directory) forget(workspaceID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation.Add(1)
	for tenant := range d.known {
		if workspaceID == "" || tenant.WorkspaceID == workspaceID {
			delete(d.known, tenant)
		}
	}
}

// Find returns the route that a request in a project gets for a name, or nil. The project's own
// comes before the workspace's. It is usually served from memory.
func (d *Directory) Find(ctx context.Context, t accounts.Tenant, project, name string) (*Route, error) {
	routes, err := d.routes(ctx, t)
	if err != nil {
		return nil, err
	}
	if project != "" {
		if r := routes[project][name]; r != nil {
			return r, nil
		}
	}
	return routes[""][name], nil
}

// Names returns the names of the routes that a request in a project can use.
func (d *Directory) Names(ctx context.Context, t accounts.Tenant, project string) ([]string, error) {
	routes, err := d.routes(ctx, t)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range routes[""] {
		names = append(names, name)
	}
	if project != "" {
		for name := range routes[project] {
			if routes[""][name] == nil {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

func (d *Directory) routes(ctx context.Context, t accounts.Tenant) (byProject, error) {
	d.mu.RLock()
	routes, found := d.known[t]
	d.mu.RUnlock()
	if found {
		return routes, nil
	}
	generation := d.generation.Load()
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	list, err := d.service.List(ctx, d.service.DB, visibility.Filter{Tenant: t})
	if err != nil {
		return nil, err
	}
	routes = byProject{}
	for _, r := range list {
		if routes[r.Project] == nil {
			routes[r.Project] = map[string]*Route{}
		}
		routes[r.Project][r.Name] = r
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if generation == d.generation.Load() {
		if len(d.known) >= maxCached {
			clear(d.known)
		}
		d.known[t] = routes
	}
	return routes, nil
}
