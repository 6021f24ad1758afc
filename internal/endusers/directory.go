package endusers

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
)

const (
	// cacheTTL limits how long a node that misses signals serves a blocked user.
	cacheTTL  = time.Minute
	cacheSize = 100_000
	// loadTimeout is how long a request waits for the database.
	loadTimeout = 4 * time.Second
	// maxLoads is how many users one statement reads.
	maxLoads = 100
)

// Settings are where a directory reads the settings of workspaces.
type Settings func(ctx context.Context, workspaceID string) (accounts.UserSettings, error)

// Directory returns users from memory, and creates those that only requests name.
type Directory struct {
	db       *db.DB
	now      func() time.Time
	settings Settings
	cache    *otter.Cache[string, cached] // by load.key
	loads    *db.Batcher[*load]

	// mu orders stores and invalidations, so that a read from before a change can't be cached after it.
	mu         sync.RWMutex
	generation int64
}

type cached struct {
	user     *User // nil if a token's user is deleted
	loadedAt time.Time
}

// Active is the user of a request with the limits that apply.
type Active struct {
	*User
	accounts.UserLimits
}

// NewDirectory returns a directory that follows changes on any node.
func NewDirectory(d *db.DB, settings Settings, now func() time.Time) (*Directory, error) {
	cache, err := otter.New(&otter.Options[string, cached]{MaximumSize: cacheSize})
	if err != nil {
		return nil, fmt.Errorf("cache of users: %w", err)
	}
	dir := &Directory{db: d, now: now, settings: settings, cache: cache}
	dir.loads = db.NewBatcher(maxLoads, dir.loadAll)
	d.OnSignal(signalUser, dir.invalidate)
	d.OnSignal(SignalID, dir.invalidate)
	return dir, nil
}

func cacheKey(t accounts.Tenant, name string) string { return t.Path() + "/" + name }

func (d *Directory) invalidate(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.generation++
	if key == "" {
		d.cache.InvalidateAll()
		return
	}
	d.cache.Invalidate(key)
}

// OfToken returns the user of a scoped token by its ID. Tokens of a deleted user can't create it again.
func (d *Directory) OfToken(ctx context.Context, t accounts.Tenant, id string) (*Active, error) {
	s, err := d.settings(ctx, t.WorkspaceID)
	if err != nil {
		return nil, err
	}
	return d.active(ctx, &load{key: id, tenant: t, id: id}, s)
}

// OfRequest returns the user that a request names, or nil if the workspace ignores it. name is called only
// if it doesn't, and returns an empty string if there is none.
func (d *Directory) OfRequest(ctx context.Context, t accounts.Tenant, name func() (string, error)) (*Active, error) {
	s, err := d.settings(ctx, t.WorkspaceID)
	if err != nil || !s.FromRequests {
		return nil, err
	}
	user, err := name()
	if err != nil || user == "" {
		return nil, err
	}
	return d.active(ctx, &load{key: cacheKey(t, user), tenant: t, name: user}, s)
}

func (d *Directory) active(ctx context.Context, l *load, s accounts.UserSettings) (*Active, error) {
	l.now = d.now()
	c, known := d.cache.GetIfPresent(l.key)
	if !known || l.now.Sub(c.loadedAt) >= cacheTTL {
		u, err := d.load(ctx, l)
		if err != nil {
			return nil, err
		}
		c.user = u
	}
	if c.user == nil {
		return nil, fault.New(fault.UserBlocked, "This user was deleted, so its tokens no longer work. Create another token for the user.")
	}
	return &Active{c.user, c.user.Limits(s.Default)}, nil
}

// load reads the user, or creates one that a request names at its first use. Concurrent loads share statements
// and a transaction.
func (d *Directory) load(ctx context.Context, l *load) (*User, error) {
	d.mu.RLock()
	l.generation = d.generation
	d.mu.RUnlock()
	err := d.loads.Do(ctx, l)
	if err == nil {
		err = l.err
	}
	if _, known := fault.As(err); known {
		return nil, err
	}
	return l.user, db.Wrap(err, "look up user")
}

// load is the lookup of a user by a request that waits for it.
type load struct {
	key        string // in the cache
	tenant     accounts.Tenant
	id         string // of a token's user
	name       string // of a request's user
	now        time.Time
	generation int64
	exists     bool // before the load
	user       *User
	err        error
}

func (d *Directory) loadAll(list []*load) {
	ctx, cancel := context.WithTimeout(context.Background(), loadTimeout)
	defer cancel()
	err := readAll(ctx, d.db, list)
	var missing []*load
	for _, l := range list {
		l.err, l.exists = err, l.user != nil
		if err == nil && (l.exists && l.now.Sub(l.user.SeenAt) >= seenInterval || !l.exists && l.id == "") {
			missing = append(missing, l)
		}
	}
	if len(missing) > 0 && d.ensureAll(ctx, missing) != nil {
		for _, l := range missing { // each has its own error
			l.err = d.ensureAll(ctx, []*load{l})
		}
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, l := range list {
		if l.err == nil && l.generation == d.generation {
			d.cache.Set(l.key, cached{l.user, l.now})
		}
	}
}

// ensureAll creates users, or stores that they were seen. All transactions lock them in the order of their names.
func (d *Directory) ensureAll(ctx context.Context, list []*load) error {
	slices.SortFunc(list, func(a, b *load) int { return strings.Compare(a.order(), b.order()) })
	return d.db.Write(ctx, func(tx *db.Tx) (err error) {
		for _, l := range list {
			if l.exists {
				err = l.user.touch(ctx, tx, l.now)
			} else {
				l.user, err = Ensure(ctx, tx, Use{Tenant: l.tenant, Name: l.name, At: l.now})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *load) order() string {
	if l.exists {
		return cacheKey(l.user.Tenant, l.user.Name)
	}
	return l.key
}

// readAll reads the users that exist.
func readAll(ctx context.Context, q db.Querier, list []*load) error {
	var ids []string
	var named []*load
	waiting := map[string][]*load{}
	for _, l := range list {
		if waiting[l.key] = append(waiting[l.key], l); len(waiting[l.key]) > 1 {
			continue
		}
		if l.id != "" {
			ids = append(ids, l.id)
			continue
		}
		named = append(named, l)
	}
	found, err := ByID(ctx, q, ids)
	for id, u := range found {
		for _, l := range waiting[id] {
			l.user = u
		}
	}
	if err != nil || len(named) == 0 {
		return err
	}
	var rows []string
	var args []any
	for i := range 1 << bits.Len(uint(len(named)-1)) { // a power of two, so that there are few statements to prepare
		l, n := named[min(i, len(named)-1)], len(args)
		rows = append(rows, fmt.Sprintf("($%d, $%d, $%d)", n+1, n+2, n+3))
		args = append(args, l.tenant.WorkspaceID, string(l.tenant.Environment), l.name)
	}
	rowsFound, err := q.Query(ctx, "SELECT "+columns+" FROM end_users WHERE (workspace_id, environment, name) IN (VALUES "+strings.Join(rows, ", ")+")", args...)
	return db.Each(rowsFound, err, func(r db.Row) error {
		u, err := scan(r)
		if err != nil {
			return err
		}
		for _, l := range waiting[cacheKey(u.Tenant, u.Name)] {
			l.user = u
		}
		return nil
	})
}
