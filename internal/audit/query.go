package audit

import (
	"context"
	"errors"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
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

// List returns a page of a workspace's entries in one environment.
func List(ctx context.Context, q db.Querier, workspaceID, environment string, f Filter, page db.Page) (*db.Found[*Entry], error) {
	s := db.Search{Table: "requests", Columns: entryColumns}
	workspace, env := "workspace_id =", "environment ="
	if f.KeyID != "" {
		// By the key's index: SQLite would take the tenant's, which fits two
		// columns, and look through all entries of the tenant.
		workspace, env = "workspace_id || '' =", "environment || '' ="
		s.Where.Add("key_id =", f.KeyID)
	}
	s.Where.Add(workspace, workspaceID)
	s.Where.Add(env, environment)
	if !f.Since.IsZero() {
		s.Where.Add("id >=", ids.Floor(ids.Request, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Add("id <", ids.Floor(ids.Request, f.Until))
	}
	for _, by := range []struct{ column, value string }{{"model", f.Model}, {"project", f.Project}, {"ip", f.IP}} {
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

// Get returns one entry.
func Get(ctx context.Context, q db.Querier, workspaceID, environment, requestID string) (*Entry, error) {
	e, err := scanEntry(q.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1 AND workspace_id = $2 AND environment = $3",
		requestID, workspaceID, environment))
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.NoSuch("request", requestID)
	}
	return e, err
}
