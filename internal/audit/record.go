package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"turnpike/internal/db"
)

// recordState is the progress of a record into the log. See the package
// comment.
type recordState uint8

const (
	recordOpen       recordState = iota // not queued yet
	recordDeferred                      // the call has started, and the intent isn't queued yet
	recordQueued                        // the intent is queued
	recordWritten                       // the writer has read the intent
	recordClosing                       // settled before the writer read it: one write
	recordSettling                      // settled after the writer read it: a second write is queued
	recordSettled                       // the writer has read the settled entry
	recordCorrecting                    // changed after that: another write is queued
	recordFailed                        // its write failed permanently
)

type recordEvent uint8

const (
	eventDefer  recordEvent = iota // the call starts, and its intent is queued later
	eventStart                     // the intent is queued
	eventRead                      // the writer reads the entry
	eventSettle                    // the entry is completed or corrected
	eventCommit                    // the entry is written in the transaction of a change
	eventFail                      // its write failed permanently
)

// next is the transition function of records. Events without a transition leave
// the state unchanged.
func (s recordState) next(e recordEvent) recordState {
	switch e {
	case eventDefer:
		if s == recordOpen {
			return recordDeferred
		}
	case eventStart:
		if s.isUnqueued() {
			return recordQueued
		}
	case eventRead:
		switch s {
		case recordQueued:
			return recordWritten
		case recordClosing, recordSettling, recordCorrecting:
			return recordSettled
		}
	case eventSettle:
		switch s {
		case recordOpen, recordDeferred, recordQueued:
			return recordClosing
		case recordWritten:
			return recordSettling
		case recordSettled:
			return recordCorrecting
		}
	case eventCommit:
		return recordSettled
	case eventFail:
		return recordFailed
	}
	return s
}

// isUnqueued reports whether the record was never queued.
func (s recordState) isUnqueued() bool { return s == recordOpen || s == recordDeferred }

// isQueuedAgain reports whether the record waits for a second write.
func (s recordState) isQueuedAgain() bool { return s == recordSettling || s == recordCorrecting }

// isUnread reports whether the writer has not read the record yet.
func (s recordState) isUnread() bool { return s == recordQueued || s == recordClosing }

// wasSettled reports whether the writer has already read the record as settled.
func (s recordState) wasSettled() bool { return s == recordSettled || s == recordCorrecting }

// Record takes one request's entry into the log.
type Record struct {
	log *Log

	mu      sync.Mutex
	state   recordState
	entry   Entry
	pending *db.Pending // the first write; nil until the record is queued
	second  *db.Pending // the write of a record that was queued again
	// mayBeStored means that SettleIn was called. If its commit was in doubt, the entry may be stored.
	mayBeStored bool
	calling     bool        // a call has started, and has no response yet
	deferral    *time.Timer // queues a deferred intent; nil without one
}

// Open begins a record. Nothing is written until Start, Durable or Settle.
func (l *Log) Open(e Entry) *Record { return &Record{log: l, entry: e} }

// Unlogged returns a record that only collects what a job's model call used. It must not be started
// or settled: the end of the job amends the entry of the request that created it.
func Unlogged() *Record { return &Record{} }

// earlier is what may already have stored a settled entry.
type earlier uint8

const (
	earlierNone     earlier = iota
	earlierWrite            // the log, which has charged it
	earlierSettleIn         // SettleIn, whose entry is charged when the job ends
)

// read appends the row to values for the writer, and reports whether no write before can have stored the
// entry. For a settled entry with a charge it returns a copy, and what may have stored it.
func (r *Record) read(values []any, nodeID string) (_ []any, isNew bool, settled *Entry, by earlier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isNew = r.state.isUnread() && !r.mayBeStored
	if r.entry.Settled && (r.entry.Model != "" || r.entry.Hold != nil) && r.log.settle != nil {
		e := r.entry
		settled = &e
		switch {
		case r.mayBeStored:
			by = earlierSettleIn
		case r.state.wasSettled():
			by = earlierWrite
		}
	}
	r.state = r.state.next(eventRead)
	return r.entry.appendRow(values, nodeID), isNew, settled, by
}

