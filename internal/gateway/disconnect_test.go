package gateway

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/providers"
)

// lateUsageStream delays its last chunk, the usage, until the test lets it arrive.
type lateUsageStream struct {
	fakeStream
	ctx     context.Context
	waits   chan struct{} // closed when the stream waits
	arrives chan struct{}
}

func (s *lateUsageStream) Next() (providers.Chunk, error) {
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

func TestClientLeavingBeforeUsageChunkPaysInFull(t *testing.T) {
	t.Parallel()
	long := providers.Chunk{Data: make([]byte, maxBytesAfterDisconnect), Whole: true}
	end := textChunk("!")
	end.Whole = true
	base := newFixture(t, nil)
	for name, tt := range map[string]struct {
		chunks  []providers.Chunk
		arrives bool // the usage, after the client left
		out     int64
		source  string
	}{
		"usage arrives":     {[]providers.Chunk{textChunk("Hello"), end}, true, 6002, "provider"},
		"no usage arrives":  {[]providers.Chunk{textChunk("Hello"), end}, false, 2, "partial"},
		"too much arrives":  {[]providers.Chunk{textChunk("Hello"), end, long, long}, false, 4, "partial"},
		"output is missing": {[]providers.Chunk{end, textChunk("Hello")}, false, 2, "partial"},
	} {
		for _, how := range []string{"context canceled", "stream closed"} {
			t.Run(name+", "+how, func(t *testing.T) {
				count := usageChunk(providers.Usage{InputTokens: 10, OutputTokens: 6002})
				s := &lateUsageStream{fakeStream: fakeStream{chunks: append(tt.chunks, count)}, waits: make(chan struct{}), arrives: make(chan struct{})}
				r := base.withProviders(t, []providers.Provider{newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
					s.ctx = ctx
					return &providers.Response{Stream: s}, nil
				})})
				if r.usageTimeout = time.Minute; !tt.arrives {
					r.usageTimeout = time.Millisecond
				}
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				c := r.newCall()
				c.Body = []byte(streamBody)
				response, err := r.Chat(ctx, c)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if _, err := response.Stream.Next(); err != nil {
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
				if how == "context canceled" {
					_, _ = readAll(response.Stream)
				}
				_ = response.Stream.Close()
				if s.ctx.Err() == nil {
					t.Error("the provider's call is not canceled")
				}
				var out outcome
				if r.settle(c, &out); out.Source != tt.source || out.Output != tt.out {
					t.Errorf("got %d tokens by %s, want %d by %s", out.Output, out.Source, tt.out, tt.source)
				}
			})
		}
	}
}

func TestEarlyDisconnectCancelsProvider(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	p := newFake("one", func(ctx context.Context, _ *providers.ChatRequest) (*providers.Response, error) {
		leave()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if out := newFixture(t, []providers.Provider{p}).chatIn(ctx, streamBody); out.code != "canceled" || out.Source != "partial" || p.calls() != 1 {
		t.Errorf("got %+v, want canceled and partial after one call", out)
	}
}

func TestProviderIsCanceledAfterByteLimit(t *testing.T) {
	t.Parallel()
	ctx, w := watchClient(t.Context(), time.Minute)
	defer w.stop()
	w.observeChunk(providers.Chunk{Data: make([]byte, 2*maxBytesAfterDisconnect), Whole: true})
	w.clientDisconnected()
	w.observeChunk(providers.Chunk{Data: make([]byte, maxBytesAfterDisconnect), Whole: true})
	w.observeChunk(providers.Chunk{Data: []byte("!"), Whole: true})
	if ctx.Err() == nil {
		t.Errorf("not canceled after %d bytes", w.bytesAfter)
	}
}
