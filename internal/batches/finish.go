package batches

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/apifiles"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/lanes"
)

const (
	// endChunk is how many lines a transaction ends or deletes.
	endChunk = 1000
	// drainDelay is how long a batch waits for another look at lines in progress, whose results
	// make it due.
	drainDelay = 30 * time.Second
)

// workBatch does the next thing for a batch itself: check its input, store its lines, end it.
func (s *Service) workBatch(ctx context.Context, b *Batch) lanes.Result {
	due, err := s.advance(ctx, b)
	switch {
	case err != nil && ctx.Err() != nil:
		return lanes.Result{Outcome: db.Written} // the server stops
	case err != nil:
		slog.Warn("failed to work a batch; retrying", "batch", b.ID, "error", err)
		return lanes.Retry(ctx)
	}
	return lanes.Result{Healthy: true, Done: due == nil, Due: due, Outcome: db.Written}
}

// advance returns when the batch is due next, or nil if it has ended.
func (s *Service) advance(ctx context.Context, b *Batch) (due *time.Time, err error) {
	now := s.Now()
	switch {
	case b.Status.Ended():
		return nil, s.deleteLines(ctx, b)
	case b.Status == Validating && now.Before(b.ExpiresAt):
		return &now, s.admit(ctx, b)
	case b.Total > 0 && !b.Loaded:
		return &now, s.loadAll(ctx, b)
	case b.Provider != "" && b.Pending() > 0:
		return s.advanceUpstream(ctx, b)
	case b.Status == InProgress && b.Pending() > 0 && now.Before(b.ExpiresAt):
		return &b.ExpiresAt, s.change(ctx, b, func(tx *db.Tx, b *Batch, now time.Time) error {
			if b.Pending() == 0 {
				return s.wakeBatch(ctx, tx, b, now)
			}
			return s.wakeBatch(ctx, tx, b, b.ExpiresAt)
		})
	case b.Status.runs():
		return &now, s.change(ctx, b, func(tx *db.Tx, b *Batch, now time.Time) error {
			if err := b.transition(Finalizing, now); err != nil {
				return err
			}
			return save(ctx, tx, b)
		})
	}
	left, err := s.endLines(ctx, b)
	if err != nil {
		return nil, err
	}
	if left > 0 {
		due := now.Add(drainDelay)
		return &due, s.change(ctx, b, func(tx *db.Tx, b *Batch, now time.Time) error {
			if b.Pending() == 0 {
				due = now
			}
			return s.wakeBatch(ctx, tx, b, due)
		})
	}
	return nil, s.finish(ctx, b)
}

// admit checks the input. If it is invalid, the batch fails.
func (s *Service) admit(ctx context.Context, b *Batch) error {
	total, e, err := s.validate(ctx, b)
	if err != nil {
		return err
	}
	provider := s.chooseUpstream(b, e.distinctModels())
	return s.change(ctx, b, func(tx *db.Tx, b *Batch, now time.Time) error {
		if len(e.list) > 0 {
			b.Errors = e.list
			return s.end(ctx, tx, b, Failed)
		}
		b.Total, b.Provider = total, provider
		if err := b.transition(InProgress, now); err != nil {
			return err
		}
		return save(ctx, tx, b)
	})
}

// loadAll stores the lines and notes that all are stored.
func (s *Service) loadAll(ctx context.Context, b *Batch) error {
	if err := s.load(ctx, b); err != nil {
		return err
	}
	return s.change(ctx, b, func(tx *db.Tx, b *Batch, _ time.Time) error {
		b.Loaded = true
		return save(ctx, tx, b)
	})
}

// endLines ends the lines that haven't started, and returns how many are still in progress.
func (s *Service) endLines(ctx context.Context, b *Batch) (left int64, err error) {
	to := lineExpired
	if b.Status == Cancelling {
		to = lineCancelled
	}
	for n := int64(endChunk); n == endChunk; {
		err := s.change(ctx, b, func(tx *db.Tx, b *Batch, _ time.Time) (err error) {
			n, err = tx.Exec(ctx, "UPDATE batch_lines SET status = $2, due_at = NULL WHERE batch_id = $1 AND position IN "+firstIn(lineWaiting, endChunk), b.ID, to)
			if err != nil {
				return fmt.Errorf("end lines: %w", err)
			}
			if to == lineCancelled {
				b.Cancelled += n
			} else {
				b.Expired += n
			}
			left = b.Pending()
			return save(ctx, tx, b)
		})
		if err != nil {
			return 0, err
		}
	}
	return left, nil
}

