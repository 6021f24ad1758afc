package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"turnpike/internal/providers"
)

// lastWords is how long a provider is listened to whose client has left with
// the whole answer, and without the count that follows it: usually for some
// milliseconds. lastBytes is how much it may say instead.
var lastWords = 2 * time.Second

const lastBytes = 64 << 10

// line leads to the provider of a streamed call. It ends when the client
// leaves. Only one who has the whole answer leaves it open for the count: else
// who is quick enough would not pay for what a model has thought.
type line struct {
	hangUp  context.CancelFunc
	unwatch func() bool // of the client
	whole   atomic.Bool
	gone    atomic.Bool
	after   int // bytes since then
}

// openLine returns what a provider is called with. The client's own context
// tells when it leaves.
func openLine(client context.Context) (context.Context, *line) {
	l := &line{}
	var ctx context.Context
	ctx, l.hangUp = context.WithCancel(context.WithoutCancel(client))
	l.unwatch = context.AfterFunc(client, l.left)
	return ctx, l
}

// left is told that there is no client any more, once or twice.
func (l *line) left() {
	l.gone.Store(true)
	if !l.whole.Load() {
		l.hangUp()
		return
	}
	time.AfterFunc(lastWords, l.hangUp)
}

// heard sees each chunk before the client does.
func (l *line) heard(c providers.Chunk) {
	l.whole.Store(c.Whole)
	if !l.gone.Load() {
		return
	}
	if l.after += len(c.Data); l.after > lastBytes {
		l.hangUp()
	}
}

func (l *line) close() {
	l.unwatch()
	l.hangUp()
}
