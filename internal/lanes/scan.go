package lanes

import (
	"log/slog"
	"math/bits"
	"time"
)

// This file decides when to scan a lane, and handles the result. A scan costs
// queries, so a busy lane is scanned only for a reason: work was enqueued, an
// item is due again, or the next due time is unknown. The runner's lock is held
// throughout, except while the store and the source are read.

// nextIsDue reports whether an item that was due later is due by now.
func (r *Runner[T]) nextIsDue(l *lane[T]) bool {
	return !l.nextDue.IsZero() && !l.nextDue.After(r.Now())
}

// earliest returns the earlier of a and b, ignoring zero times.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// scheduleRest decides when to scan for the rest of an item whose outcome was
// written, regardless of running items of the lane.
func (r *Runner[T]) scheduleRest(l *lane[T], k Key, seen sighting, result Result) {
	if result.Outcome.Failed() {
		result.Done, result.Due = false, nil // the stored item is unchanged
	}
	if seen.seq < l.foreignSeq {
		l.doubt(gapped) // the item itself may have been enqueued, with another due time than its result has
	}
	switch {
	case seen.Key != k: // it was enqueued again while it ran
		l.requestScan(scanStart(min(k.Due, seen.Due)))
		l.doubt(nextUnknown)
	case result.Done:
	case result.Due == nil:
		l.requestScan(scanStart(k.Due))
		l.doubt(nextUnknown)
	case result.Due.After(r.Now()):
		l.nextDue = earliest(l.nextDue, *result.Due)
	default:
		l.requestScan(scanStart(result.Due.UnixMicro()))
	}
}

// settleIdle records since when an idle lane has nothing to do, or schedules a
// scan. Before a lane is released, the node must know its next due time.
func (r *Runner[T]) settleIdle(l *lane[T]) {
	if l.phase != idle {
		return
	}
	if l.coverage != complete || r.nextIsDue(l) {
		l.requestScan(fromCursor)
	}
	if l.scanFrom == noScan && l.idleSince.IsZero() {
		l.idleSince = time.Now()
	}
}

// pollLane requests the scans that no signal requests: for items that have
// become due, and for gaps of the last scan.
func (r *Runner[T]) pollLane(l *lane[T]) {
	switch {
	case l.phase == scanning:
	case l.truncated:
		// The scans continue. Restarting is useful only if the scan gets past
		// the known items, which it sees again.
		if l.coverage == gapped && 2*len(l.known) <= r.scanLimit(l) {
			l.requestScan(fromStart)
		}
	case len(l.buffer) > 0:
	case l.coverage == gapped:
		l.requestScan(fromStart)
	case l.coverage == nextUnknown:
		l.requestScan(fromCursor)
	case r.nextIsDue(l):
		l.requestScan(scanStart(l.nextDue.UnixMicro()))
	}
	r.schedule(l)
}

// scanLimit returns how many items a scan of the lane may return. A single lane
// gets a large buffer. With many lanes turns are rare, and buffered items take
// memory. It is a power of two, because sources may prepare a statement per
// number.
func (r *Runner[T]) scanLimit(l *lane[T]) int {
	waiting := 0
	for h := range r.ready {
		waiting += r.ready[h].size()
	}
	n := min(8*l.limit, max(minScan, maxBuffered/(1+waiting)))
	return 1 << (bits.Len(uint(n)) - 1)
}

// scan is a scan in progress.
type scan struct {
	after    Key
	limit    int
	fromIdle bool      // nothing was in hand when it began
	coverage coverage  // of the lane before the scan
	nextDue  time.Time // of the lane before the scan, unless it was due
	wasDue   bool      // it was
}

// startScan fetches the lane's due items.
func (r *Runner[T]) startScan(l *lane[T]) {
	s := scan{after: l.cursor, limit: r.scanLimit(l), fromIdle: l.phase == idle, coverage: l.coverage, wasDue: r.nextIsDue(l)}
	switch {
	case s.fromIdle:
		s.after = Key{} // an idle lane has no known items that the scan would see again
	case int64(l.scanFrom) <= l.cursor.Due:
		s.after = Key{Due: int64(l.scanFrom)}
	}
	if s.after == (Key{}) {
		s.coverage = min(s.coverage, nextUnknown)
	}
	if !s.wasDue {
		s.nextDue = l.nextDue
	}
	l.transition(scanning)
	l.scanFrom, l.coverage, l.nextDue = noScan, complete, time.Time{} // changed by what the scan may not see
	l.finished = map[string]sighting{}
	r.scans++
	r.goroutines.Go(func() {
		seq, err := r.store.seq(r.workCtx, l.id)
		var b Batch[T]
		if err == nil {
			b, err = r.source.Fetch(r.workCtx, l.id, s.after, s.limit)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.scans--
		defer r.dispatch()
		if l.phase == lost {
			return
		}
		if err != nil {
			slog.Warn("failed to scan a lane; retrying", "queue", r.Queue, "lane", l.id, "err", err, "retry_in", r.Poll)
			l.requestScan(scanStart(s.after.Due)) // scheduled by the next poll
			l.doubt(max(s.coverage, nextUnknown))
			l.nextDue = earliest(l.nextDue, s.nextDue)
			l.rest()
			r.wakeIfDrained(l)
			return
		}
		r.addScanned(l, s, seq, b)
		l.rest()
		r.settleIdle(l)
		r.schedule(l)
		r.wakeIfDrained(l)
	})
}

// addScanned adds the result of a scan to the lane.
func (r *Runner[T]) addScanned(l *lane[T], s scan, seq int64, b Batch[T]) {
	enqueued := seq != l.seq
	if l.seq = seq; enqueued {
		l.foreignSeq = seq
		if s.after != (Key{}) {
			l.doubt(gapped)
		}
	}
	for _, item := range b.Items {
		k := item.Key()
		l.cursor = k
		if was, ok := l.finished[k.ID]; ok {
			// The scan saw the item before its result was written, or after it
			// was enqueued again.
			if enqueued || was.Key != k {
				l.requestScan(scanStart(k.Due))
			}
			continue
		}
		l.add(item)
	}
	l.finished = nil
	l.nextDue = earliest(l.nextDue, b.Next)
	if l.truncated = len(b.Items) >= s.limit; l.truncated {
		l.requestScan(fromCursor)
	}
	if len(b.Items) == 0 && !b.Rescan {
		if s.fromIdle {
			s.coverage = complete
		} else if s.coverage == nextUnknown {
			s.coverage = needsFinalScan
		}
		if l.doubt(s.coverage); l.coverage == gapped {
			l.requestScan(fromStart) // only the part after the cursor was empty
		}
		return
	}
	l.idleSince = time.Time{}
	l.doubt(max(s.coverage, needsFinalScan))
	// Only an empty scan has Batch.Next. The earlier value holds if it wasn't due
	// and nothing was enqueued.
	l.nextDue = earliest(l.nextDue, s.nextDue)
	if enqueued || s.wasDue || b.Rescan {
		l.doubt(nextUnknown)
	}
	if b.Rescan {
		l.requestScan(fromStart) // the source may have changed any item
	}
}
