package lanes

import "slices"

// runQueue holds lanes that wait for a turn, and serves them round-robin. A
// lane that missed a turn goes first, so that a tenant's occasional item
// doesn't wait for the backlogs of others. It gets one such turn and then
// queues like all others, so draining and refilling gains nothing. Every eighth
// turn belongs to the lanes in the round, however many new lanes arrive.
type runQueue[T Item] struct {
	first fifo[T] // lanes that missed a turn
	round fifo[T]
	turns uint64 // completed turns of the round
	pops  uint64
}

func (q *runQueue[T]) size() int { return q.first.size() + q.round.size() }

// lastTurn is the turn of a lane that joins the round now.
func (q *runQueue[T]) lastTurn() uint64 { return q.turns + uint64(q.round.size()) + 1 }

func (q *runQueue[T]) push(l *lane[T], missedTurn bool) {
	l.queue = q
	if missedTurn {
		q.first.push(l)
	} else {
		q.round.push(l)
	}
}

func (q *runQueue[T]) pop() (l *lane[T]) {
	if q.pops++; q.pops%8 != 0 || q.round.size() == 0 {
		l = q.first.pop()
	}
	if l == nil {
		if l = q.round.pop(); l == nil {
			return nil
		}
		q.turns++
	}
	l.queue = nil
	return l
}

func (q *runQueue[T]) remove(l *lane[T]) {
	if l.queue == q {
		l.queue = nil
		_ = q.first.remove(l) || q.round.remove(l)
	}
}

// fifo holds lanes in order of arrival.
type fifo[T Item] struct{ in, out []*lane[T] }

func (f *fifo[T]) size() int { return len(f.in) + len(f.out) }

func (f *fifo[T]) push(l *lane[T]) { f.in = append(f.in, l) }

func (f *fifo[T]) pop() *lane[T] {
	if len(f.out) == 0 {
		f.in, f.out = f.out, f.in
		slices.Reverse(f.out)
	}
	n := len(f.out)
	if n == 0 {
		return nil
	}
	l := f.out[n-1]
	f.out[n-1] = nil
	f.out = f.out[:n-1]
	return l
}

func (f *fifo[T]) remove(l *lane[T]) bool {
	for _, part := range []*[]*lane[T]{&f.in, &f.out} {
		if i := slices.Index(*part, l); i >= 0 {
			*part = slices.Delete(*part, i, i+1)
			return true
		}
	}
	return false
}
