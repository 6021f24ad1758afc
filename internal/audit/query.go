package audit

import (
	"context"
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
	Failed  bool // status 400 or above
	Charged bool // cost credits
}

// List returns a page of the visible entries. Neither the project filter nor a
// project's visibility has an index, because every request would pay for it.
func List(ctx context.Context, q db.Querier, vis visibility.Filter, f Filter, page db.Page) (*db.Found[*Entry], error) {
	s := db.Search{Table: "requests", Columns: entryColumns}
	if f.KeyID == "" {
		s.Where = vis.InEnvironment()
	} else {
		// A key belongs to one tenant, so its index has no tenant columns.
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
	for _, by := range []struct{ column, value string }{{"project", vis.Project}, {"model", f.Model}, {"project", f.Project}, {"ip", f.IP}, {"end_user_id", f.EndUser}} {
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
	return db.Find(ctx, q, s, page, db.Record[*Entry]{Scan: scanEntry, ID: func(e *Entry) string { return e.RequestID }})
}

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
