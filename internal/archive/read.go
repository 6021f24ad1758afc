package archive

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/parquet"
	"turnpike/internal/visibility"
)

// scanLimit is how many archived entries a page scans, as in the database.
const scanLimit = 10_000

// Border returns the time before which the log is only in the archive, or the zero time.
func (a *Archive) Border(ctx context.Context) (time.Time, error) {
	last, err := db.Value[*string](a.DB.QueryRow(ctx, "SELECT max(day) FROM log_archive_days WHERE state IN ($1, $2)", string(dayDropping), string(dayDropped)))
	if err != nil || last == nil {
		return time.Time{}, db.Wrap(err, "read the archive")
	}
	return day(*last).end(), nil
}

// List is audit.List, continued in the archive.
func (a *Archive) List(ctx context.Context, q db.Querier, vis visibility.Filter, f audit.Filter, page db.Page) (*db.Found[*audit.Entry], error) {
	if a == nil {
		return audit.List(ctx, q, vis, f, page)
	}
	for {
		border, err := a.Border(ctx)
		if err != nil {
			return nil, err
		}
		found, err := a.listFrom(ctx, q, &query{Archive: a, vis: vis, filter: f, border: border}, page)
		if err != nil {
			return nil, err
		}
		// If the border has moved meanwhile, entries may have been deleted before they were read.
		if now, err := a.Border(ctx); err != nil || now.Equal(border) {
			return found, err
		}
	}
}

// Export is audit.Export, continued in the archive.
func (a *Archive) Export(ctx context.Context, q db.Querier, vis visibility.Filter, f audit.Filter, page db.Page) iter.Seq2[[]byte, error] {
	return audit.Export(func(page db.Page) (*db.Found[*audit.Entry], error) { return a.List(ctx, q, vis, f, page) }, page)
}

// Get is audit.Get, continued in the archive.
func (a *Archive) Get(ctx context.Context, q db.Querier, vis visibility.Filter, requestID string) (*audit.Entry, error) {
	e, err := audit.Get(ctx, q, vis, requestID)
	if a == nil || err == nil || !ids.Valid(ids.Request, requestID) {
		return e, err
	}
	border, failed := a.Border(ctx)
	if failed != nil || !ids.Time(requestID).Before(border) {
		return nil, errors.Join(failed, err)
	}
	s := &query{Archive: a, vis: vis, border: border}
	found, failed := s.scan(ctx, db.Page{Limit: 1}, audit.IDRange{From: requestID, To: requestID + "\x01"})
	switch {
	case failed != nil:
		return nil, failed
	case len(found.Rows) == 0:
		return nil, err
	}
	return found.Rows[0], nil
}

// query is a search in the archive.
type query struct {
	*Archive
	vis    visibility.Filter
	filter audit.Filter
	border time.Time // zero if nothing is in the archive alone
}

// ids returns the IDs in the archive that can match.
func (s *query) ids() audit.IDRange {
	r := s.filter.Range()
	r.From = max(r.From, ids.Floor(ids.Request, s.oldestDay().start()))
	if border := ids.Floor(ids.Request, s.border); r.To == "" || r.To > border {
		r.To = border
	}
	return r
}

func (a *Archive) listFrom(ctx context.Context, q db.Querier, s *query, page db.Page) (*db.Found[*audit.Entry], error) {
	stored := s.filter
	if !s.border.IsZero() {
		stored.MinID = max(stored.MinID, ids.Floor(ids.Request, s.border))
	}
	inDatabase := func(page db.Page) (*db.Found[*audit.Entry], error) { return audit.List(ctx, q, s.vis, stored, page) }
	inArchive := func(page db.Page) (*db.Found[*audit.Entry], error) { return s.page(ctx, page) }
	switch {
	case s.border.IsZero():
		return inDatabase(page)
	case page.Asc:
		return chain(page, inArchive, inDatabase)
	case page.After != "" && page.After <= stored.MinID:
		return inArchive(page)
	}
	return chain(page, inDatabase, inArchive)
}

type pageFunc = func(db.Page) (*db.Found[*audit.Entry], error)

