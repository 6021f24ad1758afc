package lanes

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// phase is the state of a leased lane. The package comment has a diagram.
type phase uint8

const (
	idle      phase = iota // nothing is buffered or running
	working                // items are buffered, running or not written yet
	scanning               // a scan is in progress; items may be running
	releasing              // a transaction releases the lease
	lost                   // the lease is gone
)

func (p phase) String() string {
	return [...]string{"idle", "working", "scanning", "releasing", "lost"}[p]
}

// nextPhases are the transitions of the diagram.
var nextPhases = [...][]phase{
	idle:      {working, scanning, releasing, lost},
	working:   {idle, scanning, lost},
	scanning:  {idle, working, lost},
	releasing: {idle, lost},
	lost:      {},
}

// scanStart is where the next scan of a lane begins: at a due time in
// microseconds, or at one of the constants. The smaller of two covers both.
type scanStart int64

const (
	fromStart  scanStart = 0
	fromCursor scanStart = math.MaxInt64 - 1 // after the last item that a scan saw
	noScan     scanStart = math.MaxInt64
)

// coverage is how much of a lane's work the node knows. A larger value needs a
// wider scan. All but complete need one before the lane is released.
type coverage uint8

const (
	complete       coverage = iota // all due items are known, and so is nextDue
	needsFinalScan                 // the same, but an item may have been changed without an enqueue while it ran
	nextUnknown                    // nextDue isn't known: scan from the cursor at the next poll
	gapped                         // an item may be due before the cursor: scan from the start at the next poll
)

// health is the recent behavior of a lane.
type health uint8

const (
	unknown health = iota // none of its items has run yet
	healthy               // its last item ran in time
	slow                  // its last item was slow or failed
	healths               // the number of values
)

// history is the state that a node keeps of a released lane.
type history struct {
	health health
	turn   uint64 // the lane's next turn, in the queue of lanes with this health
}

// sighting is the position where a scan last saw an item, and the lane's seq
// when the item was first seen.
type sighting struct {
	Key
	seq int64
}

// lane is a lane that this node leases.
type lane[T Item] struct {
	id string
	history
	phase     phase
	claimedAt time.Time
	started   bool         // an item has started since claimedAt
	queue     *runQueue[T] // the queue in which the lane waits; may be nil
	pinned    bool         // to this node
	givenTo   string       // the node that gets the lane once nothing is in flight; until then it starts no items

	buffer   []T
	running  int
	inFlight int // items that are running or not written yet
	limit    int // of running items
	streak   int // of healthy items, to raise the limit
	pace     pace
	known    map[string]sighting // items that are buffered or in flight

	scanFrom   scanStart
	coverage   coverage
	truncated  bool                // the last scan returned as many items as it could
	cursor     Key                 // the last item that a scan saw
	seq        int64               // of the last scan
	foreignSeq int64               // of the last scan before which something was enqueued unseen
	finished   map[string]sighting // items that were written during the scan in progress
	nextDue    time.Time           // when an item that isn't due yet is due; zero if none is known
	idleSince  time.Time           // zero while there is something to do
}

// transition moves the lane to a phase. It panics if the diagram has no such
// transition, because continuing could run items of another node's lane.
func (l *lane[T]) transition(to phase) {
	if l.phase != to && !slices.Contains(nextPhases[l.phase], to) {
		panic(fmt.Sprintf("lanes: lane %s can't change from %s to %s", l.id, l.phase, to))
	}
	l.phase = to
}

// rest moves a lane without a scan in progress to working or idle.
func (l *lane[T]) rest() {
	if l.inFlight > 0 || len(l.buffer) > 0 {
		l.transition(working)
	} else {
		l.transition(idle)
	}
}

// requestScan schedules a scan of the lane, from the given position or an
// earlier one.
func (l *lane[T]) requestScan(from scanStart) { l.scanFrom = min(l.scanFrom, from) }

// doubt lowers the coverage.
func (l *lane[T]) doubt(c coverage) { l.coverage = max(l.coverage, c) }

// pace spaces the starts of a lane's items. The zero value doesn't.
type pace struct {
	interval time.Duration
	next     time.Time // the next start
	timer    bool      // a timer will schedule the lane
}

// wait returns how long the lane's next item has to wait.
func (p *pace) wait(now time.Time) time.Duration {
	if p.interval == 0 {
		return 0
	}
	return p.next.Sub(now)
}

// start records the start of an item. A start that was late by less than the interval doesn't
// delay the next one.
func (p *pace) start(now time.Time) {
	if oldest := now.Add(-p.interval); p.next.Before(oldest) {
		p.next = oldest
	}
	p.next = p.next.Add(p.interval)
}

// add buffers an item unless it is already buffered or running. For a known
// item it records the position: a different one means that it was enqueued
// again.
func (l *lane[T]) add(item T) (added bool) {
	k := item.Key()
	if s, ok := l.known[k.ID]; ok {
		s.Key = k
		l.known[k.ID] = s
		return false
	}
	l.known[k.ID] = sighting{k, l.seq}
	l.buffer = append(l.buffer, item)
	return true
}
