// Package lanes is the fair work queue under deliveries, jobs and agent runs.
//
// A lane is whatever must not starve its neighbours: an endpoint, a workspace's
// jobs. A node leases whole lanes, works what is due in them with a cap per
// lane and a number of slots for all, and gives a drained lane back. The work
// itself lies in its owner's tables: the queue knows only which lane has some,
// and from when on.
package lanes

import (
	"context"
	"time"

	"turnpike/internal/db"
)

// Item is a piece of work. Within a lane items are taken in the order of their keys.
type Item interface {
	Key() Key
}

// Key is an item's place in its lane: when it is due, and its id. One without
// an id lies before all items of its moment.
type Key struct {
	Due int64 // microseconds
	ID  string
}

// Batch is what a lane has to do.
type Batch[T Item] struct {
	Items []T
	// Next is when the lane has something again if there are no items; zero
	// for not before something is put in.
	Next time.Time
	// Rescan asks for another look at once, although there are no items.
	Rescan bool
}

// Source has the work behind a queue's lanes.
type Source[T Item] interface {
	// Fetch returns up to n items of the lane that are due and lie behind the
	// key, in order. Only the lane's owner calls it, one call at a time.
	Fetch(ctx context.Context, lane string, after Key, n int) (Batch[T], error)
	// Work does one item. Until what came of it is durable the item is not
	// fetched again.
	Work(ctx context.Context, lane string, item T) Result
}

// Result is what came of an item.
type Result struct {
	Healthy bool        // false when the lane turned out to be slow or dead
	Done    bool        // nothing of the item is left to be done later
	Due     *time.Time  // when the rest of it is due; nil for not known
	Outcome *db.Pending // its write
}

const (
	lease     = 15 * time.Second
	heartbeat = 5 * time.Second
	// defaultPoll is the safety net: commits kick the runner in the same
	// process and by signal in others.
	defaultPoll = time.Second
	// defaultLinger is how long a drained lane is kept: the next item then
	// needs no claim.
	defaultLinger = 2 * time.Second

	claimBatch = 64
	// startCap is how many items of a lane are worked at once before anything
	// is known of it; well lanes grow to the queue's cap, others shrink to one.
	startCap   = 4
	maxFetches = 4
	// maxBuffered is about how many items lanes hold that are not at work, and
	// leastLook what a look brings however many lanes there are.
	maxBuffered = 4096
	leastLook   = 4
	// defaultUnwritten bounds the items that were worked and whose outcome waits
	// for the store: as many may be done again after a crash.
	defaultUnwritten = 256
	// maxPast bounds how many lanes are remembered while others have them, or
	// nobody; each takes some fifty bytes.
	maxPast = 16384
)

// Options configure a runner.
type Options struct {
	Queue string
	Node  string
	// PerLane is the most items of one lane that are worked at once, Slots of all.
	PerLane int
	Slots   int
	// MaxLanes is the most lanes that this node has at once.
	MaxLanes int
	// MaxUnwritten is the most items that were worked and whose outcome waits for
	// the store; zero is the default. Where outcomes are much work, a newcomer's
	// waits behind so many.
	MaxUnwritten int
	Now          func() time.Time
	// DrainTimeout is how long a runner that stops waits for what is at work; zero is
	// a lease.
	DrainTimeout time.Duration

	// Poll and Linger are for tests that must not wait; zero is the default.
	Poll   time.Duration
	Linger time.Duration
}
