package batches

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/apifiles"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
)

// Window is how long a batch may take.
const Window = 24 * time.Hour

// Draft is a batch that isn't stored yet.
type Draft struct {
	ID         string // with the prefix of its API
	Endpoint   Endpoint
	Input      *apifiles.File
	Total      int64         // requests, if it is known
	OutputLife time.Duration // how long its results are kept
	Metadata   map[string]string
	Options    RequestOptions
}

// Check returns an error if the principal may not use the endpoint, or the endpoint doesn't exist.
func Check(p *access.Principal, e Endpoint) error {
	scope, known := scopes[e]
	if !known {
		names := make([]string, len(Endpoints))
		for i, e := range Endpoints {
			names[i] = string(e)
		}
		return fault.Invalid("endpoint", "endpoint must be one of %s.", strings.Join(names, ", "))
	}
	return p.Require(scope)
}

// Create stores a batch. It holds its input until it ends.
func (s *Service) Create(ctx context.Context, tx *db.Tx, p *access.Principal, project string, d Draft) (*Batch, error) {
	if err := Check(p, d.Endpoint); err != nil {
		return nil, err
	}
	if err := accounts.CheckMetadata(d.Metadata); err != nil {
		return nil, err
	}
	now := s.Now()
	b := &Batch{ID: d.ID, Tenant: p.Tenant, Project: project, KeyID: p.KeyID, Status: Validating, Endpoint: d.Endpoint, Options: d.Options,
		InputFileID: d.Input.ID, InputSHA256: d.Input.SHA256, InputBytes: d.Input.Bytes, OutputLife: d.OutputLife, Metadata: d.Metadata,
		Total: d.Total, CreatedAt: now, ExpiresAt: now.Add(Window)}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	b.Lane = lanes.ShardOf(fmt.Sprintf("%s.%s", b.WorkspaceID, b.Environment), b.ID)
	// Lines in progress when the window ends still need it.
	held, err := s.Content.Hold(ctx, tx, files.Use{Tenant: b.Tenant, Holder: b.ID, SHA256: b.InputSHA256, Until: b.ExpiresAt.Add(Window)})
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fault.NoSuch("file", d.Input.ID)
	}
	if err := insert(ctx, tx, b); err != nil {
		return nil, err
	}
	if _, err := insertLines.Write(ctx, tx, [][]any{(&line{BatchID: b.ID, Lane: b.Lane, Status: lineWaiting, DueAt: &now}).row()}); err != nil {
		return nil, fmt.Errorf("store batch: %w", err)
	}
	return b, s.wake(ctx, tx, b, now)
}

// wake marks the batch's lane as having work from a point in time on.
func (s *Service) wake(ctx context.Context, tx *db.Tx, b *Batch, due time.Time) error {
	return lanes.Enqueue(ctx, tx, Queue, map[string]time.Time{b.Lane: due})
}

// wakeBatch makes the work on the batch itself due.
func (s *Service) wakeBatch(ctx context.Context, tx *db.Tx, b *Batch, due time.Time) error {
	if _, err := tx.Exec(ctx, "UPDATE batch_lines SET due_at = $2 WHERE batch_id = $1 AND position = 0", b.ID, due.UnixMicro()); err != nil {
		return fmt.Errorf("wake batch: %w", err)
	}
	return s.wake(ctx, tx, b, due)
}

// Cancel stops a batch. Lines in progress end, and no others are started.
func (s *Service) Cancel(ctx context.Context, tx *db.Tx, p *access.Principal, id string) (*Batch, error) {
	b, err := find(ctx, tx, p, id, tx.Lock("batches"))
	if err != nil {
		return nil, err
	}
	now := s.Now()
	switch {
	case b.Status == Cancelling || b.Status == Cancelled:
		return b, nil // repeated
	case !b.Status.runs():
		return nil, fault.New(fault.InvalidState, "The batch can no longer be canceled. Its status is %s.", b.Status)
	}
	if err := b.transition(Cancelling, now); err != nil {
		return nil, err
	}
	if err := save(ctx, tx, b); err != nil {
		return nil, err
	}
	return b, s.wakeBatch(ctx, tx, b, now)
}

// Delete deletes a batch that has ended, and its results.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, p *access.Principal, id string) error {
	b, err := find(ctx, tx, p, id, tx.Lock("batches"))
	if err != nil {
		return err
	}
	if !b.Status.Ended() {
		return fault.New(fault.InvalidState, "The batch has not ended. Cancel it, and delete it when it has ended.")
	}
	for _, file := range []string{b.OutputFileID, b.ErrorFileID} {
		if file == "" {
			continue
		}
		if err := s.Files.Delete(ctx, tx, p.Visibility(), file); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	for _, statement := range []string{"DELETE FROM batch_lines WHERE batch_id = $1", "DELETE FROM batches WHERE id = $1"} {
		if _, err := tx.Exec(ctx, statement, b.ID); err != nil {
			return fmt.Errorf("delete batch: %w", err)
		}
	}
	return nil
}

// NewID returns an ID for a new batch of OpenAI's API.
func NewID() string { return ids.New(ids.Batch) }
