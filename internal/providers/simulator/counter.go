package simulator

import (
	"context"
	"fmt"
	"iter"
	"runtime"

	"turnpike/internal/providers/simulator/o200k"
)

const (
	// maxCounted is how many bytes of a request and its answer are counted
	// exactly. Text that is made for it takes the tokenizer 0.65 s of a CPU per
	// MiB, and test keys pay nothing.
	maxCounted = 256 << 10
	// estimatedBytes of the rest are taken for a token, as the gateway does.
	estimatedBytes = 4
	// smallRequest is counted without a slot: in less than a millisecond, which
	// is in proportion to the rest of a request.
	smallRequest = 1 << 10
)

// tokenizer limits the CPU that counting takes.
type tokenizer struct {
	ends  func(text string) iter.Seq[int]
	slots chan struct{} // taken by requests that are being counted
}

// newTokenizer leaves half of the CPUs to other requests.
func newTokenizer() *tokenizer {
	return &tokenizer{ends: o200k.Ends, slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// counter counts the tokens of one request. Its owner releases it.
type counter struct {
	*tokenizer
	left int // bytes that are still counted exactly
	held bool
}

// acquire waits for a slot to count about so many bytes.
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

// release lets the next request be counted.
func (c *counter) release() {
	if c.held {
		<-c.slots
	}
}

// count is how many tokens a text has: exactly, as far as the request is counted.
func (c *counter) count(text string) (tokens int) {
	exact := c.take(text)
	for range c.ends(text[:exact]) {
		tokens++
	}
	return tokens + (len(text)-exact+estimatedBytes-1)/estimatedBytes
}

// take is how many bytes of a text are counted exactly.
func (c *counter) take(text string) int {
	exact := min(len(text), c.left)
	c.left -= exact
	return exact
}

// tokenEnds yields where the text's tokens end. Beyond what is counted exactly
// each has estimatedBytes.
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
