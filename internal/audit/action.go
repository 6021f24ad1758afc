package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

// Actor performs an administrative action: a key ("key_…"), a person ("usr_…"),
// the operator at the command line, or the system itself.
type Actor struct {
	Name      string
	IP        string
	RequestID string
}

// Operator is the actor of commands that run directly on the database.
var Operator = Actor{Name: "operator"}

// Action is an entry in the admin log.
type Action struct {
	ID                string
	visibility.Tenant        // Environment is empty for actions that affect both
	Project           string // the target's project, if it has one
	Actor             string
	Action            string // such as "key.created"
	Target            string // the ID of the changed object
	Detail            json.RawMessage
	IP                string
	RequestID         string
	CreatedAt         time.Time
}

// Change is what someone changes in a record that they can see. Apply gets the record as it is under its lock, and
// changes only what was asked: what a caller has read before may be outdated.
type Change[T any] struct {
	By         Actor
	Visibility visibility.Filter
	ID         string
	Apply      func(*T) error
}

// Log records an action in its transaction. The detail must not contain
// secrets. Log masks API keys in it, for example in a URL.
func (by Actor) Log(ctx context.Context, tx *db.Tx, a Action, detail any, now time.Time) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("admin log detail: %w", err)
	}
	_, err = tx.Exec(ctx, db.Insert("admin_actions", actionColumns),
		ids.New(ids.AdminAction), a.WorkspaceID, db.OrNull(a.Environment), db.OrNull(a.Project), by.Name, a.Action, a.Target, keyring.Mask(string(text)),
		db.OrNull(by.IP), db.OrNull(by.RequestID), now.UnixMicro())
	return db.Wrap(err, "admin log")
}

const actionColumns = "id, workspace_id, environment, project, actor, action, target, detail, ip, request_id, created_at"

var scanAction = db.Scanner(func(a *Action) []any {
	return []any{&a.ID, &a.WorkspaceID, &a.Environment, &a.Project, &a.Actor, &a.Action, &a.Target, &a.Detail, &a.IP, &a.RequestID, &a.CreatedAt}
})

// ActionFilter selects actions. Empty fields match all. In texts, * stands for
// any characters.
type ActionFilter struct {
	Since, Until time.Time // Until is exclusive
	Actors       []string  // any of them
	Action       string
	Target       string
}

// FindActions returns a page of the visible actions that match a filter. It
// scans a bounded number of entries, because the index covers both
// environments.
func FindActions(ctx context.Context, q db.Querier, vis visibility.Filter, f ActionFilter, page db.Page) (*db.Found[*Action], error) {
	s := db.Search{Table: "admin_actions", Columns: actionColumns}
	s.Where.Add("workspace_id =", vis.WorkspaceID)
	if vis.Shared {
		s.Filter.Add("(environment = ? OR environment IS NULL)", vis.Environment)
	} else {
		s.Filter.Add("environment =", vis.Environment)
	}
	if !f.Since.IsZero() {
		s.Where.Bound(">=", ids.Floor(ids.AdminAction, f.Since))
	}
	if !f.Until.IsZero() {
		s.Where.Bound("<", ids.Floor(ids.AdminAction, f.Until))
	}
	if vis.Project != "" {
		s.Filter.Add("project =", vis.Project)
	}
	if len(f.Actors) > 0 {
		s.Filter.AddIn("actor", f.Actors)
	}
	s.Filter.AddMatch(f.Action, "action")
	s.Filter.AddMatch(f.Target, "target")
	return db.Find(ctx, q, s, page, db.Record[*Action]{Scan: scanAction, ID: func(a *Action) string { return a.ID }})
}

// ServerActions returns the newest actions that belong to no workspace, for operators.
func ServerActions(ctx context.Context, q db.Querier, limit int) ([]*Action, error) {
	s := db.Search{Table: "admin_actions", Columns: actionColumns}
	s.Where.Add("workspace_id =", "")
	found, err := db.Find(ctx, q, s, db.Page{Limit: limit}, db.Record[*Action]{Scan: scanAction, ID: func(a *Action) string { return a.ID }})
	if err != nil {
		return nil, err
	}
	return found.Rows, nil
}
