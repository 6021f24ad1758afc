package notifications

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
	"turnpike/internal/safehttp"
)

// kind is the kind of a row.
type kind string

const (
	kindMessage  kind = "message"
	kindReminder kind = "reminder"
)

// row is a message that isn't sent yet, or a reminder that isn't due yet.
type row struct {
	ID          string
	WorkspaceID string
	Kind        kind
	CreatedAt   time.Time
	DueAt       time.Time
	Attempts    int64
	sealed      string
}

func rowContext(id string) string { return "notification " + id }

// enqueue stores a row in the transaction of its cause.
func (s *Service) enqueue(ctx context.Context, tx *db.Tx, r row, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("notification: %w", err)
	}
	_, err = tx.Exec(ctx, db.Insert("notifications", "id, workspace_id, lane, kind, sealed_body, created_at, due_at")+" ON CONFLICT (id) DO NOTHING",
		r.ID, r.WorkspaceID, r.WorkspaceID, string(r.Kind), s.Ring.Seal(text, rowContext(r.ID)), s.Now().UnixMicro(), r.DueAt.UnixMicro())
	if err != nil {
		return fmt.Errorf("store notification: %w", err)
	}
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{r.WorkspaceID: r.DueAt})
}

// post stores a message if the workspace has an incoming webhook.
func (s *Service) post(ctx context.Context, tx *db.Tx, m *Message) error {
	has, err := db.Value[bool](tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM notification_settings WHERE workspace_id = $1 AND sealed_url IS NOT NULL)", m.WorkspaceID))
	if err != nil || !has {
		return db.Wrap(err, "read notification settings")
	}
	if m.ID == "" {
		m.ID = ids.New(ids.Notification)
	}
	m.CreatedAt = s.Now().Unix()
	return s.enqueue(ctx, tx, row{ID: m.ID, WorkspaceID: m.WorkspaceID, Kind: kindMessage, DueAt: s.Now()}, m)
}

// Fetch returns the rows that are due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*lanes.Row], error) {
	return lanes.Table{DB: s.DB, Now: s.Now, Name: "notifications", ID: "id"}.Fetch(ctx, lane, after, n)
}

// Work sends a message, or a reminder that is due.
func (s *Service) Work(ctx context.Context, _ string, i *lanes.Row) lanes.Result {
	r := &row{}
	err := db.Scan(s.DB.QueryRow(ctx, "SELECT id, workspace_id, kind, created_at, due_at, attempts, sealed_body FROM notifications WHERE id = $1", i.ID),
		&r.ID, &r.WorkspaceID, &r.Kind, &r.CreatedAt, &r.DueAt, &r.Attempts, &r.sealed)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return lanes.Result{Healthy: true, Done: true, Outcome: db.Written}
	case err == nil && r.DueAt.After(s.Now()):
		return lanes.Result{Healthy: true, Outcome: db.Written} // another node tried it
	}
	var next *time.Time
	var failed bool
	if err == nil {
		next, failed, err = s.work(ctx, r)
	}
	if err != nil {
		if ctx.Err() == nil {
			slog.Warn("failed to send a notification; retrying", "notification", i.ID, "error", err)
		}
		return lanes.Retry(ctx)
	}
	return lanes.Result{Healthy: !failed, Done: next == nil, Due: next, Outcome: db.Written}
}

// work does what a row asks for. It returns when the next attempt is due, if there is one, and whether
// the webhook failed.
func (s *Service) work(ctx context.Context, r *row) (next *time.Time, failed bool, err error) {
	text, err := s.Ring.Open(r.sealed, rowContext(r.ID))
	if err != nil {
		return nil, false, fmt.Errorf("decrypt notification: %w", err)
	}
	if r.Kind == kindReminder {
		return nil, false, s.remind(ctx, r, text)
	}
	var m Message
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, false, fmt.Errorf("decode notification: %w", err)
	}
	set, err := s.ReadSettings(ctx, s.DB, r.WorkspaceID)
	if err != nil {
		return nil, false, err
	}
	if set.URL == "" {
		return nil, false, s.delete(ctx, r)
	}
	problem := s.send(ctx, set, &m)
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	return s.recordAttempt(ctx, r, problem)
}