// outputFile is a file with results of a batch.
type outputFile struct {
	name   string
	wanted func(status string) bool
}

func isCompleted(status string) bool { return status == lineCompleted }
func isError(status string) bool     { return status != lineCompleted }
func isAny(string) bool              { return true }

// finish writes the results to files and ends the batch. It may be repeated: the files have the
// same IDs.
func (s *Service) finish(ctx context.Context, b *Batch) error {
	kinds := []outputFile{{"output", isCompleted}, {"errors", isError}}
	if b.isMessageBatch() {
		kinds = []outputFile{{"results", isAny}}
	}
	written := make([]*apifiles.File, len(kinds))
	for i, kind := range kinds {
		var err error
		if written[i], err = s.writeFile(ctx, b, kind); err != nil {
			return err
		}
	}
	err := s.change(ctx, b, func(tx *db.Tx, b *Batch, _ time.Time) error {
		for i, f := range written {
			if f == nil {
				continue
			}
			if err := s.Files.Insert(ctx, tx, f); err != nil {
				return err
			}
			if i == 0 {
				b.OutputFileID = f.ID
			} else {
				b.ErrorFileID = f.ID
			}
		}
		switch {
		case b.Status == Cancelling:
			return s.end(ctx, tx, b, Cancelled)
		case b.Expired > 0 || b.Total == 0:
			return s.end(ctx, tx, b, Expired)
		}
		return s.end(ctx, tx, b, Completed)
	})
	if err != nil {
		return err
	}
	return s.deleteLines(ctx, b)
}

// end ends a batch: its status and its event change in one transaction. The caller holds the lock of
// the batch's row.
func (s *Service) end(ctx context.Context, tx *db.Tx, b *Batch, to Status) error {
	if err := b.transition(to, s.Now()); err != nil {
		return err
	}
	if err := save(ctx, tx, b); err != nil {
		return err
	}
	if err := s.Content.Drop(ctx, tx, b.Tenant, b.ID); err != nil {
		return err
	}
	tx.OnCommit(s.ended.WithLabelValues(string(to)).Inc)
	_, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: b.Tenant, Project: b.Project}, events.Batch{ID: b.ID, Status: string(to)})
	return err
}

// writeFile stores the wanted results as a file without a row, or returns nil if there are none.
func (s *Service) writeFile(ctx context.Context, b *Batch, kind outputFile) (*apifiles.File, error) {
	id := ids.Derive(ids.File, b.ID, kind.name)
	content, err := s.Files.Spool(id, &resultReader{ctx: ctx, service: s, batch: b, wanted: kind.wanted})
	if err != nil {
		return nil, err
	}
	defer content.Discard()
	if content.Bytes == 0 {
		return nil, nil
	}
	now := s.Now()
	f := &apifiles.File{ID: id, Tenant: b.Tenant, Project: b.Project, Purpose: apifiles.BatchOutput, Filename: b.ID + "_" + kind.name + ".jsonl",
		Bytes: content.Bytes, CreatedAt: now, ExpiresAt: now.Add(b.OutputLife)}
	f.SHA256, err = s.Files.Keep(ctx, b.Tenant, content)
	return f, err
}

// resultReader reads the results of a batch in the order of its lines.
type resultReader struct {
	ctx     context.Context
	service *Service
	batch   *Batch
	wanted  func(status string) bool
	last    int64 // position
	ready   []byte
	done    bool
}

// A page of results ends after so many lines, or bytes.
const (
	resultPage  = 50
	resultBytes = 1 << 20
)

var errPageFull = errors.New("the page is full")

