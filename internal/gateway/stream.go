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

// Stream is a streamed response on its way to the client.
type Stream struct {
	upstream    *startedStream
	call        *activeCall
	outputLimit int64 // output tokens after which the stream is cut; 0 for none

	lastChunk []byte          // of the provider, as a template for ours
	reported  providers.Usage // by the provider
	settled   bool            // no output was received since the call was settled
	pending   [][]byte        // our own chunks, to be sent before end
	end       error           // io.EOF, or why the stream failed; nil while it goes on
	closed    bool
}

func newStream(upstream *startedStream, a *activeCall) *Stream {
	return &Stream{upstream: upstream, call: a, outputLimit: a.streamOutputLimit()}
}

// Next returns the next event's JSON, or io.EOF after the last. Only clients that asked for the
// usage chunk receive it; if the provider sends none, they get an estimate. A stream that has
// used up its reservation ends.
func (s *Stream) Next() ([]byte, error) {
	for {
		if len(s.pending) > 0 {
			next := s.pending[0]
			s.pending = s.pending[1:]
			return next, nil
		}
		if s.end != nil {
			return nil, s.end
		}
		chunk, err := s.upstream.Next()
		switch {
		case err == io.EOF:
			s.finish()
		case err != nil:
			s.fail(err)
		case chunk.Usage != nil:
			s.reported, s.settled = *chunk.Usage, true
			charged := s.call.settleStream(s.reported, s.upstream.SoFar())
			if s.call.request.includeUsage {
				return withCredits(chunk.Data, charged), nil
			}
		case s.outputLimit > 0 && s.upstream.SoFar().OutputTokens > s.outputLimit:
			s.lastChunk = chunk.Data
			s.cut()
		default:
			s.lastChunk, s.settled = chunk.Data, false
			return chunk.Data, nil
		}
	}
}

// usage returns what was used so far.
func (s *Stream) usage() providers.Usage {
	u := s.upstream.SoFar()
	u.InputTokens = cmp.Or(u.InputTokens, s.reported.InputTokens)
	u.OutputTokens = max(u.OutputTokens, s.reported.OutputTokens)
	return u
}

// finish handles the end of the provider's stream.
func (s *Stream) finish() {
	s.end = io.EOF
	s.call.target.health.recordSuccess(s.call.attemptStarted)
	if !s.settled {
		s.settleByEstimate()
	}
}

func (s *Stream) fail(err error) {
	s.end = upstreamFault(err)
	s.call.observeFailure(s.end)
	var f *providers.Failure
	if errors.As(err, &f) && !errors.Is(err, context.Canceled) {
		s.call.recordBrokenResponse(f)
	}
}

// cut ends the stream as if the model had reached its limit.
func (s *Stream) cut() {
	s.end = io.EOF
	var choices []byte
	for i := range s.call.request.choices {
		if i > 0 {
			choices = append(choices, ',')
		}
		choices = append(strconv.AppendInt(append(choices, `{"index":`...), i, 10), `,"delta":{},"logprobs":null,"finish_reason":"length"}`...)
	}
	s.pending = append(s.pending, s.newChunk(string(choices), ""))
	s.settleByEstimate()
}

// settleByEstimate settles the call by our own count and sends a usage chunk if requested.
func (s *Stream) settleByEstimate() {
	s.settled = true
	r := s.call.request
	u := r.withEstimatedInput(s.usage())
	charged := s.call.settle(u, audit.UsageEstimated)
	if r.includeUsage {
		s.pending = append(s.pending, withCredits(s.newChunk("", usageJSON(u)), charged))
	}
}

// newChunk creates a chunk with the ID and model of the provider's last one.
func (s *Stream) newChunk(choices, usage string) []byte {
	var head struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		Model   string `json:"model"`
	}
	_ = json.Unmarshal(s.lastChunk, &head) // unreadable fields stay empty
	head.Object = "chat.completion.chunk"
	out, err := json.Marshal(head)
	if err != nil { // impossible: the values were read from JSON
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

// Close ends the upstream call. If the client leaves before the usage is known, the call is
// charged for the output so far. Closing twice is allowed.
func (s *Stream) Close() (err error) {
	if s.closed {
		return nil
	}
	s.closed = true
	defer s.call.finish() // even if a provider panics
	defer func() { err = s.upstream.Close() }()
	if s.end == nil {
		s.call.observeFailure(context.Canceled)
		s.awaitUsage()
	}
	if !s.settled {
		s.settled = true
		s.call.settle(s.usage(), audit.UsagePartial)
	}
	return nil
}

// awaitUsage reads on if only the usage is missing.
func (s *Stream) awaitUsage() {
	if !s.upstream.watch.complete.Load() {
		return
	}
	s.upstream.watch.clientDisconnected()
	for err := error(nil); err == nil && !s.settled; {
		_, err = s.Next()
	}
}
