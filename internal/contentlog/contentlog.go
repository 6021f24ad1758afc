// Package contentlog stores the bodies of model requests and their responses, for keys and projects that
// turn it on. Secrets and binary data are removed before the content is encrypted and written.
package contentlog

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/visibility"
)

const (
	// maxBody limits each stored body.
	maxBody = 256 << 10
	// maxPending limits the content that waits for a commit. It shares commits with the request log, which
	// must not wait for more than this.
	maxPending = 16 << 20
	// linger lets content wait for the log entry of its request, which follows immediately.
	linger = 20 * time.Millisecond
)

// Part is the stored body of a request or of a response.
type Part struct {
	Body        string `json:"body"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"` // in bytes, as it was sent
	Truncated   bool   `json:"truncated"`
	Streamed    bool   `json:"streamed,omitzero"` // Body is assembled from a stream's events
}

// Content is what the log has about a request.
type Content struct {
	RequestID string    `json:"-"`
	ExpiresAt time.Time `json:"-"`
	Request   Part      `json:"request"`
	Response  Part      `json:"response"`
}

// Store stores content.
type Store struct {
	// FindEntry returns a visible entry of the request log.
	FindEntry func(ctx context.Context, q db.Querier, vis visibility.Filter, requestID string) (*audit.Entry, error)

	ring    *keyring.Ring
	now     func() time.Time
	queue   *db.Queue[*row]
	pending atomic.Int64 // bytes
}

type row struct {
	entry   *audit.Entry
	sealed  string
	expires time.Time
}

// New creates a store that writes with the group's other writes.
func New(g *db.Group, ring *keyring.Ring, now func() time.Time) *Store {
	s := &Store{FindEntry: audit.Get, ring: ring, now: now}
	s.queue = db.NewQueue(g, false, write).Linger(linger)
	return s
}

var insert = db.NewBulk("request_contents", "ON CONFLICT (request_id) DO NOTHING",
	"request_id text", "workspace_id text", "environment text", "end_user_id text", "content text", "expires_at bigint")

func write(ctx context.Context, tx *db.Tx, list []*row) error {
	rows := make([][]any, len(list))
	for i, r := range list {
		e := r.entry
		rows[i] = []any{e.RequestID, e.WorkspaceID, string(e.Environment), db.OrNull(e.EndUser), r.sealed, r.expires.UnixMicro()}
	}
	return db.Wrap(insert.Send(ctx, tx, rows, nil), "content log")
}

// Save queues the content of a request for the next commit. It never waits.
func (s *Store) Save(e *audit.Entry, d *Draft) {
	sealed, err := s.seal(e.RequestID, d.content())
	if err != nil {
		slog.Warn("failed to encode a request's content; it isn't stored", "request", e.RequestID, "error", err)
		return
	}
	size := int64(len(sealed))
	if s.pending.Add(size) > maxPending {
		s.pending.Add(-size)
		slog.Warn("the database is too slow for the content log; a request's content isn't stored", "request", e.RequestID)
		return
	}
	s.queue.Add(&row{e, sealed, e.CreatedAt.AddDate(0, 0, int(d.days))}).Then(func() { s.pending.Add(-size) })
}

func place(requestID string) string { return "request_content/" + requestID }

func (s *Store) seal(requestID string, c *Content) (string, error) {
	plain, err := json.Marshal(c, lenient)
	if err != nil {
		return "", err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err != nil {
		return "", err
	}
	if _, err := w.Write(plain); err != nil {
		return "", err
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return s.ring.Seal(packed.Bytes(), place(requestID)), nil
}

func (s *Store) open(requestID, sealed string) (*Content, error) {
	packed, err := s.ring.Open(sealed, place(requestID))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed))) //budget:own packed from a body that was in memory
	if err != nil {
		return nil, err
	}
	var c Content
	return &c, json.Unmarshal(plain, &c)
}

// The content of a deleted end user is gone, even if it isn't deleted yet.
const readable = ` FROM request_contents c WHERE c.request_id = $1 AND c.workspace_id = $2 AND c.environment = $3 AND c.expires_at > $4
	AND (c.end_user_id IS NULL OR EXISTS (SELECT 1 FROM end_users u WHERE u.id = c.end_user_id))`

