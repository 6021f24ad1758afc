package lanes

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// This file divides lanes among nodes. A signal that names several lanes is claimed in equal parts, so that the
// node that enqueued the work doesn't take them all. Later a node that has more lanes with a backlog than another
// gives some of them to it, once nothing of them is in flight.

const (
	// defaultImbalance is how many more lanes with a backlog a node has than another, at least, before it gives
	// some away. Each is scanned again there.
	defaultImbalance = 4
	// giveLease is the lease of a lane that was given away. If its new node doesn't renew it, others claim it.
	giveLease = 3 * time.Second
	// claimPause is how long a node leaves lanes to the others after it has claimed its part.
	claimPause = 50 * time.Millisecond
)

// peer is what another node has said about itself.
type peer struct {
	busy  int // lanes with a backlog
	heard time.Time
}

// leavingLoad is the load of a node that stops.
const leavingLoad = -1

func loadTopic(queue string) string { return signalOf(queue) + ".load" }

func giveTopic(queue string) string { return signalOf(queue) + ".given" }

func loadPayload(node string, busy int) string { return node + " " + strconv.Itoa(busy) }

// onLoad records the load of another node.
func (r *Runner[T]) onLoad(payload string) {
	node, text, _ := strings.Cut(payload, " ")
	busy, err := strconv.Atoi(text)
	if err != nil || node == r.Node {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if busy == leavingLoad {
		delete(r.peers, node)
		return
	}
	if _, known := r.peers[node]; !known { // it doesn't know this node either
		r.renewNow = true
		r.wakeUp(0)
	}
	r.peers[node] = peer{busy, time.Now()}
}

// onGiven is called when a node gave lanes to another, or may have. The renewal finds those of this node.
func (r *Runner[T]) onGiven(node string) {
	if node != "" && node != r.Node {
		return
	}
	r.mu.Lock()
	r.renewNow = true
	r.mu.Unlock()
	r.wakeUp(0)
}

// forgetPeers drops nodes that haven't renewed their leases.
func (r *Runner[T]) forgetPeers() {
	maps.DeleteFunc(r.peers, func(_ string, p peer) bool { return time.Since(p.heard) > leaseDuration })
}

// partOf returns how many of the lanes in a signal this node may claim at first.
func (r *Runner[T]) partOf(lanes int) int {
	if len(r.peers) == 0 {
		return math.MaxInt
	}
	return (lanes + len(r.peers)) / (len(r.peers) + 1)
}

// hasBacklog reports whether the lane has more work than it runs.
func (l *lane[T]) hasBacklog() bool {
	return l.givenTo == "" && l.health == healthy && (len(l.buffer) > 0 || l.truncated)
}

// load counts the lanes with a backlog.
func (r *Runner[T]) load() (busy int) {
	if r.stopping {
		return leavingLoad
	}
	for _, l := range r.lanes {
		if l.hasBacklog() {
			busy++
		}
	}
	return busy
}

// differs reports whether one load is much higher than another.
func (r *Runner[T]) differs(high, low int) bool { return high-low >= max(r.imbalance, high/4) }

// loadChanged reports whether the load is far from what the other nodes know.
func (r *Runner[T]) loadChanged() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := r.load()
	return len(r.peers) > 0 && r.differs(max(busy, r.announced), min(busy, r.announced))
}

// balance chooses lanes for the node with the least load, if it has much less than this one. They start no more
// items, and giveDrained gives them away. Those that it chose at the last poll and that are still in flight stay.
func (r *Runner[T]) balance() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var late []*lane[T]
	for _, l := range r.lanes {
		if l.givenTo != "" {
			l.givenTo = ""
			late = append(late, l)
			r.schedule(l)
		}
	}
	r.forgetPeers()
	target, least := "", math.MaxInt
	for _, node := range slices.Sorted(maps.Keys(r.peers)) {
		if p := r.peers[node]; p.busy < least {
			target, least = node, p.busy
		}
	}
	busy := r.load()
	if r.MoveBacklogs && target != "" && r.differs(busy, least) {
		n := (busy - least + 1) / 2
		p := r.peers[target]
		for _, l := range r.lanes {
			if n > 0 && !l.pinned && l.hasBacklog() && !slices.Contains(late, l) {
				l.givenTo = target
				p.busy++
				n--
			}
		}
		r.peers[target] = p
	}
	r.dispatch()
}

// drained reports whether a lane that was chosen for another node can be given away. A scan must end first, because
// its source may change items.
func (l *lane[T]) drained() bool {
	return l.givenTo != "" && l.inFlight == 0 && (l.phase == idle || l.phase == working)
}

// wakeIfDrained wakes maintainLeases to give the lane away.
func (r *Runner[T]) wakeIfDrained(l *lane[T]) {
	if l.drained() {
		r.wakeUp(0)
	}
}

// giveDrained gives the chosen lanes away of which nothing is in flight. The node drops them even on failure,
// because the change may have committed. The next renewal adds those that it still leases.
func (r *Runner[T]) giveDrained(ctx context.Context) {
	given := map[string][]string{}
	r.mu.Lock()
	for _, l := range r.lanes {
		if l.drained() {
			given[l.givenTo] = append(given[l.givenTo], l.id)
			r.drop(l)
		}
	}
	r.mu.Unlock()
	for _, node := range slices.Sorted(maps.Keys(given)) {
		if err := r.store.give(ctx, node, given[node]); err != nil && ctx.Err() == nil {
			slog.Warn("failed to give lanes to another node; retrying with the next renewal", "queue", r.Queue, "node", node, "err", err)
			r.mu.Lock()
			r.renewNow = true
			r.mu.Unlock()
		}
	}
}
