package batches

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
)

// start is the start of a line: its request ID is stored before the provider is called.
type start struct {
	line      *line
	requestID string
	stale     bool // another worker started or ended the line
}

// attempts returns the line's number of attempts after the start.
func (st *start) attempts() int64 { return st.line.Attempts + 1 }

func compareLines(a, b *line) int {
	return cmp.Or(cmp.Compare(a.BatchID, b.BatchID), cmp.Compare(a.Position, b.Position))
}

// writeStarts is the group commit of starts. It refunds the interrupted request before.
func (s *Service) writeStarts(ctx context.Context, tx *db.Tx, list []*start) error {
	slices.SortFunc(list, func(a, b *start) int { return compareLines(a.line, b.line) }) // the same lock order in every transaction
	for _, st := range list {
		n, err := tx.Exec(ctx, `UPDATE batch_lines SET status = $4, request_id = $5, attempts = attempts + 1
			WHERE batch_id = $1 AND position = $2 AND attempts = $3 AND status IN ($4, $6)`,
			st.line.BatchID, st.line.Position, st.line.Attempts, lineStarted, st.requestID, lineWaiting)
		if err != nil {
			return fmt.Errorf("start lines: %w", err)
		}
		if st.stale = n == 0; st.stale {
			continue
		}
		if err := s.refund(ctx, tx, st.line.RequestID); err != nil {
			return err
		}
	}
	return nil
}

// refund takes back the charge of a request whose result doesn't count. The ID may be empty.
func (s *Service) refund(ctx context.Context, tx *db.Tx, requestID string) error {
	if requestID == "" {
		return nil
	}
	return s.Settler.Refund(ctx, tx, requestID)
}

// result is the result of working a line once.
type result struct {
	line     *line // as it was when it was worked
	attempts int64 // of the line, if it was started
	status   string
	due      *time.Time // for a retry
	tries    int64

	requestID    string // of the request that the line was charged for
	refund       string // the request that it must not be charged for
	output       string // sealed
	inputTokens  int64
	outputTokens int64
	cost         credits.Micro
	upstream     bool // a provider failed
}

// fence returns the number of attempts that the line must still have.
func (r *result) fence() int64 { return max(r.attempts, r.line.Attempts) }

// writeResults is the group commit of lines: their rows and the counts of their batches. The result
// of the last line makes the batch itself due.
func (s *Service) writeResults(ctx context.Context, tx *db.Tx, list []*result) error {
	byBatch := map[string][]*result{}
	for _, r := range list {
		byBatch[r.line.BatchID] = append(byBatch[r.line.BatchID], r)
	}
	batches, err := lock(ctx, tx, slices.Sorted(maps.Keys(byBatch))...)
	if err != nil {
		return err
	}
	for _, b := range batches {
		if err := s.writeBatch(ctx, tx, b, byBatch[b.ID]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) writeBatch(ctx context.Context, tx *db.Tx, b *Batch, list []*result) error {
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *result) int { return compareLines(a.line, b.line) })
	stored, err := lineStates(ctx, tx, b.ID, list)
	if err != nil {
		return err
	}
	var rows [][]any
	ended := false
	for _, r := range list {
		have := stored[r.line.Position]
		if have == nil || !have.waits() || have.Attempts != r.fence() {
			// Another worker has the line. Only its request is charged.
			if err := s.refund(ctx, tx, r.requestID); err != nil {
				return err
			}
			continue
		}
		delete(stored, r.line.Position) // a second result is stale
		if err := s.refund(ctx, tx, r.refund); err != nil {
			return err
		}
		rows = append(rows, []any{b.ID, r.line.Position, r.status, db.Micros(r.due), r.tries, db.OrNull(r.requestID), db.OrNull(r.output)})
		ended = b.add(r) || ended
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := updateLines.Write(ctx, tx, rows); err != nil {
		return fmt.Errorf("update lines: %w", err)
	}
	if !ended {
		return nil
	}
	if err := save(ctx, tx, b); err != nil {
		return err
	}
	if b.Loaded && b.Pending() == 0 {
		return s.wakeBatch(ctx, tx, b, s.Now())
	}
	return nil
}

// lineStates reads the states of lines. The caller holds the lock of the batch's row.
func lineStates(ctx context.Context, tx *db.Tx, batchID string, list []*result) (map[int64]*line, error) {
	positions := make([]int64, len(list))
	for i, r := range list {
		positions[i] = r.line.Position
	}
	places, args := db.Places([]any{batchID}, positions)
	found, err := db.List(ctx, tx, scanLine, "SELECT batch_id, position, lane, status, due_at, attempts, tries, '', 0, 0, NULL, NULL, 0, 0, NULL FROM batch_lines WHERE batch_id = $1 AND position IN "+places, args...)
	out := make(map[int64]*line, len(found))
	for _, l := range found {
		out[l.Position] = l
	}
	return out, db.Wrap(err, "read lines")
}

// add counts a result, and reports whether the line has ended.
func (b *Batch) add(r *result) bool {
	switch r.status {
	case lineCompleted:
		b.Completed++
	case lineFailed:
		b.Failed++
	case lineCancelled:
		b.Cancelled++
	case lineExpired:
		b.Expired++
	default:
		return false
	}
	b.InputTokens += r.inputTokens
	b.OutputTokens += r.outputTokens
	b.Cost += r.cost
	return true
}
