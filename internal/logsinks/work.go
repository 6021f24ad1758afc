package logsinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/nodes"
)

const (
	// batchEntries limits the memory and what a crash repeats.
	batchEntries = 1000
	// batchBytes limits a request, by an estimate. Collectors accept 4 MiB or more by default.
	batchBytes = 4 << 20
	// pollInterval is the wait after everything was read.
	pollInterval = 2 * time.Second
	// pendingInterval is how often a sink looks for pending entries that have settled. It reads all of them,
	// and requests that take minutes are among them.
	pendingInterval = 10 * time.Second
	// storeInterval is how often a position is stored that has no new entries before it.
	storeInterval = time.Minute
	sendTimeout   = 30 * time.Second
)

// errForgotten means that the sink's row was deleted. The next attempt stores a new one.
var errForgotten = errors.New("the log sink was deleted from the database; it starts again with new entries")

// worker is a sink on the node that has the claim.
type worker struct {
	*Sink
	claim  *nodes.Claim
	sender Sender

	position  string
	storedAt  time.Time // when the position was stored
	pendingAt time.Time // when pending entries were read
	accepting bool      // the system has accepted an entry, and refused none alone since
}

// run sends until ctx ends or something fails.
func (w *worker) run(ctx context.Context) (err error) {
	if w.position, err = w.register(ctx); err != nil {
		return err
	}
	if w.sender, err = w.Open(ctx); err != nil {
		return err
	}
	defer w.sender.Close()
	for {
		more, err := w.sendNext(ctx)
		if err != nil {
			return err
		}
		if time.Since(w.pendingAt) >= pendingInterval {
			if err := w.sendPending(ctx); err != nil {
				return err
			}
			w.pendingAt = time.Now()
		}
		if more {
			continue
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendNext sends the next batch of the log and reports whether there is more. It reads the floors first, so
// that every entry below them is visible.
func (w *worker) sendNext(ctx context.Context) (more bool, err error) {
	floors, err := audit.ReadFloors(ctx, w.DB)
	if err != nil {
		return false, err
	}
	if w.position == "" {
		return false, w.start(ctx, floors)
	}
	if floors.Lowest <= w.position {
		return false, nil
	}
	list, err := audit.ReadBetween(ctx, w.DB, w.position, floors.Lowest, batchEntries)
	if err != nil {
		return false, err
	}
	more = len(list) == batchEntries
	next := floors.Lowest
	if more {
		next = list[len(list)-1].RequestID
	}
	if len(list) == 0 && time.Since(w.storedAt) < storeInterval {
		w.position = next
		return false, nil
	}
	var settled []*audit.Entry
	var open []string
	for _, e := range list {
		if e.Settled {
			settled = append(settled, e)
		} else {
			open = append(open, e.RequestID)
		}
	}
	if err := w.send(ctx, settled); err != nil {
		return false, err
	}
	return more, w.store(ctx, next, len(settled), func(tx *db.Tx) error { return audit.AddPending(ctx, tx, w.Name, open) })
}

// start begins with new entries, once every node marks the late ones. Up to the highest floor, a transaction
// may still commit a late entry that it couldn't mark for this sink.
func (w *worker) start(ctx context.Context, floors audit.Floors) error {
	if floors.Lowest == "" {
		return nil
	}
	slog.Info("sending the request log from now on", "sink", w.Name)
	return w.store(ctx, floors.Highest, 0, func(*db.Tx) error { return nil })
}

// sendPending sends the pending entries that have settled.
func (w *worker) sendPending(ctx context.Context) error {
	for after := ""; ; {
		list, err := audit.ReadPending(ctx, w.DB, w.Name, after, batchEntries)
		if err != nil || len(list) == 0 {
			return err
		}
		entries := make([]*audit.Entry, len(list))
		for i, p := range list {
			entries[i] = p.Entry
		}
		if err := w.send(ctx, entries); err != nil {
			return err
		}
		if err := w.store(ctx, w.position, len(list), func(tx *db.Tx) error { return audit.RemovePending(ctx, tx, w.Name, list) }); err != nil {
			return err
		}
		after = list[len(list)-1].RequestID
	}
}

// send sends entries. It leaves out those that the system refuses even alone, unless it refuses all others too: then
// the system is at fault rather than the entries.
func (w *worker) send(ctx context.Context, list []*audit.Entry) error {
	var d delivery
	for _, part := range split(list) {
		if err := w.deliver(ctx, part, &d); err != nil {
			return err
		}
	}
	if len(d.refused) > 0 {
		if d.accepted == 0 && !(w.accepting && len(list) == 1) {
			return d.cause
		}
		w.rejected.Add(int64(len(d.refused)))
		slog.Warn("the log sink refused entries of the request log; they aren't sent again", "sink", w.Name, "entries", len(d.refused),
			"first_request_id", d.refused[0].RequestID, "error", d.cause)
	}
	if len(list) > 0 {
		w.accepting = d.accepted > 0
	}
	return nil
}

// delivery is what became of a batch.
type delivery struct {
	accepted int64
	refused  []*audit.Entry // each of them alone
	cause    *RefusedError  // of the last one
}

// deliver sends entries, and the halves of those that are refused together.
func (w *worker) deliver(ctx context.Context, list []*audit.Entry, d *delivery) error {
	n, err := w.request(ctx, list)
	var refused *RefusedError
	if !errors.As(err, &refused) {
		d.accepted += n
		return err
	}
	if len(list) == 1 {
		d.refused, d.cause = append(d.refused, list[0]), refused
		return nil
	}
	half := len(list) / 2
	if err := w.deliver(ctx, list[:half], d); err != nil {
		return err
	}
	return w.deliver(ctx, list[half:], d)
}

// request sends entries together, and returns how many the system has accepted.
func (w *worker) request(ctx context.Context, list []*audit.Entry) (accepted int64, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, fmt.Errorf("no acknowledgment within %v", sendTimeout))
	defer cancel()
	accepted = int64(len(list))
	err = w.sender.Send(ctx, list)
	if rejected := (*RejectedError)(nil); errors.As(err, &rejected) {
		w.rejected.Add(rejected.Entries)
		slog.Warn("the log sink rejected entries of the request log; they aren't sent again", "sink", w.Name, "entries", rejected.Entries, "message", rejected.Message)
		return accepted - rejected.Entries, nil
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return accepted, err
}

// split divides entries into requests.
func split(list []*audit.Entry) (parts [][]*audit.Entry) {
	from, size := 0, 0
	for i, e := range list {
		// Field names and short values take about a kilobyte.
		n := 1<<10 + len(e.Path) + len(e.UserAgent) + len(e.TokenMetadata) + len(e.Attempts) + len(e.Failure)
		if size += n; size > batchBytes && i > from {
			parts = append(parts, list[from:i])
			from, size = i, n
		}
	}
	if from < len(list) {
		parts = append(parts, list[from:])
	}
	return parts
}

// store stores the position and the number of sent entries. It fails if another node has taken over the work.
func (w *worker) store(ctx context.Context, position string, sent int, change func(*db.Tx) error) error {
	ctx = context.WithoutCancel(ctx) // what was sent must not be sent again because this node stops
	err := w.DB.Write(ctx, func(tx *db.Tx) error {
		if err := w.claim.Check(ctx, tx); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, "UPDATE log_sinks SET position = $2, sent = sent + $3, seen_at = $4, failures = 0, failed_at = NULL, failure = NULL WHERE name = $1",
			w.Name, position, int64(sent), w.now().UnixMicro())
		if err == nil && n == 0 {
			err = errForgotten
		}
		if err != nil {
			return err
		}
		return change(tx)
	})
	if err == nil {
		w.position, w.storedAt = position, time.Now()
	}
	return db.Wrap(err, "store the position of a log sink")
}