// recordAttempt stores the result of an attempt, unless another node has stored one.
func (s *Service) recordAttempt(ctx context.Context, r *row, problem error) (next *time.Time, failed bool, err error) {
	now := s.Now()
	if problem != nil {
		at := now.Add(retryDelays[min(int(r.Attempts), len(retryDelays)-1)])
		if at.Before(r.CreatedAt.Add(maxAge)) {
			next = &at
		}
		slog.Warn("incoming webhook failed", "workspace", r.WorkspaceID, "notification", r.ID, "attempt", r.Attempts+1, "error", problem, "next", next)
	}
	err = s.DB.Write(context.WithoutCancel(ctx), func(tx *db.Tx) error {
		var n int64
		var err error
		if next == nil {
			n, err = tx.Exec(ctx, "DELETE FROM notifications WHERE id = $1 AND attempts = $2", r.ID, r.Attempts)
		} else {
			n, err = tx.Exec(ctx, "UPDATE notifications SET attempts = attempts + 1, due_at = $3 WHERE id = $1 AND attempts = $2", r.ID, r.Attempts, next.UnixMicro())
		}
		if err != nil || n == 0 {
			return db.Wrap(err, "store attempt")
		}
		return s.recordResult(ctx, tx, r.WorkspaceID, problem)
	})
	return next, problem != nil, err
}

// recordResult stores the result of the last attempt for the settings page.
func (s *Service) recordResult(ctx context.Context, tx *db.Tx, workspaceID string, problem error) error {
	query, value := "UPDATE notification_settings SET last_error = $2 WHERE workspace_id = $1", any(nil)
	if problem != nil {
		value = problem.Error()
	} else {
		query, value = "UPDATE notification_settings SET last_error = NULL, last_sent_at = $2 WHERE workspace_id = $1", s.Now().UnixMicro()
	}
	_, err := tx.Exec(ctx, query, workspaceID, value)
	return db.Wrap(err, "store attempt")
}

func (s *Service) delete(ctx context.Context, r *row) error {
	return s.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM notifications WHERE id = $1", r.ID)
		return db.Wrap(err, "delete notification")
	})
}

// send posts a message to the incoming webhook. Its error doesn't contain the URL.
func (s *Service) send(ctx context.Context, set *Settings, m *Message) error {
	body, err := m.encode(set.Format)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, set.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is invalid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Turnpike/"+s.Version+" (notifications)")
	resp, err := s.client.Transport.RoundTrip(req)
	if err != nil {
		return errors.New(safehttp.Explain(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	problem := fmt.Sprintf("the webhook returned %03d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if said := strings.TrimSpace(db.Storable(strings.ToValidUTF8(string(text), ""))); said != "" {
		problem += ": " + said
	}
	return errors.New(problem)
}

// SendTest sends a test message while the caller waits, and stores the result.
func (s *Service) SendTest(ctx context.Context, w *accounts.Workspace, askedBy string) error {
	set, err := s.ReadSettings(ctx, s.DB, w.ID)
	if err != nil {
		return err
	}
	if set.URL == "" {
		return fault.New(fault.InvalidState, "The workspace has no incoming webhook. Set one first.")
	}
	problem := s.send(ctx, set, &Message{ID: ids.New(ids.Notification), Type: "test", Title: "Test message from Turnpike",
		Text: askedBy + " sent this message to check the notifications of the workspace " + w.Name + ".", URL: s.PublicURL + "/dashboard/w/" + w.ID + "/live/settings",
		WorkspaceID: w.ID, Environment: accounts.Live, CreatedAt: s.Now().Unix()})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := s.DB.Write(ctx, func(tx *db.Tx) error { return s.recordResult(ctx, tx, w.ID, problem) }); err != nil {
		return err
	}
	if problem != nil {
		return fault.New(fault.InvalidState, "The incoming webhook did not accept the message: %s.", strings.TrimSuffix(problem.Error(), "."))
	}
	return nil
}
