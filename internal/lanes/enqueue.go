package lanes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
)

// upsert adds work to lanes. A higher seq stops a node from releasing the lane
// before it has seen the work.
var upsert = db.NewBulk("lanes", `ON CONFLICT (queue, id) DO UPDATE SET seq = lanes.seq + excluded.seq,
	due_at = CASE WHEN lanes.due_at IS NULL OR lanes.due_at > excluded.due_at THEN excluded.due_at ELSE lanes.due_at END`,
	"queue text", "id text", "due_at bigint", "seq bigint")

var upsertRead = upsert.Returning(leasedColumns)

// maxSignal limits the lanes that a signal names; PostgreSQL allows 8,000 bytes.
const maxSignal = 128

// enqueue marks lanes as having work from given times on.
type enqueue struct {
	queue string
	due   map[string]time.Time
	// then is called after the commit with the new seqs, unless there are more
	// than maxSignal lanes. It may be nil.
	then func(seqs map[string]int64)
}

// enqueues are written after everything else in the transaction except budgets,
// in one pass ordered by ID. Every transaction locks lanes in that order, so two
// nodes can't deadlock.
var enqueues = db.NewLast(func(ctx context.Context, tx *db.Tx, list []enqueue) error {
	byQueue := map[string][]enqueue{}
	for _, e := range list {
		byQueue[e.queue] = append(byQueue[e.queue], e)
	}
	for _, queue := range slices.Sorted(maps.Keys(byQueue)) {
		if err := writeEnqueues(ctx, tx, queue, byQueue[queue]); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}).BeforeOthers()

// Enqueue marks lanes as having work from the given times on. Call it in the
// transaction that stores the work, which writes the marks at its end.
func Enqueue(_ context.Context, tx *db.Tx, queue string, due map[string]time.Time) error {
	enqueues.Add(tx, enqueue{queue: queue, due: due})
	return nil
}

// EnqueueNow is Enqueue for items that are due now, in the order of their keys.
// A lane that this node leases and knows completely gets them after the commit
// without a scan.
func (r *Runner[T]) EnqueueNow(_ context.Context, tx *db.Tx, items map[string][]T, now time.Time) error {
	due := make(map[string]time.Time, len(items))
	for id := range items {
		due[id] = now
	}
	enqueues.Add(tx, enqueue{r.Queue, due, func(seqs map[string]int64) { r.addEnqueued(items, seqs) }})
	return nil
}

func writeEnqueues(ctx context.Context, tx *db.Tx, queue string, list []enqueue) error {
	rows := map[string][]any{}
	for _, e := range list {
		for id, at := range e.due {
			due, seq := at.UnixMicro(), int64(1)
			if row := rows[id]; row != nil { // count each: the code behind one of them doesn't know the others
				due, seq = min(due, row[2].(int64)), row[3].(int64)+1
			}
			rows[id] = []any{queue, id, due, seq}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(rows))
	sorted := make([][]any, len(names))
	for i, id := range names {
		sorted[i] = rows[id]
	}
	if len(names) > maxSignal {
		tx.Signal(signalOf(queue), "")
		return upsert.Send(ctx, tx, sorted, nil)
	}
	seqs := make(map[string]int64, len(names))
	err := upsertRead.Read(ctx, tx, sorted, func(r db.Row) error {
		l, err := scanLeasedLane(r)
		seqs[l.id] = l.seq
		return err
	})
	if err != nil {
		return err
	}
	tx.Signal(signalOf(queue), signalPayload(names, seqs))
	for _, e := range list {
		if e.then != nil {
			tx.OnCommit(func() { e.then(seqs) })
		}
	}
	return nil
}

// signalPayload names lanes with their seqs, so that a node that has seen as much
// of them doesn't scan.
func signalPayload(names []string, seqs map[string]int64) string {
	list := make([]string, len(names))
	for i, id := range names {
		list[i] = fmt.Sprintf("%s:%d", id, seqs[id])
	}
	return strings.Join(list, ",")
}

func signalOf(queue string) string { return "lanes." + queue }
