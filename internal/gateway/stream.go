package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/gateway/messages"
	"turnpike/internal/jsonbody"
	"turnpike/internal/openai"
	"turnpike/internal/providers"
)

// Stream is a streamed response on its way to the client.
type Stream struct {
	upstream    *startedStream
	call        *activeCall
	outputLimit int64 // output tokens after which the stream is cut; 0 for none
	native      bool  // the events are those of the Responses API
	// transform, if set, translates each event.
	transform func(data []byte) ([]byte, error)

	lastChunk []byte            // a copy of the provider's, as a template for ours
	reported  providers.Usage   // by the provider
	begun     bool              // the first output was received
	settled   bool              // no output was received since the call was settled
	pending   []providers.Chunk // our own chunks, to be sent before end
	event     string            // of the last chunk that Next returned
	end       error             // io.EOF, or why the stream failed; nil while it goes on
	closed    bool
}

func newStream(upstream *startedStream, a *activeCall) *Stream {
	a.request.body, a.request.session, a.admitted.call.Body = nil, nil, nil // the provider has it, and the stream may take long
	return &Stream{upstream: upstream, call: a, outputLimit: a.streamOutputLimit()}
}

// Next returns the next event's JSON, valid until the next call, or io.EOF after the last.
func (s *Stream) Next() ([]byte, error) {
	data, err := s.next()
	if err == nil && s.transform != nil {
		return s.transform(data)
	}
	return data, err
}

// next returns the next event's JSON, valid until the next call, or io.EOF after the last. Only clients that asked for the
// usage chunk receive it; if the provider sends none, they get an estimate. A stream that has
// used up its reservation ends.
func (s *Stream) next() ([]byte, error) {
	for {
		if len(s.pending) > 0 {
			next := s.pending[0]
			s.pending, s.event = s.pending[1:], next.Event
			return next.Data, nil
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
			s.event = chunk.Event
			if s.native { // the event has more than the usage
				return withResponseCredits(chunk.Data, charged), nil
			}
			if s.call.request.messages != nil { // the event has more than the usage
				return chunk.Data, nil
			}
			if s.call.request.audio != nil { // the event has the text, too
				return withCredits(chunk.Data, charged), nil
			}
			if s.call.request.includeUsage {
				return withCredits(chunk.Data, charged), nil
			}
		case s.outputLimit > 0 && s.upstream.SoFar().OutputTokens > s.outputLimit:
			s.lastChunk = append(s.lastChunk[:0], chunk.Data...)
			s.cut()
		default:
			s.noteFirstToken()
			s.lastChunk = append(s.lastChunk[:0], chunk.Data...)
			// After the usage of a message or a transcript only its end follows.
			s.settled, s.event = s.settled && (s.call.request.messages != nil || s.call.request.audio != nil), chunk.Event
			return chunk.Data, nil
		}
	}
}

// noteFirstToken notes when the first output arrived. The chunks before it have only a role, for example.
func (s *Stream) noteFirstToken() {
	if s.begun || s.upstream.SoFar().OutputTokens == 0 {
		return
	}
	s.begun = true
	now := s.call.gateway.Now()
	s.call.record.Note(func(e *audit.Entry) { e.FirstToken = now.Sub(e.CreatedAt) })
}

// Event returns the name of the event that Next returned last. Chunks of chat completions have none.
func (s *Stream) Event() string { return s.event }

func (s *Stream) usage() providers.Usage {
	u := s.upstream.SoFar()
	u.InputTokens = cmp.Or(u.InputTokens, s.reported.InputTokens)
	u.OutputTokens = max(u.OutputTokens, s.reported.OutputTokens)
	return u
}

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
	if s.native {
		s.end = ErrCut
		s.settleByEstimate()
		return
	}
	s.end = io.EOF
	if s.call.request.messages != nil {
		u := s.call.request.withEstimatedInput(s.usage(), s.call.target)
		s.pending = append(messages.StopBlock(s.lastChunk), messages.Stop("max_tokens", u)...)
		s.settleByEstimate()
		return
	}
	var choices []openai.ChunkChoice
	for i := range s.call.request.choices {
		choices = append(choices, openai.ChunkChoice{Index: int(i), FinishReason: new("length")})
	}
	s.pending = append(s.pending, providers.Chunk{Data: openai.Encode(s.newChunk(choices...))})
	s.settleByEstimate()
}

