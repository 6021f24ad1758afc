package o200k

import "sync"

// maxMerge bounds the memory of one merge. A longer piece, which is a word of
// 64 KiB without a space, is merged in parts of this size: its count may then
// be one too high per part.
const maxMerge = 64 << 10

// merge yields the ends of the tokens that byte-pair encoding makes of piece,
// which lies at offset base of the text. It returns false when told to stop.
func (t *table) merge(piece string, base int, yield func(int) bool) bool {
	for len(piece) > maxMerge {
		if !t.mergePart(piece[:maxMerge], base, yield) {
			return false
		}
		piece, base = piece[maxMerge:], base+maxMerge
	}
	return t.mergePart(piece, base, yield)
}

// part is a run of bytes that is a token so far, in a linked list. rank is
// that of the token it makes together with the next part.
type part struct {
	prev, next int32
	rank       uint32
}

// merger is the memory of one merge.
type merger struct {
	parts []part
	queue queue
}

var mergers = sync.Pool{New: func() any { return new(merger) }}

// mergePart joins the two neighbours of lowest rank, the leftmost on a tie,
// until no two make a token.
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
	// rerank looks up anew what the part at i makes with its successor.
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
		if p.rank != best.rank { // outdated: the part has changed since
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

// candidate is a merge of the part at an offset with its successor.
type candidate struct {
	rank uint32
	at   int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// queue is a binary heap; container/heap would allocate for every push.
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
