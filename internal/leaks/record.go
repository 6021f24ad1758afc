package leaks

import (
	"context"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/access"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

const (
	// IDPrefix is that of the notes' ids.
	IDPrefix = "leak_"
	// maxNotes bounds what a reporter who repeats himself can make us keep.
	maxNotes = 100
	maxURL   = 2048
)

// Note is a report as it is kept, for the workspace's people.
type Note struct {
	ID          string
	WorkspaceID string
	Environment string
	KeyID       string
	TokenID     string // empty for a key
	Hint        string
	Source      Source
	URL         string // as the reporter said; empty if he did not
	Outcome     Outcome
	ReportedAt  time.Time
}

// note keeps a report, in the transaction of what it led to.
func (s *Service) note(ctx context.Context, tx *db.Tx, r Report, e *access.Exposed, outcome Outcome) error {
	n := Note{ID: ids.New(IDPrefix), Hint: e.Hint}
	if t := e.Token; t != nil {
		n.WorkspaceID, n.Environment, n.KeyID, n.TokenID = t.WorkspaceID, string(t.Environment), t.KeyID, t.ID
	} else {
		n.WorkspaceID, n.Environment, n.KeyID = e.Key.WorkspaceID, string(e.Key.Environment), e.Key.ID
	}
	if outcome == Already || outcome == Noted {
		var have int64
		err := tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM leak_reports WHERE key_id = $1 LIMIT $2) AS noted", n.KeyID, int64(maxNotes)).Scan(&have)
		if err != nil || have == maxNotes {
			return err
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO leak_reports (id, workspace_id, environment, key_id, token_id, hint, source, url, outcome, reported_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, n.ID, n.WorkspaceID, n.Environment, n.KeyID, db.OrNull(n.TokenID), n.Hint,
		string(r.Source), db.OrNull(cleanURL(r.URL)), string(outcome), s.Now().UnixMicro())
	return err
}

const noteSelect = "SELECT id, workspace_id, environment, key_id, token_id, hint, source, url, outcome, reported_at FROM leak_reports"

// List returns a page of an environment's reports, newest first unless asked
// otherwise, and whether there are more.
func List(ctx context.Context, q db.Querier, workspaceID, environment string, page db.Page) ([]*Note, bool, error) {
	query := noteSelect + " WHERE workspace_id = $1 AND environment = $2"
	args := []any{workspaceID, environment, int64(page.Limit + 1)}
	if page.After != "" {
		query += " AND id " + page.Past() + " $4"
		args = append(args, page.After)
	}
	rows, err := q.Query(ctx, query+" ORDER BY id "+page.Order()+" LIMIT $3", args...)
	list, err := db.All(rows, err, scanNote)
	list, more := db.Cut(page, list)
	return list, more, err
}

// ListByKey returns the newest reports of a key and of its tokens.
func ListByKey(ctx context.Context, q db.Querier, keyID string, limit int) ([]*Note, error) {
	rows, err := q.Query(ctx, noteSelect+" WHERE key_id = $1 ORDER BY id DESC LIMIT $2", keyID, int64(limit))
	return db.All(rows, err, scanNote)
}

func scanNote(r db.Row) (*Note, error) {
	var n Note
	var token, url *string
	var source, outcome string
	var at int64
	err := r.Scan(&n.ID, &n.WorkspaceID, &n.Environment, &n.KeyID, &token, &n.Hint, &source, &url, &outcome, &at)
	n.TokenID, n.URL = db.Text(token), db.Text(url)
	n.Source, n.Outcome, n.ReportedAt = Source(source), Outcome(outcome), time.UnixMicro(at)
	return &n, err
}

// Purge deletes reports from before the time given, a batch at a time.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM leak_reports WHERE id IN
		(SELECT id FROM leak_reports WHERE id < $1 ORDER BY id LIMIT $2)`, ids.Floor(IDPrefix, before), limit)
}

// cleanURL makes a stranger's address fit to be kept and shown: a web address
// without a login and without a query, which is where signatures and tokens
// are, and without keys of ours. What is none becomes empty.
func cleanURL(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || len(s) > maxURL || !utf8.ValidString(s) {
		return ""
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	clean := url.URL{Scheme: u.Scheme, Host: keyring.Mask(u.Host), Path: keyring.Mask(u.Path), Fragment: keyring.Mask(u.Fragment)}
	out := clean.String()
	if len(out) > maxURL || strings.Contains(out, "%00") {
		return ""
	}
	return out
}
