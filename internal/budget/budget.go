// Package budget limits what a request may cost the server: the memory of what it sends and
// causes, the work of decoding it, and the time in which its bytes must arrive.
//
// The context of each request, socket message and background task carries its Budget. All bytes
// from outside are read through it, and what takes much memory or CPU time for few bytes runs in
// Decode. The linter rejects other ways to read. Code whose context has no budget of its own can
// read little, so a forgotten budget is never unlimited.
package budget

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"turnpike/internal/fault"
)

const (
	// freeBytes is the memory that a budget has without a reservation. Most requests need no more.
	freeBytes = 64 << 10
	// unownedBytes is the most that code without a budget of its own may read of one source.
	unownedBytes = 16 << 20
	// MaxDecode is the most memory that one Decode may take.
	MaxDecode = 64 << 20
	// decodeBytes is the memory of all decoding in progress.
	decodeBytes = 2 * MaxDecode
)

// Pool is the memory and the decoding that all budgets share.
type Pool struct {
	mu     sync.Mutex
	limit  int64
	used   int64
	owners map[string]*owner

	// decoding is counted in bytes. Each Decode counts as an even share at least, so this also
	// limits how many run: half as many as there are CPUs.
	decoding *semaphore.Weighted
	share    int64
}

// owner is a workspace with reservations or decoding in progress.
type owner struct {
	bytes  int64
	budget int                 // Decodes that run or wait
	turns  *semaphore.Weighted // one Decode at a time waits for the pool, so that owners take turns
}

// New returns a pool with a number of bytes.
func New(limit int64) *Pool {
	return &Pool{limit: limit, owners: map[string]*owner{}, decoding: semaphore.NewWeighted(decodeBytes), share: decodeBytes / max(1, int64(runtime.GOMAXPROCS(0)/2))}
}

// SetLimit changes the number of bytes.
func (p *Pool) SetLimit(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
}

type contextKey struct{}

// With returns a context whose budgets belong to the pool.
func (p *Pool) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, &Budget{pool: p, owner: "server", unowned: true})
}

// Begin returns a context with a budget of its own for a request or a task. The caller releases it
// when the work is done.
func Begin(ctx context.Context, workspace string) (context.Context, *Budget) {
	b := &Budget{pool: Of(ctx).pool, owner: workspace}
	return context.WithValue(ctx, contextKey{}, b), b
}

// unowned is the budget of contexts that don't belong to a server.
var unowned = &Budget{pool: New(1 << 30), unowned: true}

// Of returns the budget of a context.
func Of(ctx context.Context) *Budget {
	if b, ok := ctx.Value(contextKey{}).(*Budget); ok {
		return b
	}
	return unowned
}

// Budget is what one request has of a pool.
type Budget struct {
	pool  *Pool
	owner string // empty without a key
	// unowned budgets reserve nothing, because no one would release it. They limit what is read of a source.
	unowned bool

	mu   sync.Mutex
	size int64 // reserved by the request
	held int64 // of the pool: size without what is free
}

// SetOwner sets the workspace when it becomes known. The budget must be empty.
func (b *Budget) SetOwner(workspace string) { b.owner = workspace }

// Reserve reserves memory.
func (b *Budget) Reserve(bytes int64) error {
	if b.unowned {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	more := max(0, b.size+bytes-freeBytes) - b.held
	if more > 0 && !b.pool.reserve(b.owner, more) {
		f := fault.New(fault.Overloaded, "Too many large requests are in progress. Retry shortly.")
		f.RetryAfter = time.Second
		return f
	}
	b.size, b.held = b.size+bytes, b.held+max(0, more)
	return nil
}

// Return releases a part of the memory.
func (b *Budget) Return(bytes int64) {
	if b.unowned {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size -= bytes
	if less := b.held - max(0, b.size-freeBytes); less > 0 {
		b.held -= less
		b.pool.release(b.owner, less)
	}
}

// Release releases all memory.
func (b *Budget) Release() {
	if b.size > 0 {
		b.Return(b.size)
	}
}

// reserve reports whether the owner may have more bytes: up to half of what the others leave, so
// there is always some left. Requests without a key share a sixteenth of all.
func (p *Pool) reserve(name string, bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.owner(name)
	defer p.forget(name, o)
	share := (p.limit - p.used + o.bytes) / 2
	if name == "" {
		share = p.limit / 16
	}
	if p.used+bytes > p.limit || o.bytes+bytes > share {
		return false
	}
	p.used += bytes
	o.bytes += bytes
	return true
}

func (p *Pool) release(name string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= bytes
	o := p.owner(name)
	o.bytes -= bytes
	p.forget(name, o)
}

func (p *Pool) owner(name string) *owner {
	o := p.owners[name]
	if o == nil {
		o = &owner{turns: semaphore.NewWeighted(1)}
		p.owners[name] = o
	}
	return o
}

// forget drops an owner that uses nothing.
func (p *Pool) forget(name string, o *owner) {
	if o.bytes == 0 && o.budget == 0 {
		delete(p.owners, name)
	}
}

// Decode runs work that takes up to so many bytes of memory, or much CPU time. It waits until the
// owner has its turn and the pool has room. Work that needs more than MaxDecode is rejected.
func (b *Budget) Decode(ctx context.Context, bytes int64, work func() error) error {
	if bytes > MaxDecode {
		return fault.New(fault.RequestTooLarge, "Decoding the content would take %d bytes of memory. The limit is %d.", bytes, MaxDecode)
	}
	done, err := b.pool.startDecode(ctx, b.owner, bytes)
	if err != nil {
		return err
	}
	defer done()
	return work()
}

func (p *Pool) startDecode(ctx context.Context, name string, bytes int64) (done func(), err error) {
	p.mu.Lock()
	o := p.owner(name)
	o.budget++
	p.mu.Unlock()
	leave := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		o.budget--
		p.forget(name, o)
	}
	if err := o.turns.Acquire(ctx, 1); err != nil {
		leave()
		return nil, fmt.Errorf("wait for decoding: %w", err)
	}
	defer o.turns.Release(1) // the next one of the owner queues behind those of others
	weight := max(bytes, p.share)
	if err := p.decoding.Acquire(ctx, weight); err != nil {
		leave()
		return nil, fmt.Errorf("wait for decoding: %w", err)
	}
	return func() { p.decoding.Release(weight); leave() }, nil
}
