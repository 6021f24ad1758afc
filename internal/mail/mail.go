// Package mail is the outbox for emails. An email is stored in the transaction of
// its cause, and sent by SMTP until a mail server accepts it. Without a mail server,
// emails are only logged.
package mail

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// Status is the state of an email.
type Status string

// The states. All but Waiting are final.
const (
	Waiting Status = "waiting"
	Sent    Status = "sent"   // accepted by the mail server
	Failed  Status = "failed" // rejected, or not accepted within three days
	Logged  Status = "logged" // no mail server is configured
)

// Mail is an email to one recipient.
type Mail struct {
	ID          string
	WorkspaceID string
	Kind        string // the template, such as "endpoint_paused"
	To          string
	Subject     string
	Status      Status
	CreatedAt   time.Time
	DueAt       *time.Time // the next attempt; nil in a final state
	Attempts    int64
	LastError   string
	SentAt      *time.Time

	sealed string // the text; set only for a claimed email
}

const columns = "id, workspace_id, kind, recipient, subject, status, created_at, due_at, attempts, last_error, sent_at"

func (m *Mail) fields() []any {
	return []any{&m.ID, &m.WorkspaceID, &m.Kind, &m.To, &m.Subject, &m.Status, &m.CreatedAt, &m.DueAt, &m.Attempts, &m.LastError, &m.SentAt}
}

// List returns a workspace's newest emails, in all states.
func List(ctx context.Context, q db.Querier, workspaceID string, limit int) ([]*Mail, error) {
	rows, err := q.Query(ctx, "SELECT "+columns+" FROM mails WHERE workspace_id = $1 ORDER BY id DESC LIMIT $2", workspaceID, int64(limit))
	return db.All(rows, err, func(r db.Row) (*Mail, error) {
		m := new(Mail)
		return m, db.Scan(r, m.fields()...)
	})
}

// Purge deletes up to limit finished emails that were created before a time. An
// email with the same Once can then be sent again.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM mails WHERE id IN
		(SELECT id FROM mails WHERE due_at IS NULL AND created_at < $1 ORDER BY created_at LIMIT $2)`, before.UnixMicro(), limit)
}
