package db

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Pending is a write in a queue.
type Pending struct {
	done  chan struct{}
	err   error
	queue interface{ flush(*Pending) } // nil if the write doesn't linger
	taken bool                         // into a commit; guarded by the group's lock

	mu   sync.Mutex
	then func()
}

// Written is a write that is already durable.
var Written = func() *Pending {
	p := &Pending{done: make(chan struct{})}
	close(p.done)
	return p
}()

// Then calls f when the write is durable or has failed, without a goroutine. It
// accepts one f, which must be fast because the writer calls it.
func (p *Pending) Then(f func()) {
	p.mu.Lock()
	ended := p.Ended()
	if !ended {
		p.then = f
	}
	p.mu.Unlock()
	if ended {
		f()
	}
}

func (p *Pending) finish(err error) {
	p.mu.Lock()
	p.err = err
	close(p.done)
	then := p.then
	p.mu.Unlock()
	if then != nil {
		then()
	}
}

// Wait returns when the write is durable or has failed, or when ctx ends.
func (p *Pending) Wait(ctx context.Context) error {
	if p.hurry() {
		return p.err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hurry reports whether the write has ended. If not, it ends its linger.
func (p *Pending) hurry() (ended bool) {
	if ended = p.Ended(); !ended && p.queue != nil {
		p.queue.flush(p)
	}
	return ended
}

// WaitFor is Wait with a timeout instead of a context, for the hot path.
func (p *Pending) WaitFor(limit time.Duration) error {
	if p.hurry() {
		return p.err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return fmt.Errorf("not written after %v: %w", limit, ErrUnavailable)
	}
}

// Ended reports whether the write is durable or has failed.
func (p *Pending) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Failed reports whether the write has ended without success.
func (p *Pending) Failed() bool { return p.Ended() && p.err != nil }
