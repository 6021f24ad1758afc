package simulator

import (
	"context"
	"fmt"
	"iter"
	"runtime"

	"turnpike/internal/providers/simulator/o200k"
)

const (
	// maxCounted is the number of bytes of a request and its response that are
	// counted exactly. Adversarial text takes 0.65 s of CPU time per MiB, and
	// test keys pay nothing.
	maxCounted = 256 << 10
	// estimatedBytes of the rest count as a token, as in the gateway.
	estimatedBytes = 4
	// smallRequest needs no slot: counting it takes less than a millisecond.
	smallRequest = 1 << 10
)

// tokenizer limits the CPU time for counting.
type tokenizer struct {
	ends  func(text string) iter.Seq[int]
	slots chan struct{} // one for each request in progress
}

// newTokenizer returns a tokenizer that uses at most half of the CPUs.
func newTokenizer() *tokenizer {
	return &tokenizer{ends: o200k.Ends, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// counter counts the tokens of one request. Call release when done.
type counter struct {
	*tokenizer
	left int // bytes to count exactly
	held bool
}

// acquire waits for a slot, unless the number of bytes is small.
func (t *tokenizer) acquire(ctx context.Context, bytes int) (*counter, error) {
	c := &counter{tokenizer: t, left: maxCounted}
	if bytes <= smallRequest {
		return c, nil
	}
	select {
	case t.slots <- struct{}{}:
		c.held = true
		return c, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("simulator: %w", ctx.Err())
	}
}

// release frees the slot.
func (c *counter) release() {
	if c.held {
		<-c.slots
	}
}

// count returns the number of tokens in a text. Beyond maxCounted, it estimates.
func (c *counter) count(text string) (tokens int) {
	exact := c.take(text)
	for range c.ends(text[:exact]) {
		tokens++
	}
	return tokens + (len(text)-exact+estimatedBytes-1)/estimatedBytes
}

// take returns the number of bytes of a text to count exactly.
func (c *counter) take(text string) int {
	exact := min(len(text), c.left)
	c.left -= exact
	return exact
}

// tokenEnds yields the offsets at which the tokens end. Beyond maxCounted, each
// token has estimatedBytes.
func (c *counter) tokenEnds(text string) iter.Seq[int] {
	exact := c.take(text)
	return func(yield func(int) bool) {
		for end := range c.ends(text[:exact]) {
			if !yield(end) {
				return
			}
		}
		for end := exact; end < len(text); {
			end = min(end+estimatedBytes, len(text))
			if !yield(end) {
				return
			}
		}
	}
}
