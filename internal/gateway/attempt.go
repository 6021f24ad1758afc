package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/catalog"
	"turnpike/internal/fault"
	"turnpike/internal/limits"
	"turnpike/internal/providers"
	"turnpike/internal/safehttp"
)

// operation is what a provider is asked for.
type operation func(ctx context.Context, t target, r *request, output int64) (*providers.Answer, error)

func chat(ctx context.Context, t target, r *request, output int64) (*providers.Answer, error) {
	return t.provider.(providers.Chatter).Chat(ctx, &providers.ChatRequest{Model: t.offer.Upstream, ID: t.offer.ID, Body: r.body, Stream: r.stream, MaxOutput: output})
}

const (
	// sameAgain is how often a call is repeated at its only target, and
	// pauses how long before each.
	sameAgain = 2
	// patientFor is the longest wait that a provider may ask for before it is
	// asked again, if there is no other.
	patientFor = 3 * time.Second
	// localPause is when a caller may come again for whom there was no file
	// descriptor: calls end within seconds, and give theirs back.
	localPause = 5 * time.Second
)

var pauses = []time.Duration{250 * time.Millisecond, time.Second}

// Attempt is what the log says of one try.
type Attempt struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Outcome  string `json:"outcome"` // "ok", "unsupported", or the kind of the failure
	Status   int    `json:"status,omitzero"`
	MS       int64  `json:"ms"`
}

