package gateway

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json"

	"turnpike/internal/audit"
	"turnpike/internal/providers"
)

// Stream is a streamed answer on its way to the client.
type Stream struct {
	from    *begun
	meter   *meter
	request *request
	cut     int64 // output tokens after which it is over

	last    []byte          // chunk of the provider's, for one of ours
	said    providers.Usage // what the provider said was used
	settled bool            // nothing came after what it was settled by
	ending  [][]byte        // chunks of ours
	end     error           // what follows them: io.EOF, or why it broke
	closed  bool
}

func newStream(from *begun, m *meter, r *request) *Stream {
	return &Stream{from: from, meter: m, request: r, cut: m.outputRoom(r)}
}

// Next returns the next event's JSON, or io.EOF after the last. The usage
// chunk is read on the way and kept from a client that did not ask for it; one
// who did gets an estimate where the provider has none. A stream that has used
// up what was reserved for it ends there.
func (s *Stream) Next() ([]byte, error) {
	for {
		if len(s.ending) > 0 {
			next := s.ending[0]
			s.ending = s.ending[1:]
			return next, nil
		}
		if s.end != nil {
			return nil, s.end
		}
		chunk, err := s.from.Next()
		switch {
		case err == io.EOF:
			s.finish()
		case err != nil:
			s.broke(err)
		case chunk.Usage != nil:
			s.said, s.settled = *chunk.Usage, true
			charged := s.meter.counted(s.said, s.from.SoFar(), s.request)
			if s.request.includeUsage {
				return spliceUsage(chunk.Data, charged), nil
			}
		case s.cut > 0 && s.from.SoFar().OutputTokens > s.cut:
			s.last = chunk.Data
			s.cutShort()
		default:
			s.last, s.settled = chunk.Data, false
			return chunk.Data, nil
		}
	}
}

// soFar is what was used by now.
func (s *Stream) soFar() providers.Usage {
	u := s.from.SoFar()
	u.InputTokens = cmp.Or(u.InputTokens, s.said.InputTokens)
	u.OutputTokens = max(u.OutputTokens, s.said.OutputTokens)
	return u
}

// finish is the provider's end of the stream.
func (s *Stream) finish() {
	s.end = io.EOF
	s.meter.target.health.worked(s.meter.began)
	if !s.settled {
		s.settleHere()
	}
}

// broke is a stream that failed on its way.
func (s *Stream) broke(err error) {
	s.end = upstreamFault(err)
	s.meter.broke(s.end)
	var f *providers.Failure
	if errors.As(err, &f) && !errors.Is(err, context.Canceled) {
		s.meter.failedAt(f)
	}
}

// cutShort ends a stream as if the model had reached its limit.
func (s *Stream) cutShort() {
	s.end = io.EOF
	var choices []byte
	for i := range s.request.choices {
		if i > 0 {
			choices = append(choices, ',')
		}
		choices = append(strconv.AppendInt(append(choices, `{"index":`...), i, 10), `,"delta":{},"logprobs":null,"finish_reason":"length"}`...)
	}
	s.ending = append(s.ending, s.chunk(string(choices), ""))
	s.settleHere()
}

// settleHere settles by our own count, and says so to a client that asked.
func (s *Stream) settleHere() {
	s.settled = true
	u := s.request.completed(s.soFar())
	charged := s.meter.settle(u, audit.UsageEstimated, s.request)
	if s.request.includeUsage {
		s.ending = append(s.ending, spliceUsage(s.chunk("", usageJSON(u)), charged))
	}
}

// chunk makes one of our own in the form of the others.
func (s *Stream) chunk(choices, usage string) []byte {
	var head struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Model   string `json:"model"`
	}
	_ = json.Unmarshal(s.last, &head) // what cannot be read stays empty
	head.Object = "chat.completion.chunk"
	out, err := json.Marshal(head)
	if err != nil { // it was read from JSON
		return []byte("{}")
	}
	out = append(out[:len(out)-1], `,"choices":[`...)
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
func (s *Stream) Close() (err error) {
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.meter.end() // even if a provider panics
	defer func() { err = s.from.Close() }()
	if s.end == nil {
		s.meter.broke(context.Canceled)
		s.hearOut()
	}
	if !s.settled {
		s.settled = true
		s.meter.settle(s.soFar(), audit.UsagePartial, s.request)
	}
	return nil
}

// hearOut reads on for the usage, if that is all that is still to come.
func (s *Stream) hearOut() {
	if !s.from.line.whole.Load() {
		return
	}
	s.from.line.left()
	for err := error(nil); err == nil && !s.settled; {
		_, err = s.Next()
	}
}
