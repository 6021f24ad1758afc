package gateway

import (
	"io"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/credits"
	"turnpike/internal/providers"
)

// Stream is a streamed answer on its way to the client.
type Stream struct {
	from      providers.Stream
	meter     *meter
	wantUsage bool
	settled   bool
	closed    bool
}

// Next returns the next event's JSON, or io.EOF after the last. The usage
// chunk is read on the way and kept from a client that did not ask for it.
func (s *Stream) Next() ([]byte, error) {
	for {
		chunk, err := s.from.Next()
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, upstreamFault(err)
		}
		if chunk.Usage == nil {
			return chunk.Data, nil
		}
		s.settled = true
		charged := s.meter.settle(*chunk.Usage, audit.UsageProvider)
		if s.wantUsage {
			return spliceUsage(chunk.Data, charged), nil
		}
	}
}

// Close ends the upstream call. A stream that was left before its usage was
// known is charged for what was produced. A second call does nothing.
func (s *Stream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if !s.settled {
		s.settled = true
		s.meter.settle(s.from.SoFar(), audit.UsagePartial)
	}
	return s.from.Close()
}

// meter turns usage into the log's figures.
type meter struct {
	record  *audit.Record
	price   catalog.Price
	started time.Time
	now     func() time.Time
}

// settle notes what the call used. Test calls are free: what they would have
// cost stands beside the zero.
func (m *meter) settle(u providers.Usage, source string) (charged credits.Micro) {
	m.record.Note(func(e *audit.Entry) {
		e.InputTokens, e.OutputTokens = &u.InputTokens, &u.OutputTokens
		e.UsageSource = source
		e.Upstream = m.now().Sub(m.started)
		e.Credits = charged
		e.SimulatedCredits = m.price.Cost(u.InputTokens, u.OutputTokens)
	})
	return charged
}

func (m *meter) failed() {
	m.record.Note(func(e *audit.Entry) { e.Upstream = m.now().Sub(m.started) })
}