// settleByEstimate settles the call by our own count and sends a usage chunk if requested.
func (s *Stream) settleByEstimate() {
	s.settled = true
	r := s.call.request
	u := r.withEstimatedInput(s.usage(), s.call.target)
	charged := s.call.settle(u, audit.UsageEstimated)
	if r.includeUsage && !s.native {
		chunk := s.newChunk()
		chunk.Usage = fmt.Appendf(nil, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, u.InputTokens, u.OutputTokens, u.InputTokens+u.OutputTokens)
		s.pending = append(s.pending, providers.Chunk{Data: withCredits(openai.Encode(chunk), charged)})
	}
}

// newChunk returns a chunk with the ID and model of the provider's last one.
func (s *Stream) newChunk(choices ...openai.ChunkChoice) openai.Chunk {
	var head openai.Head
	_ = json.Unmarshal(s.lastChunk, &head) // unreadable fields stay empty
	return head.Chunk(choices...)
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

func (s *Stream) awaitUsage() {
	if !s.upstream.watch.complete.Load() {
		return
	}
	s.upstream.watch.clientDisconnected()
	for err := error(nil); err == nil && !s.settled; {
		_, err = s.Next()
	}
}

// withCredits sets credits in a chunk's usage object. It splices instead of re-encoding, so
// that everything else stays as the provider sent it. Credits of an upstream Turnpike are replaced.
func withCredits(chunk []byte, charged credits.Micro) []byte {
	at, found := jsonbody.FindMember(chunk, "usage")
	usage := chunk[at.Start:at.End]
	if !found || jsontext.Value(usage).Kind() != '{' {
		return chunk
	}
	if old, found := jsonbody.FindMember(usage, "credits"); found {
		return slices.Concat(chunk[:at.Start+old.Start], []byte(charged.String()), chunk[at.Start+old.End:])
	}
	first := `"credits":` + charged.String()
	if bytes.ContainsRune(usage, ':') {
		first += ","
	}
	return slices.Concat(chunk[:at.Start+1], []byte(first), chunk[at.Start+1:])
}

func enterMember(d *jsontext.Decoder, name string) bool {
	if d.PeekKind() != '{' {
		return false
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	return skipToMember(d, name)
}

func skipToMember(d *jsontext.Decoder, name string) bool {
	for d.PeekKind() == '"' {
		token, err := d.ReadToken()
		if err != nil {
			return false
		}
		if token.String() == name {
			return true
		}
		if err := d.SkipValue(); err != nil {
			return false
		}
	}
	return false
}

// maxBytesAfterDisconnect is how much a provider may send after the client left.
const maxBytesAfterDisconnect = 64 << 10

// clientWatch cancels a provider's stream when the client disconnects. If only the usage chunk
// is missing, it waits for that: otherwise a client could leave early and not pay for reasoning.
type clientWatch struct {
	cancel       context.CancelFunc
	unwatch      func() bool
	usageTimeout time.Duration
	complete     atomic.Bool // all of the response but the usage was received
	disconnected atomic.Bool
	bytesAfter   int // received since the client disconnected
}

func watchClient(client context.Context, usageTimeout time.Duration) (context.Context, *clientWatch) {
	w := &clientWatch{usageTimeout: usageTimeout}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(client))
	w.unwatch = context.AfterFunc(client, w.clientDisconnected)
	return ctx, w
}

// clientDisconnected may be called more than once.
func (w *clientWatch) clientDisconnected() {
	w.disconnected.Store(true)
	if !w.complete.Load() {
		w.cancel()
		return
	}
	time.AfterFunc(w.usageTimeout, w.cancel)
}

// observeChunk must be called for each chunk before the client receives it.
func (w *clientWatch) observeChunk(c providers.Chunk) {
	w.complete.Store(c.Whole)
	if !w.disconnected.Load() {
		return
	}
	if w.bytesAfter += len(c.Data); w.bytesAfter > maxBytesAfterDisconnect {
		w.cancel()
	}
}

func (w *clientWatch) stop() {
	w.unwatch()
	w.cancel()
}
