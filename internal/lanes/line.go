package lanes

import "slices"

// line is lanes that wait for a turn. They go round, and one that comes back
// after it has missed a turn need not wait for another round: what a tenant has
// once in a while is done at once, however much others have to do. It gets one
// turn so, and then stands in line; whoever drains and fills again gains
// nothing. Those in line have every eighth turn however many come who were never
// seen before.
type line[T Item] struct {
	first fifo[T] // lanes that have missed a turn
	rest  fifo[T]
	turns uint64 // that the rest has had
	pops  uint64
}

func (q *line[T]) len() int { return q.first.len() + q.rest.len() }

// end is the turn of a lane that stands in line from now on.
func (q *line[T]) end() uint64 { return q.turns + uint64(q.rest.len()) + 1 }

func (q *line[T]) push(l *lane[T], missed bool) {
	if missed {
		q.first.push(l)
	} else {
		q.rest.push(l)
	}
}

func (q *line[T]) pop() *lane[T] {
	if q.pops++; q.pops%8 != 0 || q.rest.len() == 0 {
		if l := q.first.pop(); l != nil {
			return l
		}
	}
	l := q.rest.pop()
	if l != nil {
		q.turns++
	}
	return l
}

// remove takes a lane out, wherever it stands.
func (q *line[T]) remove(l *lane[T]) bool { return q.first.remove(l) || q.rest.remove(l) }

// fifo is lanes in the order in which they came.
type fifo[T Item] struct{ in, out []*lane[T] }

func (f *fifo[T]) len() int { return len(f.in) + len(f.out) }

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