// ExpiresAt returns when the content of a visible entry expires, or the zero time if there is none.
func (s *Store) ExpiresAt(ctx context.Context, q db.Querier, e *audit.Entry) (time.Time, error) {
	micros, err := db.Value[int64](q.QueryRow(ctx, "SELECT c.expires_at"+readable, e.RequestID, e.WorkspaceID, string(e.Environment), s.now().UnixMicro()))
	if errors.Is(err, db.ErrNotFound) {
		return time.Time{}, nil
	}
	return time.UnixMicro(micros), db.Wrap(err, "content log")
}

// Read returns the content of a visible request and records in the admin log who read it. Nothing may be shown
// before the transaction is committed.
func (s *Store) Read(ctx context.Context, tx *db.Tx, by audit.Actor, vis visibility.Filter, requestID string) (*Content, error) {
	e, err := s.FindEntry(ctx, tx, vis, requestID)
	if err != nil {
		return nil, err
	}
	var sealed string
	var expires int64
	err = tx.QueryRow(ctx, "SELECT c.content, c.expires_at"+readable, requestID, e.WorkspaceID, string(e.Environment), s.now().UnixMicro()).Scan(&sealed, &expires)
	if errors.Is(err, db.ErrNotFound) {
		return nil, fault.New(fault.NotFound, "The content of request %s is not stored. Set content_log_days of the key or the project to store the content of later requests.", requestID)
	}
	if err != nil {
		return nil, db.Wrap(err, "content log")
	}
	c, err := s.open(requestID, sealed)
	if err != nil {
		return nil, fmt.Errorf("content of request %s: %w", requestID, err)
	}
	c.RequestID, c.ExpiresAt = requestID, time.UnixMicro(expires)
	return c, by.Log(ctx, tx, audit.Action{Tenant: e.Tenant, Project: e.Project, Action: "content.read", Target: requestID}, map[string]any{"key_id": e.KeyID}, s.now())
}

// Purge deletes a batch of expired content.
func (s *Store) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM request_contents WHERE request_id IN (SELECT request_id FROM request_contents WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)",
		s.now().UnixMicro(), limit)
}

// PurgeUnlogged deletes a batch of content whose log entries are past their retention.
func PurgeUnlogged(ctx context.Context, tx *db.Tx, before time.Time, limit int64) (int64, error) {
	return tx.Exec(ctx, "DELETE FROM request_contents WHERE request_id IN (SELECT request_id FROM request_contents WHERE request_id < $1 ORDER BY request_id LIMIT $2)",
		ids.Floor(ids.Request, before), limit)
}

const (
	// deletedAtOnce is how much of a user's content is deleted together with the user. The rest follows in the
	// background, so that deleting a busy user doesn't block others.
	deletedAtOnce = 1000
	// maxRequestTime is longer than a request can take. Content of requests that were in progress when their
	// user was deleted arrives later.
	maxRequestTime = 24 * time.Hour
)

// DeleteUser deletes the content of an end user's requests.
func DeleteUser(ctx context.Context, tx *db.Tx, userID string, now time.Time) error {
	if _, err := deleteOfUser(ctx, tx, userID, deletedAtOnce); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "INSERT INTO content_deletions (end_user_id, deleted_at) VALUES ($1, $2) ON CONFLICT (end_user_id) DO NOTHING", userID, now.UnixMicro())
	return db.Wrap(err, "content log")
}

func deleteOfUser(ctx context.Context, tx *db.Tx, userID string, limit int64) (int64, error) {
	n, err := tx.Exec(ctx, "DELETE FROM request_contents WHERE request_id IN (SELECT request_id FROM request_contents WHERE end_user_id = $1 LIMIT $2)", userID, limit)
	return n, db.Wrap(err, "content log")
}

// PurgeUsers deletes a batch of the content of deleted end users.
func PurgeUsers(ctx context.Context, tx *db.Tx, now time.Time, limit int64) (int64, error) {
	users, err := db.List(ctx, tx, db.Value[string], `SELECT d.end_user_id FROM content_deletions d
		WHERE EXISTS (SELECT 1 FROM request_contents c WHERE c.end_user_id = d.end_user_id) LIMIT $1`, limit)
	if err != nil {
		return 0, db.Wrap(err, "content log")
	}
	var total int64
	for _, id := range users {
		if total >= limit {
			break
		}
		n, err := deleteOfUser(ctx, tx, id, limit-total)
		if err != nil {
			return total, err
		}
		total += n
	}
	if len(users) > 0 {
		return total, nil
	}
	_, err = tx.Exec(ctx, "DELETE FROM content_deletions WHERE deleted_at <= $1", now.Add(-maxRequestTime).UnixMicro())
	return 0, db.Wrap(err, "content log")
}
