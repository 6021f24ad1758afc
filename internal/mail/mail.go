// Package mail is the outbox: mails are written in the transaction of what
// causes them, and sent by SMTP until the server has taken them. Without a
// server they are logged.
package mail

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// Status is what became of a mail.
type Status string

// The states of a mail. All but Waiting are final.
const (
	Waiting Status = "waiting"
	Sent    Status = "sent"   // the server has taken it
	Failed  Status = "failed" // refused, or not taken for three days
	Logged  Status = "logged" // there is no server to give it to
)

// Mail is one mail to one person.
type Mail struct {
	ID          string
	WorkspaceID string
	Kind        string // the template, such as "endpoint_paused"
	To          string
	Subject     string
	Status      Status
	CreatedAt   time.Time
	DueAt       *time.Time // the next attempt; nil when there is none
	Attempts    int64
	LastError   string
	SentAt      *time.Time

	sealed string // the text; only a claimed mail has it
}

const columns = "id, workspace_id, kind, recipient, subject, status, created_at, due_at, attempts, last_error, sent_at"

func scan(r db.Row, more ...any) (*Mail, error) {
	var m Mail
	var status string
	var created int64
	var due, sent *int64
	var lastError *string
	err := r.Scan(append([]any{&m.ID, &m.WorkspaceID, &m.Kind, &m.To, &m.Subject, &status, &created, &due, &m.Attempts, &lastError, &sent}, more...)...)
	m.Status, m.LastError = Status(status), db.Text(lastError)
	m.CreatedAt, m.DueAt, m.SentAt = time.UnixMicro(created), db.Time(due), db.Time(sent)
	return &m, err
}

// List returns a page of a workspace's mails, whatever became of them, and
// whether there are more.
func List(ctx context.Context, q db.Querier, workspaceID string, page db.Page) ([]*Mail, bool, error) {
	query := "SELECT " + columns + " FROM mails WHERE workspace_id = $1"
	args := []any{workspaceID, int64(page.Limit + 1)}
	if page.After != "" {
		query += " AND id " + page.Past() + " $3"
		args = append(args, page.After)
	}
	rows, err := q.Query(ctx, query+" ORDER BY id "+page.Order()+" LIMIT $2", args...)
	list, err := db.All(rows, err, func(r db.Row) (*Mail, error) { return scan(r) })
	list, more := db.Cut(page, list)
	return list, more, err
}

// Purge deletes mails that are finished and were made before the time given, at
// most limit of them. What must be mailed once can be mailed again after it.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM mails WHERE id IN
		(SELECT id FROM mails WHERE due_at IS NULL AND created_at < $1 ORDER BY created_at LIMIT $2)`, before.UnixMicro(), limit)
}