// chain continues a page of one list in another.
func chain(page db.Page, first, second pageFunc) (*db.Found[*audit.Entry], error) {
	found, err := first(page)
	if err != nil || found.More {
		return found, err
	}
	rest := page
	if rest.Limit -= len(found.Rows); rest.Limit == 0 {
		rest.Limit = 1 // only to find out whether there are more
		more, err := second(rest)
		if err == nil {
			found.More = len(more.Rows) > 0 || more.More
		}
		return found, err
	}
	more, err := second(rest)
	if err != nil {
		return nil, err
	}
	if more.Cursor == "" {
		more.Cursor = found.Cursor
	}
	more.Rows = slices.Concat(found.Rows, more.Rows)
	return more, nil
}

// page returns a page of the archive.
func (s *query) page(ctx context.Context, page db.Page) (*db.Found[*audit.Entry], error) {
	r := s.ids()
	switch {
	case page.After == "":
	case page.Asc:
		r.From = max(r.From, page.After+"\x01")
	default:
		r.To = min(r.To, page.After)
	}
	return s.scan(ctx, page, r)
}

// scan reads entries until the page is full or the limit is reached. It repeats if a file was replaced
// meanwhile.
func (s *query) scan(ctx context.Context, page db.Page, r audit.IDRange) (*db.Found[*audit.Entry], error) {
	found, err := s.scanOnce(ctx, page, r)
	if errors.Is(err, files.ErrGone) {
		found, err = s.scanOnce(ctx, page, r)
	}
	return found, err
}

func (s *query) scanOnce(ctx context.Context, page db.Page, r audit.IDRange) (*db.Found[*audit.Entry], error) {
	out, looked := &db.Found[*audit.Entry]{}, 0
	for r.From < r.To {
		f, err := s.nextFile(ctx, r, page.Asc)
		if err != nil || f == nil {
			return out, err
		}
		for group, err := range s.groups(ctx, f, r, page.Asc) {
			if err != nil {
				return nil, err
			}
			for _, e := range group {
				if looked == scanLimit {
					out.More, out.Looked = true, scanLimit
					return out, nil
				}
				if s.filter.Matches(s.vis, e) {
					if len(out.Rows) == page.Limit {
						out.More, out.Cursor = true, out.Rows[page.Limit-1].RequestID
						return out, nil
					}
					out.Rows = append(out.Rows, clone(e))
				}
				looked++
				out.Cursor = e.RequestID
			}
		}
		if page.Asc {
			r.From = f.LastID + "\x01"
		} else {
			r.To = f.FirstID
		}
	}
	return out, nil
}

// nextFile returns the tenant's first file with IDs in a range, or the last one if the order is descending.
func (s *query) nextFile(ctx context.Context, r audit.IDRange, asc bool) (*file, error) {
	order := "f.first_id DESC"
	if asc {
		order = "f.last_id"
	}
	f, err := scanFile(s.DB.QueryRow(ctx, "SELECT "+fileColumns+completeFiles+
		"WHERE f.workspace_id = $1 AND f.environment = $2 AND f.last_id >= $3 AND f.first_id < $4 ORDER BY "+order+" LIMIT 1",
		s.vis.WorkspaceID, string(s.vis.Environment), r.From, r.To))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	return f, db.Wrap(err, "read the archive")
}

// groups returns the entries of a file in a range, by row groups and in order.
func (s *query) groups(ctx context.Context, f *file, r audit.IDRange, asc bool) iter.Seq2[[]*audit.Entry, error] {
	return func(yield func([]*audit.Entry, error) bool) {
		opened, err := s.cache.file(f.Object, object{ctx, s.storage, f.Object}, func() (*parquet.File, error) { return s.open(ctx, f) })
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range opened.Groups() {
			at := i
			if !asc {
				at = opened.Groups() - 1 - i
			}
			if low, high := opened.TextBounds(at, requestID); high < r.From || low >= r.To {
				continue
			}
			if !s.mayMatch(opened, at) {
				continue
			}
			if !s.useGroup(ctx, groupKey{f.Object, at}, opened, func(group []*audit.Entry, err error) bool {
				from, _ := slices.BinarySearchFunc(group, r.From, compareID)
				to, _ := slices.BinarySearchFunc(group, r.To, compareID)
				some := slices.Clone(group[from:to])
				if !asc {
					slices.Reverse(some)
				}
				return yield(some, err) && err == nil
			}) {
				return
			}
		}
	}
}

