package o200k

import "sync"

// maxMerge limits the memory of a merge. A longer piece, such as a word of more
// than 64 KiB, is merged in parts. Its count may be too high by one for each part.
const maxMerge = 64 << 10

// merge applies byte-pair encoding to the piece at offset base of the text and
// yields the ends of its tokens. It returns false if yield does.
func (t *table) merge(piece string, base int, yield func(int) bool) bool {
	for len(piece) > maxMerge {
		if !t.mergePart(piece[:maxMerge], base, yield) {
			return false
		}
		piece, base = piece[maxMerge:], base+maxMerge
	}
	return t.mergePart(piece, base, yield)
}

// part is a token so far, in a linked list. rank is the rank of the token that
// it forms with the next part.
type part struct {
	prev, next int32
	rank       uint32
}

type merger struct {
	parts []part
	queue queue
}

var mergers = sync.Pool{New: func() any { return new(merger) }}

// mergePart joins the two neighbors of lowest rank, the leftmost on a tie, until
// no two form a token.
func (t *table) mergePart(piece string, base int, yield func(int) bool) bool {
	m := mergers.Get().(*merger)
	defer mergers.Put(m)
	m.parts, m.queue = m.parts[:0], m.queue[:0]

	n := int32(len(piece))
	for i := range n {
		p := part{prev: i - 1, next: i + 1, rank: noRank}
		if i+2 <= n {
			p.rank = t.rank(piece[i : i+2])
		}
		m.parts = append(m.parts, p)
		if p.rank != noRank {
			m.queue.push(candidate{p.rank, i})
		}
	}

	parts := m.parts
	// rerank updates the rank of the part at i.
	rerank := func(i int32) {
		p := &parts[i]
		p.rank = noRank
		if p.next == n {
			return
		}
		if p.rank = t.rank(piece[i:parts[p.next].next]); p.rank != noRank {
			m.queue.push(candidate{p.rank, i})
		}
	}
	for len(m.queue) > 0 {
		best := m.queue.pop()
		p := &parts[best.at]
		if p.rank != best.rank { // outdated
			continue
		}
		gone := p.next
		parts[gone].rank = noRank
		p.next = parts[gone].next
		if p.next < n {
			parts[p.next].prev = best.at
		}
		rerank(best.at)
		if p.prev >= 0 {
			rerank(p.prev)
		}
	}

	for i := int32(0); i < n; i = parts[i].next {
		if !yield(base + int(parts[i].next)) {
			return false
		}
	}
	return true
}

// candidate is a merge of the part at an offset with the next part.
type candidate struct {
	rank uint32
	at   int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// queue is a binary heap. container/heap allocates for every push.
type queue []candidate

func (q *queue) push(c candidate) {
	*q = append(*q, c)
	h := *q
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(h[parent]) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

func (q *queue) pop() candidate {
	h := *q
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	*q = h
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return top
		}
		if child+1 < last && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return top
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
