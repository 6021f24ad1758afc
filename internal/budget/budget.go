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
	"errors"
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

// ErrFull is the cause of the error for a reservation that the pool has no memory for.
var ErrFull = errors.New("the memory of requests is in use")

// Pool is the memory and the decoding that all budgets share.
type Pool struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	awaited int64         // of used: what tasks have set aside
	freed   chan struct{} // closed when memory is returned; nil if no one waits
	owners  map[string]*owner

	// waiting is held by the task that waits for memory. The others queue behind it.
	waiting *semaphore.Weighted

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
	return &Pool{limit: limit, owners: map[string]*owner{}, waiting: semaphore.NewWeighted(1), decoding: semaphore.NewWeighted(decodeBytes), share: decodeBytes / max(1, int64(runtime.GOMAXPROCS(0)/2))}
}

// SetLimit changes the number of bytes.
func (p *Pool) SetLimit(limit int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = limit
	p.wake()
}

// wake lets the task that waits look again.
func (p *Pool) wake() {
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// Used returns the number of bytes that are reserved.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
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

	mu      sync.Mutex
	size    int64 // reserved by the request
	held    int64 // of the pool: size without what is free, and at least what is awaited
	awaited int64 // set aside in addition to what is free
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
		if b.held+more > b.pool.largest(b.owner) {
			return fault.New(fault.RequestTooLarge, "The request takes more memory than this server gives to one. Send less at once, or ask the operator to raise limits.bodies_bytes.")
		}
		f := fault.New(fault.Overloaded, "Too many large requests are in progress. Retry shortly.").Because(ErrFull)
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
	if less := b.held - max(b.awaited, b.size-freeBytes); less > 0 {
		b.held -= less
		b.pool.release(b.owner, less, 0)
	}
}

// Release releases all memory.
func (b *Budget) Release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 {
		b.pool.release(b.owner, b.held, b.awaited)
	}
	b.size, b.held, b.awaited = 0, 0, 0
}

// Await sets memory aside for all that a task will reserve, and waits until there is some. The
// budget must be empty: tasks that have memory would wait for each other. All tasks together get
// up to half of the pool, so one that wants more gets half.
func (b *Budget) Await(ctx context.Context, bytes int64) error {
	if bytes <= freeBytes || b.unowned {
		return nil
	}
	p := b.pool
	if err := p.waiting.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for memory: %w", err)
	}
	defer p.waiting.Release(1)
	for {
		got, freed := p.setAside(b.owner, bytes-freeBytes)
		if freed == nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.held, b.awaited = got, got
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("wait for memory: %w", ctx.Err())
		}
	}
}

// setAside returns the bytes that a task got, or what is closed when there may be more.
func (p *Pool) setAside(name string, bytes int64) (got int64, freed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	bytes = min(bytes, p.limit/2)
	if p.used+bytes > p.limit || p.awaited+bytes > p.limit/2 {
		if p.freed == nil {
			p.freed = make(chan struct{})
		}
		return 0, p.freed
	}
	p.awaited += bytes
	p.used += bytes
	p.owner(name).bytes += bytes
	return bytes, nil
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
		share = min(share, p.limit/16)
	}
	if p.used+bytes > p.limit || o.bytes+bytes > share {
		return false
	}
	p.used += bytes
	o.bytes += bytes
	return true
}

// largest returns how many bytes the owner can have if no one else has any.
func (p *Pool) largest(name string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "" {
		return p.limit / 16
	}
	return p.limit / 2
}

func (p *Pool) release(name string, bytes, awaited int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= bytes
	p.awaited -= awaited
	p.wake()
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
