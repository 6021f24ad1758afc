package leaks

import (
	"context"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
)

const (
	// IDPrefix is the prefix of the notes' IDs.
	IDPrefix = "leak_"
	// maxNotes limits the stored repetitions for a key.
	maxNotes = 100
	maxURL   = 2048
)

// Note is a stored report.
type Note struct {
	ID string
	accounts.Tenant
	KeyID      string // or the ID of an endpoint
	TokenID    string // empty for a key
	Hint       string
	Source     Source
	URL        string // according to the reporter; may be empty
	Location   string // in what the server scanned; may be empty
	Outcome    Outcome
	ReportedAt time.Time
}

// IsEndpoint reports whether the secret is a webhook secret.
func (n *Note) IsEndpoint() bool { return strings.HasPrefix(n.KeyID, ids.Endpoint) }

// storeNote stores a report in the transaction of its outcome.
func (s *Service) storeNote(ctx context.Context, tx *db.Tx, r Report, n *Note) error {
	if n.Outcome == Already || n.Outcome == Noted {
		var have int64
		err := tx.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM leak_reports WHERE key_id = $1 LIMIT $2) AS noted", n.KeyID, int64(maxNotes)).Scan(&have)
		if err != nil || have == maxNotes {
			return err
		}
	}
	_, err := tx.Exec(ctx, db.Insert("leak_reports", noteColumns), ids.New(IDPrefix), n.WorkspaceID, n.Environment, n.KeyID, db.OrNull(n.TokenID), n.Hint,
		string(r.Source), db.OrNull(cleanURL(r.URL)), db.OrNull(r.cleanLocation()), string(n.Outcome), s.Now().UnixMicro())
	return err
}

const noteColumns = "id, workspace_id, environment, key_id, token_id, hint, source, url, location, outcome, reported_at"

// List returns a page of an environment's reports, and whether there are more.
func List(ctx context.Context, q db.Querier, t accounts.Tenant, page db.Page) ([]*Note, bool, error) {
	s := db.Search{Table: "leak_reports", Columns: noteColumns}
	s.Where.Add("workspace_id =", t.WorkspaceID)
	s.Where.Add("environment =", t.Environment)
	found, err := db.Find(ctx, q, s, page, db.Record[*Note]{Scan: scanNote, ID: func(n *Note) string { return n.ID }})
	if err != nil {
		return nil, false, err
	}
	return found.Rows, found.More, nil
}

// ListByKey returns the newest reports of a key and of its tokens.
func ListByKey(ctx context.Context, q db.Querier, keyID string, limit int) ([]*Note, error) {
	rows, err := q.Query(ctx, "SELECT "+noteColumns+" FROM leak_reports WHERE key_id = $1 ORDER BY id DESC LIMIT $2", keyID, int64(limit))
	return db.All(rows, err, scanNote)
}

func scanNote(r db.Row) (*Note, error) {
	var n Note
	err := db.Scan(r, &n.ID, &n.WorkspaceID, &n.Environment, &n.KeyID, &n.TokenID, &n.Hint, &n.Source, &n.URL, &n.Location, &n.Outcome, &n.ReportedAt)
	return &n, err
}

// Purge deletes a batch of reports from before a time.
func Purge(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM leak_reports WHERE id IN
		(SELECT id FROM leak_reports WHERE id < $1 ORDER BY id LIMIT $2)`, ids.Floor(IDPrefix, before), limit)
}

// cleanLocation returns the location without secrets, which the name of a file may contain.
func (r Report) cleanLocation() string {
	s := strings.ToValidUTF8(strings.ReplaceAll(keyring.Mask(r.Location), "\x00", ""), "")
	return s[:min(len(s), maxURL)]
}

// cleanURL returns an untrusted URL without its login and query, which may contain
// tokens, and without keys. It returns an empty string for an invalid URL.
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
