// Package o200k counts tokens exactly as OpenAI's o200k_base encoding does.
//
// The vocabulary is tiktoken-go/tokenizer's. Splitting and merging are done
// here, because that module's generated splitter needs quadratic time for
// whitespace with newlines in it (a megabyte took eight minutes), ends such a
// run at its first newline instead of its last, and allocates for every word.
package o200k

import (
	"hash/maphash"
	"iter"
	"sync"

	"github.com/tiktoken-go/tokenizer/codec"
)

// Count returns the number of tokens in text.
func Count(text string) int {
	n := 0
	for range Ends(text) {
		n++
	}
	return n
}

// Ends yields the byte offset at which each token of text ends, in order. A
// token may end inside a character.
func Ends(text string) iter.Seq[int] {
	return func(yield func(int) bool) {
		t := load()
		for start := 0; start < len(text); {
			end := start + nextPiece(text[start:])
			piece := text[start:end]
			if t.rank(piece) != noRank {
				if !yield(end) {
					return
				}
			} else if !t.merge(piece, start, yield) {
				return
			}
			start = end
		}
	}
}

// table is the vocabulary without a single pointer, so that the garbage
// collector has nothing to scan: the tokens' bytes one after another by rank,
// where each ends, and an open-addressing hash table of ranks.
type table struct {
	bytes string
	ends  []uint32
	slots []uint32 // rank + 1, or 0 for an empty slot
	seed  maphash.Seed
}

// slotCount is a power of two that keeps 200,000 tokens below 40 % load.
const slotCount = 1 << 19

// noRank marks bytes that are not a token.
const noRank = ^uint32(0)

var load = sync.OnceValue(func() *table {
	vocabulary := codec.NewO200kBase()
	t := &table{slots: make([]uint32, slotCount), seed: maphash.MakeSeed()}
	var all []byte
	for rank := uint(0); ; rank++ {
		token, err := vocabulary.Decode([]uint{rank})
		if err != nil { // ranks are dense: the first unknown one is past the end
			break
		}
		all = append(all, token...)
		t.ends = append(t.ends, uint32(len(all)))
	}
	t.bytes = string(all)
	for rank := range t.ends {
		i := t.slotOf(t.token(uint32(rank)))
		for t.slots[i] != 0 {
			i = (i + 1) % slotCount
		}
		t.slots[i] = uint32(rank) + 1
	}
	return t
})

func (t *table) slotOf(token string) uint64 {
	return maphash.String(t.seed, token) % slotCount
}

func (t *table) token(rank uint32) string {
	start := uint32(0)
	if rank > 0 {
		start = t.ends[rank-1]
	}
	return t.bytes[start:t.ends[rank]]
}

// rank returns the token's rank, which is also the priority of the merge that
// makes it, or noRank.
func (t *table) rank(token string) uint32 {
	for i := t.slotOf(token); t.slots[i] != 0; i = (i + 1) % slotCount {
		if rank := t.slots[i] - 1; t.token(rank) == token {
			return rank
		}
	}
	return noRank
}
