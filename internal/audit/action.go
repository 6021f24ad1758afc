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

// Actor is who does an administrative act: a key ("key_…"), a person
// ("usr_…"), the operator at the command line, or the system itself.
type Actor struct {
	Name      string
	IP        string
	RequestID string
}

// Operator is whoever runs commands on the database.
var Operator = Actor{Name: "operator"}

// Action is an administrative act as the log keeps it.
type Action struct {
	ID          string
	WorkspaceID string
	Environment string // empty for what concerns both
	Project     string // of the target; empty if it has none
	Actor       string
	Action      string // such as "key.created"
	Target      string // the id it was done to
	Detail      json.RawMessage
	IP          string
	RequestID   string
	CreatedAt   time.Time
}

// LogAction records an act in the transaction that does it, so that neither
// can be without the other. Detail must hold no secret; API keys that a caller
// put where we do not look for them, such as into an address, are masked.
func LogAction(ctx context.Context, tx *db.Tx, by Actor, a Action, detail any, now time.Time) error {
	text, err := json.Marshal(detail)
	if err != nil {
		return fmt.Errorf("admin log detail: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO admin_actions
		(id, workspace_id, environment, project, actor, action, target, detail, ip, request_id, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		ids.New(ids.AdminAction), a.WorkspaceID, db.OrNull(a.Environment), db.OrNull(a.Project), by.Name, a.Action, a.Target, keyring.Mask(string(text)),
		db.OrNull(by.IP), db.OrNull(by.RequestID), now.UnixMicro())
	if err != nil {
		return fmt.Errorf("admin log: %w", err)
	}
	return nil
}

const actionColumns = "id, workspace_id, environment, project, actor, action, target, detail, ip, request_id, created_at"

func scanAction(r db.Row) (*Action, error) {
	var a Action
	var env, project, ip, request *string
	var detail string
	var created int64
	err := r.Scan(&a.ID, &a.WorkspaceID, &env, &project, &a.Actor, &a.Action, &a.Target, &detail, &ip, &request, &created)
	a.Environment, a.Project, a.IP, a.RequestID = db.Text(env), db.Text(project), db.Text(ip), db.Text(request)
	a.Detail = json.RawMessage(detail)
	a.CreatedAt = time.UnixMicro(created)
	return &a, err
}

// ActionFilter selects acts; what is empty selects all.
type ActionFilter struct {
	Actor  string
	Action string
	Target string
}

// FindActions returns a page of the visible actions that a filter selects. It
// scans a bounded number of entries, because the index covers both environments.
func FindActions(ctx context.Context, q db.Querier, vis visibility.Filter, f ActionFilter, page db.Page) (*db.Found[*Action], error) {
	s := db.Search{Table: "admin_actions", Columns: actionColumns}
	s.Where.Add("workspace_id =", vis.WorkspaceID)
	if vis.Shared {
		s.Filter.Add("(environment = ? OR environment IS NULL)", vis.Environment)
	} else {
		s.Filter.Add("environment =", vis.Environment)
	}
	for _, by := range []struct{ column, value string }{{"project", vis.Project}, {"actor", f.Actor}, {"action", f.Action}, {"target", f.Target}} {
		if by.value != "" {
			s.Filter.Add(by.column+" =", by.value)
		}
	}
	return db.Find(ctx, q, s, page, scanAction, func(a *Action) string { return a.ID })
}