// useGroup calls use with the entries of a row group, which must not be kept.
func (s *query) useGroup(ctx context.Context, key groupKey, f *parquet.File, use func([]*audit.Entry, error) bool) bool {
	size := min(f.GroupSize(key.group)+f.GroupRows(key.group)*entryMemory, readMemory)
	if err := s.cache.memory.Acquire(ctx, size); err != nil {
		return use(nil, err)
	}
	defer s.cache.memory.Release(size)
	return use(s.cache.group(key, func() ([]*audit.Entry, error) { return readEntries(f, key.group) }))
}

// mayMatch reports whether a row group can have matching entries, by the bounds of its columns.
func (s *query) mayMatch(f *parquet.File, group int) bool {
	for _, by := range []struct{ column, value string }{{"key_id", s.filter.KeyID}, {"model", s.filter.Model}, {"project", s.filter.Project}, {"project", s.vis.Project},
		{"ip", s.filter.IP}, {"user_id", s.filter.EndUser}} {
		low, high := f.TextBounds(group, positions[by.column])
		if by.value != "" && high != "" && (by.value < low || by.value > high) {
			return false
		}
	}
	return true
}

func compareID(e *audit.Entry, id string) int {
	switch {
	case e.RequestID < id:
		return -1
	case e.RequestID > id:
		return 1
	}
	return 0
}

const (
	// A client that pages through the archive reads the same row group repeatedly. A group takes up to ten
	// megabytes, and the metadata of a file a few hundred kilobytes.
	cachedGroups = 4
	cachedFiles  = 16
	// cacheTime is how long both are kept after the last use.
	cacheTime = time.Minute
	// readMemory limits the groups that all requests decode and search at a time, in bytes. One has about
	// 15 megabytes, and more with large metadata of scoped tokens.
	readMemory = 64 << 20
	// entryMemory is what an entry takes besides its texts: the values of its columns, and the entry.
	entryMemory = 1200
)

type groupKey struct {
	object string
	group  int
}

// cache holds the last groups and files in use. Its entries must not be changed.
type cache struct {
	mu     sync.Mutex
	groups recent[groupKey, []*audit.Entry]
	files  recent[string, *parquet.File]
	forget *time.Timer
	memory *semaphore.Weighted // of readMemory
}

// recent holds the last values in use, the newest first.
type recent[K comparable, V any] struct {
	keys   []K
	values []V
}

func (r *recent[K, V]) get(key K) (v V, found bool) {
	i := slices.Index(r.keys, key)
	if i < 0 {
		return v, false
	}
	v = r.values[i]
	r.keys, r.values = slices.Delete(r.keys, i, i+1), slices.Delete(r.values, i, i+1)
	r.put(key, v, len(r.keys)+1)
	return v, true
}

func (r *recent[K, V]) put(key K, v V, limit int) {
	r.keys, r.values = slices.Insert(r.keys, 0, key), slices.Insert(r.values, 0, v)
	if len(r.keys) > limit {
		r.keys, r.values = slices.Delete(r.keys, limit, len(r.keys)), slices.Delete(r.values, limit, len(r.values))
	}
}

// touch lets the cache forget everything later. The caller holds the lock.
func (c *cache) touch() {
	if c.forget == nil {
		c.forget = time.AfterFunc(cacheTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.groups, c.files = recent[groupKey, []*audit.Entry]{}, recent[string, *parquet.File]{}
		})
		return
	}
	c.forget.Reset(cacheTime)
}

func (c *cache) file(name string, from object, open func() (*parquet.File, error)) (*parquet.File, error) {
	c.mu.Lock()
	f, found := c.files.get(name)
	c.touch()
	c.mu.Unlock()
	if found {
		return f.From(from), nil
	}
	f, err := open()
	if err == nil {
		c.mu.Lock()
		c.files.put(name, f, cachedFiles)
		c.mu.Unlock()
	}
	return f, err
}

func (c *cache) group(key groupKey, read func() ([]*audit.Entry, error)) ([]*audit.Entry, error) {
	c.mu.Lock()
	g, found := c.groups.get(key)
	c.mu.Unlock()
	if found {
		return g, nil
	}
	g, err := read()
	if err == nil {
		c.mu.Lock()
		c.groups.put(key, g, cachedGroups)
		c.mu.Unlock()
	}
	return g, err
}
