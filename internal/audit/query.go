package audit

import (
	"context"
	"slices"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Filter selects entries. Time and key have an index. The other fields are
// matched by scanning a bounded number of entries.
type Filter struct {
	Since   time.Time // inclusive; zero for no lower bound
	Until   time.Time // exclusive; zero for now
	KeyID   string
	Model   string
	Project string
	IP      string
	EndUser string // Turnpike's ID
	Status  int
	Charged bool // cost credits
	Search  Search
	MinID   string // entries with smaller IDs don't match; empty for all
}

// Search selects entries by the dashboard's search box. In its texts, * stands
// for any characters.
type Search struct {
	KeyIDs   []string // any of them
	KeyHint  string
	Model    string // that was called or requested
	Provider string
	Project  string
	IP       string
	Method   string
	Path     string
	Error    string // its code
	Status   db.Range
	Latency  db.Range // in microseconds
	Cost     db.Range // in millionths of a credit, simulated or not
}

func (s Search) conditions(c *db.Conditions) {
	if len(s.KeyIDs) > 0 {
		c.AddIn("key_id", s.KeyIDs)
	}
	for _, by := range []struct{ column, pattern string }{{"key_hint", s.KeyHint}, {"provider", s.Provider}, {"project", s.Project}, {"ip", s.IP},
		{"method", s.Method}, {"path", s.Path}, {"error_code", s.Error}} {
		c.AddMatch(by.pattern, by.column)
	}
	c.AddMatch(s.Model, "model", "requested_model")
	c.AddRange("status", s.Status)
	c.AddRange("latency_us", s.Latency)
	c.AddRange("credits + simulated_credits", s.Cost)
}

// List returns a page of the visible entries. Neither the project filter nor a
// project's visibility has an index, because every request would pay for it.
func List(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Entry], error) {
	s, err := f.search(ctx, q, vis)
	if err != nil || s == nil {
		return &db.Found[*Entry]{}, err
	}
	return db.Find(ctx, q, *s, page, db.Record[*Entry]{Scan: scanEntry, ID: func(e *Entry) string { return e.RequestID }})
}

// Count counts the visible entries over time, as far as a bounded scan goes.
func Count(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, t db.Timeline) (*db.TimelineCounts, error) {
	s, err := f.search(ctx, q, vis)
	if err != nil || s == nil {
		return &db.TimelineCounts{Steps: make([]db.StepCount, t.Steps)}, err
	}
	t.Failed = "status >= 400"
	return db.CountRows(ctx, q, *s, t)
}

// search returns nil if the filter can't match.
func (f Filter) search(ctx context.Context, q db.Querier, vis visibility.Filter) (*db.Search, error) {
	s := &db.Search{Table: "requests", Columns: entryColumns}
	if len(f.Search.KeyIDs) == 1 && f.KeyID == "" {
		f.KeyID, f.Search.KeyIDs = f.Search.KeyIDs[0], nil
	}
	if f.KeyID == "" {
		s.Where = vis.InEnvironment()
	} else {
		// A key belongs to one tenant, so its index has no tenant columns.
		theirs, err := keyBelongs(ctx, q, vis, f.KeyID)
		if err != nil || !theirs {
			return nil, err
		}
		s.Where.Add("key_id =", f.KeyID)
	}
	if !f.Since.IsZero() {
		s.Where.Bound(">=", ids.Floor(ids.Request, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Bound("<", ids.Floor(ids.Request, f.Until))
	}
	if f.MinID != "" {
		s.Where.Bound(">=", f.MinID)
	}
	for _, by := range []struct{ column, value string }{{"project", vis.Project}, {"model", f.Model}, {"project", f.Project}, {"ip", f.IP}, {"end_user_id", f.EndUser}} {
		if by.value != "" {
			s.Filter.Add(by.column+" =", by.value)
		}
	}
	if f.Status != 0 {
		s.Filter.Add("status =", int64(f.Status))
	}
	if f.Charged {
		s.Filter.Add("credits >", int64(0))
	}
	f.Search.conditions(&s.Filter)
	return s, nil
}

// Matches reports whether an entry is visible and matches the filter, as List does in
// SQL.
func (f Filter) Matches(vis visibility.Filter, e *Entry) bool {
	for _, by := range []struct{ value, has string }{{f.KeyID, e.KeyID}, {f.Model, e.Model}, {f.Project, e.Project}, {f.IP, e.IP}, {f.EndUser, e.EndUser}} {
		if by.value != "" && by.value != by.has {
			return false
		}
	}
	return vis.Includes(e.Tenant, e.Project) && f.Range().includes(e.RequestID) &&
		(f.Status == 0 || f.Status == e.Status) && (!f.Charged || e.Credits > 0) && f.Search.matches(e)
}

// Range returns the IDs that can match.
func (f Filter) Range() (r IDRange) {
	if !f.Since.IsZero() {
		r.From = ids.Floor(ids.Request, f.Since)
	}
	if !f.Until.IsZero() {
		r.To = ids.Floor(ids.Request, f.Until)
	}
	r.From = max(r.From, f.MinID)
	return r
}

func (s Search) matches(e *Entry) bool {
	if len(s.KeyIDs) > 0 && !slices.Contains(s.KeyIDs, e.KeyID) {
		return false
	}
	for _, by := range []struct{ pattern, has string }{{s.KeyHint, e.KeyHint}, {s.Provider, e.Provider}, {s.Project, e.Project}, {s.IP, e.IP},
		{s.Method, e.Method}, {s.Path, e.Path}, {s.Error, e.ErrorCode}} {
		if by.pattern != "" && !matchText(by.pattern, by.has) {
			return false
		}
	}
	return (s.Model == "" || matchText(s.Model, e.Model) || matchText(s.Model, e.Requested)) &&
		inRange(s.Status, int64(e.Status)) && inRange(s.Latency, e.Latency.Microseconds()) && s.Cost.Includes(int64(e.Credits+e.SimulatedCredits))
}

// matchText reports whether a text matches a pattern. A missing text, which is stored as NULL, matches none.
func matchText(pattern, text string) bool { return text != "" && db.Match(pattern, text) }

// inRange reports whether a value that may be missing, which is stored as NULL, is in a range.
func inRange(r db.Range, n int64) bool { return r == (db.Range{}) || n != 0 && r.Includes(n) }

// keyBelongs reports whether a key belongs to the tenant, according to its
// newest entry. It returns false for keys without entries.
func keyBelongs(ctx context.Context, q db.Querier, vis visibility.Filter, keyID string) (bool, error) {
	var t visibility.Tenant
	err := q.QueryRow(ctx, "SELECT workspace_id, environment FROM requests WHERE key_id = $1 ORDER BY id DESC LIMIT 1", keyID).Scan(&t.WorkspaceID, &t.Environment)
	return t == vis.Tenant, db.IgnoreNotFound(err)
}

// Get returns a visible entry.
func Get(ctx context.Context, q db.Querier, vis visibility.Filter, requestID string) (*Entry, error) {
	e, err := db.FindOne(ctx, q, db.Search{Table: "requests", Columns: entryColumns, Where: vis.Rows()}, requestID, scanEntry)
	return e, db.OrNoSuch(err, "request", requestID)
}