func (r *resultReader) Read(p []byte) (int, error) {
	for len(r.ready) == 0 {
		if r.done {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *resultReader) next() error {
	n := 0
	rows, err := r.service.DB.Query(r.ctx, fmt.Sprintf("SELECT %s FROM batch_lines WHERE batch_id = $1 AND position > $2 ORDER BY position LIMIT %d", lineColumns, resultPage), r.batch.ID, r.last)
	err = db.Each(rows, err, func(row db.Row) error {
		l, err := scanLine(row)
		if err != nil {
			return err
		}
		n, r.last = n+1, l.Position
		return r.add(l)
	})
	if errors.Is(err, errPageFull) {
		return nil
	}
	r.done = n < resultPage
	return err
}

// add appends the result of a line to what is ready.
func (r *resultReader) add(l *line) error {
	if !r.wanted(l.Status) {
		return nil
	}
	text, err := r.service.render(r.batch, l)
	if err != nil {
		return err
	}
	if r.ready = append(append(r.ready, text...), '\n'); len(r.ready) > resultBytes {
		return errPageFull
	}
	return nil
}

// outputLine is a line of the results, in OpenAI's format.
type outputLine struct {
	ID       string        `json:"id"`
	CustomID string        `json:"custom_id"`
	Response *lineResponse `json:"response"`
	Error    *lineError    `json:"error"`
}

type lineResponse struct {
	StatusCode int            `json:"status_code"`
	RequestID  string         `json:"request_id"`
	Body       jsontext.Value `json:"body"`
}

// Errors of lines that didn't run.
var (
	errExpired   = &lineError{"batch_expired", "The request was not executed before the completion window of the batch ended."}
	errCancelled = &lineError{"batch_cancelled", "The batch was canceled before the request was executed."}
)

// render returns the result of a line in the format of the batch's API.
func (s *Service) render(b *Batch, l *line) ([]byte, error) {
	o, err := s.unseal(l)
	if err != nil {
		return nil, err
	}
	switch l.Status {
	case lineExpired:
		o.Error = errExpired
	case lineCancelled:
		o.Error = errCancelled
	}
	if b.isMessageBatch() {
		return json.Marshal(messageLine{l.CustomID, messageResult(l.Status, o)}, lenient)
	}
	out := outputLine{ID: ids.Derive("batch_req_", b.ID, strconv.FormatInt(l.Position, 10)), CustomID: l.CustomID, Error: o.Error}
	if o.Status != 0 {
		out.Response = &lineResponse{o.Status, o.RequestID, o.Body}
	}
	return json.Marshal(out, lenient)
}

// messageLine is a line of the results, in Anthropic's format.
type messageLine struct {
	CustomID string     `json:"custom_id"`
	Result   lineResult `json:"result"`
}

type lineResult struct {
	Type    string         `json:"type"`
	Message jsontext.Value `json:"message,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

func messageResult(status string, o lineOutput) lineResult {
	switch status {
	case lineCompleted:
		return lineResult{Type: "succeeded", Message: o.Body}
	case lineCancelled:
		return lineResult{Type: "canceled"}
	case lineExpired:
		return lineResult{Type: "expired"}
	}
	return lineResult{Type: "errored", Error: o.Body}
}

// deleteLines deletes the lines of a batch that has ended. Its files have the results.
func (s *Service) deleteLines(ctx context.Context, b *Batch) error {
	for n := int64(endChunk); n == endChunk; {
		err := s.DB.Write(ctx, func(tx *db.Tx) (err error) {
			// The line at position 0 is the last, so that the next attempt goes on after a crash.
			n, err = tx.Exec(ctx, fmt.Sprintf(`DELETE FROM batch_lines WHERE batch_id = $1 AND position IN
				(SELECT position FROM batch_lines WHERE batch_id = $1 ORDER BY position DESC LIMIT %d)`, endChunk), b.ID)
			return db.Wrap(err, "delete lines")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retention is how long batches are kept: as long as events.
const retention = 30 * 24 * time.Hour

// Purge deletes old batches, whose lines are already deleted.
func (s *Service) Purge(ctx context.Context, tx *db.Tx, limit int64) (int64, error) {
	n, err := tx.Exec(ctx, "DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)", s.Now().Add(-retention).UnixMicro(), limit)
	return n, db.Wrap(err, "purge batches")
}
