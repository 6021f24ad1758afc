package batches

import (
	"context"

	"turnpike/internal/budget"
)

const (
	// copies is how often a line is in memory: its text, and the body in the formats of the gateway and
	// of the provider.
	copies = 4
	// bytesPerValue is the memory of a small JSON value once it is decoded.
	bytesPerValue = 128
)

// awaitLine waits until there is memory for the request of a line.
func (s *Service) awaitLine(ctx context.Context, l *line) error {
	values := min(l.Length/2, int64(s.Limits().JSONValues))
	return budget.Of(ctx).Await(ctx, copies*l.Length+bytesPerValue*values)
}

// awaitLines waits until there is memory for reading the input line by line. The custom IDs are kept.
func (s *Service) awaitLines(ctx context.Context, b *Batch) error {
	limits := s.Limits()
	return budget.Of(ctx).Await(ctx, copies*min(b.InputBytes, limits.LineBytes+lineOverhead)+min(b.InputBytes, int64(limits.Lines)*maxCustomID))
}

// awaitUpload waits until there is memory for all requests of a batch at a provider.
func (s *Service) awaitUpload(ctx context.Context, b *Batch) error {
	return budget.Of(ctx).Await(ctx, copies*b.InputBytes)
}
