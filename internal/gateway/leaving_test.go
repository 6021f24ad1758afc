package gateway

import (
	"context"
	"testing"

	"turnpike/internal/providers"
)

// lateCount is a stream whose last chunk, the count, waits for the test, as
// OpenAI's follows the answer's last word after a while.
type lateCount struct {
	fakeStream
	ctx     context.Context
	waits   chan struct{} // closed when it does
	arrives chan struct{}
}

func (s *lateCount) Next() (providers.Chunk, error) {
	if len(s.chunks) == 1 {
		close(s.waits)
		select {
		case <-s.ctx.Done():
		case <-s.arrives:
		}
		if s.ctx.Err() != nil {
			return providers.Chunk{}, s.ctx.Err()
		}
	}
	return s.fakeStream.Next()
}

// TestWhoLeavesAWholeAnswerPaysForAllOfIt: the count follows the last word, and
// who leaves between the two has had all that it counts.
func TestWhoLeavesAWholeAnswerPaysForAllOfIt(t *testing.T) {
	t.Parallel()
	long := providers.Chunk{Data: make([]byte, lastBytes), Whole: true}
	end := said("!")
	end.Whole = true
	base := newRig(t, nil)
	for name, tt := range map[string]struct {
		chunks  []providers.Chunk
		arrives bool // the count, when the client has left
		out     int64
		source  string
	}{
		"and the count comes": {[]providers.Chunk{said("Hello"), end}, true, 6002, "provider"},
		"and no count comes":  {[]providers.Chunk{said("Hello"), end}, false, 2, "partial"},
		"and too much comes":  {[]providers.Chunk{said("Hello"), end, long, long}, false, 4, "partial"},
		"of which some lacks": {[]providers.Chunk{end, said("Hello")}, false, 2, "partial"},
	} {
		for _, how := range []string{"told by the context", "told by closing"} {
			t.Run(name+", "+how, func(t *testing.T) {
				count := counted(providers.Usage{InputTokens: 10, OutputTokens: 6002})
				s := &lateCount{fakeStream: fakeStream{chunks: append(tt.chunks, count)}, waits: make(chan struct{}), arrives: make(chan struct{})}
				r := base.serving(t, []providers.Provider{doer("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Answer, error) {
					s.ctx = ctx
					return &providers.Answer{Stream: s}, nil
				})})
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				c := r.open()
				c.Body = []byte(streamedCall)
				answer, err := r.Chat(ctx, c)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := answer.Stream.Next(); err != nil {
						t.Fatal(err)
					}
				}
				go func() {
					<-s.waits
					leave()
					if tt.arrives {
						close(s.arrives)
					}
				}()
				if how == "told by the context" {
					_, _ = drain(answer.Stream)
				}
				_ = answer.Stream.Close()
				if s.ctx.Err() == nil {
					t.Error("the provider is still being asked")
				}
				var out outcome
				if r.settle(c, &out); out.Source != tt.source || out.Output != tt.out {
					t.Errorf("%d tokens by %s, expected %d by %s", out.Output, out.Source, tt.out, tt.source)
				}
			})
		}
	}
}

// TestWhoLeavesEarlierIsNotWaitedFor: neither before the first word, nor in the
// middle of the answer.
func TestWhoLeavesEarlierIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	p := doer("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Answer, error) {
		leave()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if out := newRig(t, []providers.Provider{p}).chatIn(ctx, streamedCall); out.code != "canceled" || out.Source != "partial" || p.calls() != 1 {
		t.Errorf("%+v", out)
	}
}

// TestNobodyIsHeardOutForLong who says something else than the count: there is
// no client any more to read it.
func TestNobodyIsHeardOutForLong(t *testing.T) {
	t.Parallel()
	ctx, l := openLine(t.Context())
	defer l.close()
	l.heard(providers.Chunk{Data: make([]byte, 2*lastBytes), Whole: true})
	l.left()
	l.heard(providers.Chunk{Data: make([]byte, lastBytes), Whole: true})
	l.heard(providers.Chunk{Data: []byte("!"), Whole: true})
	if ctx.Err() == nil {
		t.Errorf("it may say %d bytes and go on", l.after)
	}
}