// lateFor returns the ID of an entry that log sinks may have missed, or passed as it was before. The
// first settlement of an intent is not among them: sinks wait for it.
func (r *Record) lateFor(floor string) (requestID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	isIntentStored := r.pending != nil && r.pending.Ended() && !r.pending.Failed()
	if r.entry.RequestID >= floor || r.state == recordSettling && isIntentStored {
		return ""
	}
	return r.entry.RequestID
}

// Degraded reports whether the last intents failed to reach the database.
func (r *Record) Degraded() bool { return r.log.intents.Degraded() }

// CreatedAt returns when the request arrived.
func (r *Record) CreatedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.entry.CreatedAt
}

// Entry returns a copy of the entry.
func (r *Record) Entry() *Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry
	return &e
}

// manyCalls share commits so well that waiting for one costs another call less than a second write.
const manyCalls = 8

// Start announces a call to a provider when it starts, and returns immediately. expected is the estimated time
// until the response. The intent is queued, so that it is written while the call runs. If many calls are in progress,
// that of a quick one is deferred until its response: both are then one write, and the response waits
// for a commit. A stream is written twice in any case.
func (r *Record) Start(expected time.Duration, streams bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != recordOpen {
		return
	}
	r.calling = true
	if r.log.calls.Add(1) <= manyCalls || streams || expected >= mostLinger {
		r.queue(intentLinger(expected))
		return
	}
	r.state = r.state.next(eventDefer)
	r.deferral = time.AfterFunc(mostLinger, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue(0)
	})
}

// queue queues the intent, unless the record was queued. The caller holds the lock.
func (r *Record) queue(linger time.Duration) {
	if r.state.isUnqueued() {
		r.state = r.state.next(eventStart)
		r.pending = r.log.intents.AddFor(r, linger)
	}
}

// endCall notes that the call has its response or has failed. The caller holds the lock.
func (r *Record) endCall() {
	if !r.calling {
		return
	}
	r.calling = false
	r.log.calls.Add(-1)
	if r.deferral != nil {
		r.deferral.Stop()
	}
}

// Durable returns when the entry is on disk, or with an error after the limit.
// No byte of a response may be sent before that. It ignores the request's
// context, which ends with the first failed read while a response is still due.
func (r *Record) Durable(limit time.Duration) error {
	r.mu.Lock()
	r.endCall()
	r.queue(0)
	p := r.pending
	r.mu.Unlock()
	return p.WaitFor(limit)
}

// lastWrite returns the write that decides how the entry is stored.
func (r *Record) lastWrite() *db.Pending {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.second != nil {
		return r.second
	}
	return r.pending
}

// Settled returns when the settled entry is on disk, or with an error after the
// limit. If the node crashes before that, the request costs its reservation.
func (r *Record) Settled(limit time.Duration) error { return r.lastWrite().WaitFor(limit) }

// Writing reports whether the settled entry is still being written.
func (r *Record) Writing() bool { return !r.lastWrite().Ended() }

// Settle completes the entry. It doesn't wait for the write.
func (r *Record) Settle(change func(*Entry)) {
	r.mu.Lock()
	if r.entry.Settled {
		r.mu.Unlock()
		return
	}
	change(&r.entry)
	r.entry.Settled = true
	r.complete()()
}

// Refuse corrects an entry that was not durable in time, after Durable. The
// client got an error, so an entry that is written after all must not report
// success or cost anything.
func (r *Record) Refuse(change func(*Entry)) {
	r.mu.Lock()
	change(&r.entry)
	r.entry.Settled = true
	r.entry.free()
	r.complete()()
}

// complete queues the settled entry for writing. The caller holds the lock and
// releases it with the returned function.
func (r *Record) complete() (unlock func()) {
	r.endCall()
	if r.state.isUnqueued() {
		r.pending = r.log.intents.Add(r)
	} else if !r.state.isQueuedAgain() && r.pending.Failed() {
		r.giveUp()
		return r.mu.Unlock
	}
	r.state = r.state.next(eventSettle)
	switch {
	case r.state.isQueuedAgain():
		r.second = r.log.settlements.AddFor(r, settleLinger(r.entry.Latency))
	case r.state == recordClosing && r.entry.Hold != nil:
		p := r.pending
		return func() {
			r.mu.Unlock()
			p.Then(r.releaseIfFailed)
		}
	}
	return r.mu.Unlock
}

