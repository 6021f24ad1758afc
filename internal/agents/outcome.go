package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/events"
)

// outcome is what a turn of a run came to: the run as it is from then on, and
// the rows that changed with it.
type outcome struct {
	run      *Run
	turn     int64 // that it was worked in: the guard
	step     *Step
	calls    []*Call
	messages []json.RawMessage
	log      []entry
	tell     bool      // an event follows from the state
	lost     bool      // another node has the run, and this counts for nothing
	since    time.Time // when the model or a judge could have been asked first
}

// begin starts an outcome of the run as it is now.
func begin(r *Run) *outcome {
	copied := *r
	return &outcome{run: &copied, turn: r.Turn}
}

// say adds a line to the run's log.
func (o *outcome) say(kind string, data any) { o.log = append(o.log, entry{kind, data}) }

// sayDone logs what came of a call.
func (o *outcome) sayDone(c *Call) {
	o.say("tool_call.completed", map[string]any{"call_id": c.ID, "tool": c.Tool, "is_error": c.IsError, "simulated": c.Simulated, "output": c.Output})
}

// move changes the run's state and logs it.
func (o *outcome) move(to Status) error {
	from := o.run.Status
	if err := o.run.move(to); err != nil {
		return err
	}
	if from != to {
		o.say("run."+string(to), map[string]any{"status": to})
	}
	return nil
}

// again has the run worked once more, now or later.
func (o *outcome) again(at time.Time) { o.run.DueAt = &at }

// end ends the run.
func (o *outcome) end(to Status, why *events.AgentError, now time.Time) error {
	if err := o.run.move(to); err != nil {
		return err
	}
	o.run.CompletedAt, o.run.DueAt, o.run.Error = &now, nil, why
	o.tell = true
	o.say("run."+string(to), map[string]any{"status": to, "error": why})
	return nil
}

func failure(code, format string, args ...any) *events.AgentError {
	return &events.AgentError{Code: code, Message: fmt.Sprintf(format, args...)}
}

var errCancelled = failure("cancelled", "the run was cancelled")

// stored is what a run's row has at the moment, of what matters here.
type stored struct {
	status                 Status
	turn, messages, logged int64
}

// writeOutcomes is the group commit of turns.
func (s *Service) writeOutcomes(ctx context.Context, tx *db.Tx, list []*outcome) error {
	// In the order of their ids, as everybody locks them.
	slices.SortFunc(list, func(a, b *outcome) int { return cmp.Compare(a.run.ID, b.run.ID) })
	have, err := lockRuns(ctx, tx, list)
	if err != nil {
		return err
	}
	now := s.now()
	news := make([]*outcome, 0, len(list))
	for _, o := range list {
		row, there := have[o.run.ID]
		if o.lost = !there || row.turn != o.turn; o.lost {
			continue
		}
		delete(have, o.run.ID) // a second one would be too late
		if row.status == Cancelling && o.run.Status != Cancelling && o.run.Status != Cancelled {
			o.heed(now)
		}
		o.run.Turn, o.run.Messages, o.run.Logged = o.turn+1, row.messages+int64(len(o.messages)), row.logged+int64(len(o.log))
		news = append(news, o)
	}
	if err := writeRows(ctx, tx, news, now); err != nil {
		return err
	}
	for _, o := range news {
		if err := s.tell(ctx, tx, o); err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		for _, o := range news {
			s.watchers.wake(o.run.ID)
		}
	})
	return nil
}

// heed is a cancel that came while the turn was worked: what it came to is
// kept, and is not the end that it would have been.
func (o *outcome) heed(now time.Time) {
	r := o.run
	o.log = slices.DeleteFunc(o.log, func(e entry) bool { return strings.HasPrefix(e.kind, "run.") })
	r.Status, r.CompletedAt, r.Error, r.Result = Cancelling, nil, nil, nil
	r.DueAt, o.tell = &now, false
}

func lockRuns(ctx context.Context, tx *db.Tx, list []*outcome) (map[string]stored, error) {
	args, marks := make([]any, len(list)), make([]string, len(list))
	for i, o := range list {
		args[i], marks[i] = o.run.ID, fmt.Sprintf("$%d", i+1)
	}
	out := make(map[string]stored, len(list))
	rows, err := tx.Query(ctx, "SELECT id, status, turn, messages, logged FROM agent_runs WHERE id IN ("+strings.Join(marks, ", ")+") ORDER BY id"+tx.Lock("agent_runs"), args...)
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		var st stored
		err := r.Scan(&id, (*string)(&st.status), &st.turn, &st.messages, &st.logged)
		out[id] = st
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return out, nil
}

func writeRows(ctx context.Context, tx *db.Tx, list []*outcome, now time.Time) error {
	var runs, steps, calls, messages, entries [][]any
	for _, o := range list {
		row, err := o.run.row()
		if err != nil {
			return err
		}
		runs = append(runs, row)
		if o.step != nil {
			if row, err = o.step.row(); err != nil {
				return err
			}
			steps = append(steps, row)
		}
		for _, c := range o.calls {
			calls = append(calls, c.row())
		}
		for i, m := range o.messages {
			messages = append(messages, []any{o.run.ID, o.run.Messages - int64(len(o.messages)-i), string(m)})
		}
		for i, e := range o.log {
			data, err := json.Marshal(e.data)
			if err != nil {
				return err
			}
			entries = append(entries, []any{o.run.ID, o.run.Logged - int64(len(o.log)-i-1), e.kind, string(data), now.UnixMicro()})
		}
	}
	for _, w := range []struct {
		bulk *db.Bulk
		rows [][]any
	}{{writeSteps, steps}, {writeCalls, calls}, {insertMessages, messages}, {insertEntries, entries}, {saveRuns, runs}} {
		if len(w.rows) == 0 {
			continue
		}
		if _, err := w.bulk.Write(ctx, tx, w.rows); err != nil {
			return fmt.Errorf("write turns: %w", err)
		}
	}
	return nil
}

// tell publishes the event that follows from the state.
func (s *Service) tell(ctx context.Context, tx *db.Tx, o *outcome) error {
	if !o.tell {
		return nil
	}
	r := o.run
	_, err := s.publisher.Publish(ctx, tx, events.Origin{WorkspaceID: r.WorkspaceID, Environment: string(r.Environment), Project: r.Project}, announced(Object(r, o.calls)))
	return err
}
