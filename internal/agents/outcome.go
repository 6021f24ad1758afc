package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
)

// outcome is the result of a turn: the run as it is from then on, and the rows
// that changed with it.
type outcome struct {
	run          *Run
	turn         int64  // the turn that was worked; a stored run with another one makes the outcome stale
	from         Status // of the run before the turn
	step         *Step
	calls        []*Call
	messages     []json.RawMessage
	entries      []logEntry
	publish      bool      // an event about the state
	stale        bool      // another node has worked the turn, so nothing was written
	waitingSince time.Time // when the model, a judge or a tool could have been called first
}

// newOutcome starts an outcome from the run as it is now.
func newOutcome(r *Run) *outcome {
	copied := *r
	return &outcome{run: &copied, turn: r.Turn, from: r.Status}
}

func (o *outcome) logEvent(kind string, data any) {
	o.entries = append(o.entries, logEntry{kind, data})
}

func (o *outcome) logCallCompleted(c *Call) {
	o.logEvent("tool_call.completed", map[string]any{"call_id": c.ID, "tool": c.Tool, "is_error": c.IsError, "simulated": c.Simulated, "output": c.Output, "credits": c.Credits})
}

func runError(code, format string, args ...any) *events.AgentError {
	return &events.AgentError{Code: code, Message: fmt.Sprintf(format, args...)}
}

var errCancelled = runError("cancelled", "The run was canceled.")

// storedRun is the part of a run's row that decides whether an outcome counts.
type storedRun struct {
	status                 Status
	turn, messages, logged int64
}

// writeOutcomes is the group commit of turns. An outcome counts only if its run
// is still at the turn in which the work began.
func (s *Service) writeOutcomes(ctx context.Context, tx *db.Tx, list []*outcome) error {
	// Rows are locked in the order of their IDs everywhere.
	slices.SortFunc(list, func(a, b *outcome) int { return cmp.Compare(a.run.ID, b.run.ID) })
	stored, err := lockRuns(ctx, tx, list)
	if err != nil {
		return err
	}
	now := s.Now()
	current := make([]*outcome, 0, len(list))
	for _, o := range list {
		row, found := stored[o.run.ID]
		if o.stale = !found || row.turn != o.turn; o.stale {
			continue
		}
		delete(stored, o.run.ID) // a second outcome of the same turn is stale
		if row.status == Cancelling && o.run.Status != Cancelling && o.run.Status != Cancelled {
			if err := o.applyCancellation(now); err != nil {
				return err
			}
		}
		o.run.Turn, o.run.Messages, o.run.Logged = o.turn+1, row.messages+int64(len(o.messages)), row.logged+int64(len(o.entries))
		current = append(current, o)
	}
	if err := writeRows(ctx, tx, current, now); err != nil {
		return err
	}
	for _, o := range current {
		if err := s.publish(ctx, tx, o); err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		for _, o := range current {
			s.watchers.Wake(o.run.ID)
			if o.run.Status.Ended() {
				s.ended.WithLabelValues(string(o.run.Status)).Inc()
			}
		}
	})
	return nil
}

func lockRuns(ctx context.Context, tx *db.Tx, list []*outcome) (map[string]storedRun, error) {
	names := make([]string, len(list))
	for i, o := range list {
		names[i] = o.run.ID
	}
	places, args := db.Places(nil, names)
	out := make(map[string]storedRun, len(list))
	rows, err := tx.Query(ctx, "SELECT id, status, turn, messages, logged FROM agent_runs WHERE id IN "+places+" ORDER BY id"+tx.Lock("agent_runs"), args...)
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		var row storedRun
		err := r.Scan(&id, (*string)(&row.status), &row.turn, &row.messages, &row.logged)
		out[id] = row
		return err
	})
	return out, db.Wrap(err, "read runs")
}

func writeRows(ctx context.Context, tx *db.Tx, list []*outcome, now time.Time) error {
	var runs, steps, calls, messages, entries [][]any
	for _, o := range list {
		runs = append(runs, o.run.row())
		if o.step != nil {
			steps = append(steps, o.step.row())
		}
		for _, c := range o.calls {
			calls = append(calls, c.row())
		}
		for i, m := range o.messages {
			messages = append(messages, []any{o.run.ID, o.run.Messages - int64(len(o.messages)-i), string(m)})
		}
		for i, e := range o.entries {
			entries = append(entries, []any{o.run.ID, o.run.Logged - int64(len(o.entries)-i-1), e.kind, db.JSON(e.data), now.UnixMicro()})
		}
	}
	for _, w := range []struct {
		bulk *db.Bulk
		rows [][]any
	}{{writeSteps, steps}, {writeCalls, calls}, {insertMessages, messages}, {insertEntries, entries}, {saveRuns, runs}} {
		if _, err := w.bulk.Write(ctx, tx, w.rows); err != nil {
			return fmt.Errorf("write turns: %w", err)
		}
	}
	return nil
}

// publish stores the event about the run's state, if the outcome has one.
func (s *Service) publish(ctx context.Context, tx *db.Tx, o *outcome) error {
	if !o.publish {
		return nil
	}
	r := o.run
	_, err := s.Publisher.Publish(ctx, tx, events.Origin{Tenant: r.Tenant, Project: r.Project}, eventPayload(Object(r, o.calls)))
	return err
}
