package audit

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// Filter selects entries. Time and key have an index; the others are found by
// looking through a bounded number of entries.
type Filter struct {
	Since   time.Time // inclusive; zero: from the beginning
	Until   time.Time // exclusive; zero: until now
	KeyID   string
	Model   string
	Project string
	IP      string
	Status  int
	Failed  bool // a status of 400 and above
	Charged bool // for credits
}

// List returns a page of the visible entries. Like the filter by project, a
// project's visibility has no index: each request would pay for it.
func List(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Entry], error) {
	s := db.Search{Table: "requests", Columns: entryColumns}
	if f.KeyID == "" {
		s.Where = vis.InEnvironment()
	} else {
		// A key has one tenant, so its index does without them.
		theirs, err := keyBelongs(ctx, q, vis, f.KeyID)
		if err != nil || !theirs {
			return &db.Found[*Entry]{}, err
		}
		s.Where.Add("key_id =", f.KeyID)
	}
	if !f.Since.IsZero() {
		s.Where.Add("id >=", ids.Floor(ids.Request, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Add("id <", ids.Floor(ids.Request, f.Until))
	}
	for _, by := range []struct{ column, value string }{{"project", vis.Project}, {"model", f.Model}, {"project", f.Project}, {"ip", f.IP}} {
		if by.value != "" {
			s.Filter.Add(by.column+" =", by.value)
		}
	}
	if f.Status != 0 {
		s.Filter.Add("status =", int64(f.Status))
	}
	if f.Failed {
		s.Filter.Add("status >=", int64(400))
	}
	if f.Charged {
		s.Filter.Add("credits >", int64(0))
	}
	return db.Find(ctx, q, s, page, scanEntry, func(e *Entry) string { return e.RequestID })
}

// keyBelongs reports whether a key is the tenant's, by its newest entry. Of one
// that has none there is nothing to be seen.
func keyBelongs(ctx context.Context, q db.Querier, vis visibility.Filter, keyID string) (bool, error) {
	var workspace, env string
	err := q.QueryRow(ctx, "SELECT workspace_id, environment FROM requests WHERE key_id = $1 ORDER BY id DESC LIMIT 1", keyID).Scan(&workspace, &env)
	if errors.Is(err, db.ErrNotFound) {
		return false, nil
	}
	return workspace == vis.WorkspaceID && env == vis.Environment, err
}

// Get returns a visible entry.
func Get(ctx context.Context, q db.Querier, vis visibility.Filter, requestID string) (*Entry, error) {
	e, err := db.FindOne(ctx, q, db.Search{Table: "requests", Columns: entryColumns, Where: vis.Rows()}, requestID, "", scanEntry)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("request", requestID)
	}
	return e, err
}
