package gateway

import (
	"bytes"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/providers"
)

// Stream is a streamed answer on its way to the client.
type Stream struct {
	from      providers.Stream
	meter     *meter
	request   *request
	wantUsage bool
	cut       int64 // output tokens after which it is over
	ending    [][]byte
	settled   bool
	closed    bool
	head      streamHead // of the chunks, for one of ours
}

// streamHead is what all chunks of a stream share.
type streamHead struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	Model   string `json:"model"`
}

func newStream(from providers.Stream, m *meter, r *request) *Stream {
	return &Stream{from: from, meter: m, request: r, wantUsage: r.includeUsage, cut: m.outputRoom(r)}
}

// Next returns the next event's JSON, or io.EOF after the last. The usage
// chunk is read on the way and kept from a client that did not ask for it. A
// stream that has used up what was reserved for it ends there.
func (s *Stream) Next() ([]byte, error) {
	for {
		if len(s.ending) > 0 {
			next := s.ending[0]
			if s.ending = s.ending[1:]; next == nil {
				return nil, io.EOF
			}
			return next, nil
		}
		chunk, err := s.from.Next()
		if err == io.EOF {
			return nil, io.EOF
		}
		if err != nil {
			return nil, upstreamFault(err)
		}
		if chunk.Usage == nil {
			s.meter.begun()
			if s.cut > 0 && s.from.SoFar().OutputTokens > s.cut {
				s.cutShort(chunk.Data)
				continue
			}
			return chunk.Data, nil
		}
		s.settled = true
		charged := s.meter.settle(*chunk.Usage, s.meter.source(*chunk.Usage, s.request, s.from.SoFar()), s.request)
		if s.wantUsage {
			return spliceUsage(chunk.Data, charged), nil
		}
	}
}

// cutShort ends a stream as if the model had reached its limit.
func (s *Stream) cutShort(last []byte) {
	_ = json.Unmarshal(last, &s.head, json.RejectUnknownMembers(false))
	usage := s.from.SoFar()
	s.settled = true
	charged := s.meter.settle(usage, audit.UsageEstimated, s.request)
	var choices bytes.Buffer
	for i := range s.request.choices {
		if i > 0 {
			choices.WriteByte(',')
		}
		choices.WriteString(`{"index":` + strconv.FormatInt(i, 10) + `,"delta":{},"logprobs":null,"finish_reason":"length"}`)
	}
	s.ending = append(s.ending, s.chunk(choices.String(), ""))
	if s.wantUsage {
		s.ending = append(s.ending, spliceUsage(s.chunk("", usageJSON(usage)), charged))
	}
	s.ending = append(s.ending, nil) // the end
}

// chunk makes one of our own in the form of the others.
func (s *Stream) chunk(choices, usage string) []byte {
	head, err := json.Marshal(s.head)
	if err != nil { // it was read from JSON
		head = []byte("{}")
	}
	out := append(head[:len(head)-1], `,"choices":[`...)
	out = append(append(out, choices...), ']')
	if usage != "" {
		out = append(append(out, `,"usage":`...), usage...)
	}
	return append(out, '}')
}

func usageJSON(u providers.Usage) string {
	n := func(i int64) string { return strconv.FormatInt(i, 10) }
	return `{"prompt_tokens":` + n(u.InputTokens) + `,"completion_tokens":` + n(u.OutputTokens) + `,"total_tokens":` + n(u.InputTokens+u.OutputTokens) + `}`
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
		s.meter.settle(s.from.SoFar(), audit.UsagePartial, s.request)
	}
	s.meter.ticket.End()
	return s.from.Close()
}
