package o200k

import "slices"

// maxMerge limits the time of a merge, which grows with the square of the length. A longer piece,
// such as a word of more than 512 bytes, is merged in parts. Its count may be too high by one for each part.
const maxMerge = 512

// part is a token so far. rank is the rank of the token that it forms with the next part.
type part struct {
	start int
	rank  uint32
}

// merge applies byte-pair encoding to the piece at offset base of the text and
// yields the ends of its tokens. It returns false if yield does.
func (t *table) merge(piece string, base int, yield func(int) bool) bool {
	parts := make([]part, 0, min(len(piece), maxMerge)+1)
	for len(piece) > 0 {
		length := min(len(piece), maxMerge)
		parts = t.mergePart(piece[:length], parts[:0])
		for _, p := range parts[1:] {
			if !yield(base + p.start) {
				return false
			}
		}
		piece, base = piece[length:], base+length
	}
	return true
}

// mergePart joins the two neighbors of lowest rank, the leftmost on a tie, until
// no two form a token. An empty part follows the last one.
func (t *table) mergePart(piece string, parts []part) []part {
	for i := range len(piece) + 1 {
		parts = append(parts, part{i, noRank})
	}
	rerank := func(i int) {
		parts[i].rank = noRank
		if i+2 < len(parts) {
			parts[i].rank = t.rank(piece[parts[i].start:parts[i+2].start])
		}
	}
	for i := range parts {
		rerank(i)
	}
	for {
		best := 0
		for i := range parts {
			if parts[i].rank < parts[best].rank {
				best = i
			}
		}
		if parts[best].rank == noRank {
			return parts
		}
		parts = slices.Delete(parts, best+1, best+2)
		rerank(best)
		if best > 0 {
			rerank(best - 1)
		}
	}
}