// releaseIfFailed handles the end of a write that contained both intent and
// settlement.
func (r *Record) releaseIfFailed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending.Failed() && !r.state.isQueuedAgain() {
		r.giveUp()
	}
}

// maxInDoubt limits the entries without a reservation that are kept for a retry,
// so that an outage can't fill the memory.
const maxInDoubt = 10_000

// giveUp ends a record that could not be written. Nothing was acknowledged: the
// client gets a 503. If the commit is in doubt, it writes the entry again, because
// a stored one would report success and block the credits of a reservation. The
// caller holds the lock.
func (r *Record) giveUp() {
	inDoubt := errors.Is(r.pending.Wait(context.Background()), db.ErrInDoubt)
	if inDoubt && (r.entry.Hold != nil || r.log.settlements.Len() < maxInDoubt) {
		r.state = r.state.next(eventSettle)
		r.second = r.log.settlements.Add(r)
		return
	}
	r.state = r.state.next(eventFail)
	if r.entry.Hold != nil {
		r.entry.Hold.Release()
	}
}

// Note changes an entry that isn't settled yet.
func (r *Record) Note(change func(*Entry)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.entry.Settled {
		change(&r.entry)
	}
}

// SettleIn completes the entry in the transaction of a change, so that both
// share one commit. If the transaction fails, Settle can still be called. It
// doesn't charge a model call: the job that it creates does when it ends.
func (r *Record) SettleIn(ctx context.Context, tx *db.Tx, change func(*Entry)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mayBeStored = true
	settled := r.entry
	change(&settled)
	settled.Settled = true
	if err := r.log.node.AssertAlive(tx); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	floor := r.log.feed.begin(tx)
	if _, err := insertRequests.Write(ctx, tx, [][]any{settled.appendRow(nil, r.log.node.ID)}); err != nil {
		return fmt.Errorf("request log: %w", err)
	}
	if settled.RequestID < floor {
		if err := markPending(ctx, tx, settled.RequestID); err != nil {
			return err
		}
	}
	tx.OnCommit(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.endCall()
		r.entry, r.state, r.pending = settled, r.state.next(eventCommit), db.Written
	})
	return nil
}

// Amend changes the entry of a request whose work continued after its response,
// in the transaction that ends the work. It returns the changed entry, or nil
// if the log no longer has it.
func Amend(ctx context.Context, tx *db.Tx, requestID string, change func(*Entry)) (*Entry, error) {
	e, err := scanEntry(tx.QueryRow(ctx, "SELECT "+entryColumns+" FROM requests WHERE id = $1"+tx.Lock("requests"), requestID))
	if errors.Is(err, db.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("request log: %w", err)
	}
	change(e)
	_, err = tx.Exec(ctx, `UPDATE requests SET model = $2, provider = $3, credits = $4, simulated_credits = $5, unbilled_credits = $6,
		usage_source = $7, price_version = $8, input_tokens = $9, output_tokens = $10, cached_tokens = $11, attempts = $12, upstream_us = $13, error_code = $14, status = $15,
		requested_model = $16, failure = $17, first_token_us = $18 WHERE id = $1`,
		requestID, db.OrNull(e.Model), db.OrNull(e.Provider), int64(e.Credits), int64(e.SimulatedCredits),
		int64(e.UnbilledCredits), db.OrNull(e.UsageSource), db.OrNull(e.PriceVersion), db.Number(e.InputTokens), db.Number(e.OutputTokens), db.Number(e.CachedTokens),
		db.OrNull(string(e.Attempts)), db.NullInt(e.Upstream.Microseconds()), db.OrNull(e.ErrorCode), db.NullInt(int64(e.Status)),
		db.OrNull(e.storedRequest()), db.OrNull(string(e.Failure)), db.NullInt(e.FirstToken.Microseconds()))
	if err == nil {
		err = markPending(ctx, tx, requestID)
	}
	return e, db.Wrap(err, "request log")
}
