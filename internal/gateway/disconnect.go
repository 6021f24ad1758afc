package gateway

import (
	"context"
	"sync/atomic"
	"time"

	"turnpike/internal/providers"
)

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
