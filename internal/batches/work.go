package batches

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/fault"
	"turnpike/internal/files"
	"turnpike/internal/jsonbody"
	"turnpike/internal/lanes"
)

// Fetch returns the lines that are due in a lane.
func (s *Service) Fetch(ctx context.Context, lane string, after lanes.Key, n int) (lanes.Batch[*lanes.Row], error) {
	return lanes.Table{DB: s.DB, Now: s.Now, Name: "batch_lines", ID: "batch_id", Position: "position"}.Fetch(ctx, lane, after, n)
}

var errStale = errors.New("another worker has the line")

// done is the result of an item without work.
func done() lanes.Result { return lanes.Result{Healthy: true, Done: true, Outcome: db.Written} }

// Work works one line and queues its result.
func (s *Service) Work(ctx context.Context, _ string, i *lanes.Row) lanes.Result {
	b, l, err := s.read(ctx, i)
	switch {
	case errors.Is(err, db.ErrNotFound):
		return done() // the batch has ended
	case err != nil:
		slog.Warn("failed to read a line of a batch; retrying", "batch", i.ID, "line", i.Position, "error", err)
		return lanes.Retry(ctx)
	case l.DueAt == nil:
		return done() // another node did it
	case l.Position == 0:
		return s.workBatch(ctx, b)
	}
	r, err := s.workLine(ctx, b, l)
	switch {
	case errors.Is(err, errStale):
		return done()
	case err != nil && ctx.Err() != nil:
		return lanes.Result{Outcome: db.Written} // the server stops
	case err != nil:
		slog.Warn("failed to work a line of a batch; retrying", "batch", i.ID, "line", i.Position, "error", err)
		return lanes.Retry(ctx)
	}
	healthy, due := !r.upstream, r.due // read before the writer can change it
	return lanes.Result{Healthy: healthy, Done: due == nil, Due: due, Outcome: s.results.Add(r)}
}

// read reads a line and its batch as they are now.
func (s *Service) read(ctx context.Context, i *lanes.Row) (*Batch, *line, error) {
	var l line
	var b Batch
	err := db.Scan(s.DB.QueryRow(ctx, readLine, i.ID, i.Position), append(l.fields(), b.fields()...)...)
	return &b, &l, err
}

var readLine = "SELECT " + qualified("l", lineColumns) + ", " + qualified("b", columns) +
	" FROM batch_lines l JOIN batches b ON b.id = l.batch_id WHERE l.batch_id = $1 AND l.position = $2"

func qualified(table, columns string) string {
	names := strings.Fields(columns)
	for i, name := range names {
		names[i] = table + "." + name
	}
	return strings.Join(names, " ")
}

// workLine makes the request of a line, unless its batch or its key may not continue.
func (s *Service) workLine(ctx context.Context, b *Batch, l *line) (*result, error) {
	now := s.Now()
	if l.RequestID != "" {
		if wait, err := s.interrupted(ctx, b, l); err != nil || wait > 0 {
			return &result{line: l, status: l.Status, requestID: l.RequestID, tries: l.Tries, due: new(now.Add(wait))}, err
		}
	}
	switch {
	case b.Status == Cancelling || b.Status == Cancelled:
		return &result{line: l, status: lineCancelled, refund: l.RequestID}, nil
	case !b.Status.runs() || !now.Before(b.ExpiresAt):
		return &result{line: l, status: lineExpired, refund: l.RequestID}, nil
	}
	if err := s.awaitLine(ctx, l); err != nil {
		return nil, err
	}
	p, denied, err := s.authorize(ctx, b, now)
	if err != nil {
		return nil, err
	}
	if denied != nil {
		r, err := s.fail(b, l, denied, "")
		return r, err
	}
	body, err := s.body(ctx, b, l)
	if errors.Is(err, files.ErrGone) {
		return s.fail(b, l, fault.New(fault.NotFound, "The input file was deleted."), "")
	}
	if err != nil {
		return nil, err
	}
	return s.call(ctx, b, l, p, body)
}

// authorize returns the principal of the batch's key, or why the line may not run.
func (s *Service) authorize(ctx context.Context, b *Batch, now time.Time) (*access.Principal, *fault.Error, error) {
	p, err := access.PrincipalOf(ctx, s.DB, b.KeyID, nil, now)
	if err != nil {
		return nil, nil, err
	}
	if p == nil {
		return nil, fault.New(fault.Authentication, "The key that created the batch was revoked or has expired."), nil
	}
	for _, scope := range []access.Scope{access.BatchesCreate, scopes[b.Endpoint]} {
		if !p.Grant.Allows(scope) {
			return nil, fault.New(fault.InsufficientScope, "The key that created the batch no longer has the scope %s.", scope), nil
		}
	}
	if b.Project == "" {
		return p, nil, nil
	}
	project, err := accounts.GetProject(ctx, s.DB, b.Tenant, b.Project)
	if err == nil && project.ArchivedAt != nil {
		return nil, fault.New(fault.UnknownProject, "The project %q of the batch was archived.", b.Project), nil
	}
	return p, nil, err
}

// body reads the body of a line's request. The task has awaited memory for it.
func (s *Service) body(ctx context.Context, b *Batch, l *line) (jsontext.Value, error) {
	content, err := s.Files.Open(ctx, b.input(), l.StartAt)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	text := make([]byte, l.Length)
	if _, err := io.ReadFull(content, text); err != nil {
		return nil, err
	}
	m, _ := jsonbody.FindMember(text, "body") // it was checked
	return text[m.Start:m.End], nil
}