// try asks one target after the other until one answers. Nothing has been sent
// to the caller yet, so nobody notices.
func (g *Gateway) try(ctx context.Context, c Call, r *request, targets []target, m *meter, ask operation) (*providers.Answer, error) {
	var tried []Attempt
	defer func() {
		m.seen.Attempts = tried
		if len(tried) > 0 {
			text, err := json.Marshal(tried)
			if err == nil {
				c.Record.Note(func(e *audit.Entry) { e.Attempts = text })
			}
		}
	}()
	again := 0
	for i := 0; ; {
		if ctx.Err() != nil {
			return nil, upstreamFault(ctx.Err())
		}
		t := targets[i]
		m.target, m.output, m.asked, m.began = t, g.outputOf(t, r), true, g.now()
		if i > 0 {
			c.Record.Note(func(e *audit.Entry) { e.Model, e.Provider = t.offer.ID, t.provider.Name() })
		}
		begun := time.Now()
		answer, err := begin(ctx, t, r, limitFor(t, r, m.output), ask)
		took := time.Since(begun)
		if err == nil {
			t.health.begun(took)
			m.seen.FirstByte = took
			if len(tried) > 0 {
				tried = append(tried, Attempt{t.provider.Name(), t.offer.ID, AttemptOK, 0, took.Milliseconds()})
			}
			return answer, nil
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		m.asked = false
		var f *providers.Failure
		if !errors.As(err, &f) {
			if _, ok := fault.As(err); ok && i+1 < len(targets) { // its format has no words for the call; another's may
				tried = append(tried, Attempt{t.provider.Name(), t.offer.ID, AttemptUnsupported, 0, took.Milliseconds()})
				i++
				continue
			}
			return nil, upstreamFault(err)
		}
		if saysTooLong(f) {
			f.Kind = providers.KindTooLong
		}
		tried = append(tried, Attempt{t.provider.Name(), t.offer.ID, string(f.Kind), f.Status, took.Milliseconds()})
		if refusesCaller(f) {
			t.health.refused()
			if next := otherModel(targets, i); f.Kind == providers.KindTooLong && next > 0 { // its window may be larger
				i = next
				continue
			}
			return nil, upstreamFault(err)
		}
		if f.Kind == providers.KindLocal { // another's call would fail as well
			return nil, upstreamFault(err)
		}
		t.health.failed(f, g.now())
		switch {
		case i+1 < len(targets):
			i++
		case len(targets) == 1 && again < sameAgain && f.Momentary() && f.RetryAfter <= patientFor:
			pause(ctx, max(pauses[again], f.RetryAfter))
			again++
		case t.offer.Any && f.Kind == providers.KindNoModel:
			return nil, fault.Param(fault.ModelNotFound, "model", "there is no model %q; GET /v1/models lists those there are", r.models[0]).Because(err)
		default:
			return nil, upstreamFault(err)
		}
	}
}

// limitFor is the limit that a provider is told. One that costs nothing keeps
// to its own where the caller has none: nobody knows its model's window, and a
// limit beyond that is refused.
func limitFor(t target, r *request, output int64) int64 {
	if r.maxOutput == 0 && t.offer.ContextWindow == 0 && t.offer.Price == (catalog.Price{}) {
		return 0
	}
	return output
}

// otherModel is the next target that has another model than the one at i, or 0.
func otherModel(targets []target, i int) int {
	for n := i + 1; n < len(targets); n++ {
		if targets[n].offer.ID != targets[i].offer.ID {
			return n
		}
	}
	return 0
}

// refusesCaller reports whether it is the request that a provider does not
// take: another would be asked in vain, and this one is well.
func refusesCaller(f *providers.Failure) bool {
	return f.Kind == providers.KindInvalid || f.Kind == providers.KindTooLong || f.Kind == providers.KindBlockedInput || f.Kind == providers.KindBlockedOutput
}

// Outcomes of attempts that were no failures of a provider: it was answered, or
// could not be put in the provider's words.
const (
	AttemptOK          = "ok"
	AttemptUnsupported = "unsupported"
)

// pause waits, unless the caller leaves.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// begin asks a target and, of a stream, waits for its first piece: providers
// say what is wrong there, too.
func begin(ctx context.Context, t target, r *request, output int64, ask operation) (*providers.Answer, error) {
	if !r.stream {
		return ask(ctx, t, r, output)
	}
	ctx, line := openLine(ctx)
	answer, err := ask(ctx, t, r, output)
	if err != nil || answer.Stream == nil {
		line.close()
		return answer, err
	}
	s := &begun{Stream: answer.Stream, line: line, unread: true}
	s.first, err = answer.Stream.Next()
	if err == io.EOF {
		err = &providers.Failure{Kind: providers.KindCut, Err: errors.New("the stream ended before it began")}
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	answer.Stream = s
	return answer, nil
}

// begun is a stream whose first chunk was read already.
type begun struct {
	providers.Stream
	line   *line
	first  providers.Chunk
	unread bool
}

func (b *begun) Next() (chunk providers.Chunk, err error) {
	if chunk = b.first; !b.unread {
		chunk, err = b.Stream.Next()
	}
	b.unread = false
	if err == nil {
		b.line.heard(chunk)
	}
	return chunk, err
}

func (b *begun) Close() error {
	defer b.line.close()
	return b.Stream.Close()
}

// upstreamFault keeps what a provider says to itself: the caller gets a code
// of ours, the log the cause.
func upstreamFault(err error) error {
	if _, ok := fault.As(err); ok {
		return err
	}
	var f *providers.Failure
	if !errors.As(err, &f) {
		switch {
		case errors.Is(err, context.Canceled):
			return err
		case errors.Is(err, context.DeadlineExceeded):
			return fault.New(fault.UpstreamTimeout, "the model provider did not answer in time").Because(err)
		}
		return fault.New(fault.Upstream, "the model provider failed to answer").Because(err)
	}
	switch f.Kind {
	case providers.KindInvalid:
		if f.Param != "" {
			return fault.Param(fault.InvalidParameter, f.Param, "the model provider does not accept %s as it is here; see what the model supports", f.Param).Because(err)
		}
		return fault.New(fault.InvalidParameter, "the model provider does not accept the request as it is; see what the model supports").Because(err)
	case providers.KindTooLong:
		return fault.Param(fault.ContextLengthExceeded, f.Param, "the request is longer than the model takes; shorten it, ask for fewer tokens, or use a model with a larger context_window (GET /v1/models)").Because(err)
	case providers.KindBlockedInput:
		return fault.Param(fault.InvalidParameter, "prompt", "the model provider's filter refused the prompt").Because(err)
	case providers.KindBlockedOutput:
		return fault.Param(fault.InvalidParameter, "prompt", "the model provider's filter refused what came of the prompt").Because(err)
	case providers.KindTimeout:
		return fault.New(fault.UpstreamTimeout, "the model provider did not answer in time").Because(err)
	case providers.KindRateLimited, providers.KindOverloaded:
		out := fault.New(fault.Overloaded, "the model provider has too much to do at the moment; try again shortly").Because(err)
		out.RetryAfter = max(f.RetryAfter, time.Second)
		return out
	case providers.KindLocal:
		out := fault.New(fault.Overloaded, "this server is out of file descriptors and cannot call the model provider; try again shortly, and let an operator %s", safehttp.MoreDescriptors).Because(err)
		out.RetryAfter = localPause
		return out
	case providers.KindAuth:
		return fault.New(fault.Upstream, "the model provider does not accept this server's key for it; an operator can see that with: turnpike doctor").Because(err)
	case providers.KindNoModel:
		return fault.New(fault.Upstream, "the model provider does not have this model, although it is listed").Because(err)
	case providers.KindConnect:
		return fault.New(fault.Upstream, "the model provider cannot be reached").Because(err)
	}
	return fault.New(fault.Upstream, "the model provider failed to answer").Because(err)
}

// limitFault is the answer to a call that comes too soon.
func limitFault(err error, h http.Header) error {
	var r *limits.Refusal
	if !errors.As(err, &r) {
		return err
	}
	r.Headers(h)
	f := fault.New(fault.RateLimitExceeded, "%s", r.Error())
	f.RetryAfter = r.RetryAfter
	return f.Because(r)
}
