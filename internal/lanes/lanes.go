// Package lanes is the fair work queue under deliveries, jobs and agent runs.
//
// A lane groups work that must not starve other work: the deliveries of an
// endpoint, a share of a workspace's jobs. A node leases whole lanes, runs their
// due items with a limit per lane and a number of slots for all lanes, and
// releases a drained lane. The items stay in their owner's tables. The queue
// knows only which lanes have work, and when it is due.
//
// A leased lane is in one of five phases, which only lane.transition changes:
//
//	claim ──▶ idle ◀─────────────▶ working    items are buffered, running or unwritten
//	          ▲ ▲ ▲                  ▲
//	          │ │ └───▶ scanning ◀───┘        a scan is in progress; items may be running
//	          │ ▼
//	        releasing                         back to idle if someone enqueued work
//
//	any phase ──▶ lost                        released, handed over, or leased by another node
//
// Two values decide what to scan. lane.scanFrom is where a scan must begin as soon
// as nothing is buffered. lane.coverage is how much of the lane the node knows,
// and so what it must scan at the next poll or before it releases the lane.
package lanes

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"turnpike/internal/db"
)

// Item is a unit of work. The items of a lane run in the order of their keys.
type Item interface {
	Key() Key
}

// Key is an item's position in its lane. A key without an ID sorts before all
// items that are due at the same time.
type Key struct {
	Due int64 // microseconds
	ID  string
}

// Batch is the result of a scan.
type Batch[T Item] struct {
	Items []T
	// Next is when the lane's next item is due, if there are no Items. Zero
	// means that the lane has none.
	Next time.Time
	// Rescan asks for another scan immediately, although there are no Items.
	Rescan bool
}

// Source stores and runs the items of a queue.
type Source[T Item] interface {
	// Fetch returns up to n due items of the lane after a key, in order. Only
	// the node that leases the lane calls it, one call at a time.
	Fetch(ctx context.Context, lane string, after Key, n int) (Batch[T], error)
	// Work runs one item. The item isn't returned to Work again before its
	// Outcome is durable.
	Work(ctx context.Context, lane string, item T) Result
}

// Result is the result of running an item.
type Result struct {
	Healthy bool       // false if the lane was slow or failed
	Done    bool       // no part of the item is left to run later
	Due     *time.Time // when the rest of the item is due; nil if unknown
	Outcome Outcome    // the write of the result
}

// Outcome is the write of a result. *db.Pending implements it.
type Outcome interface {
	// Then calls f once the write has succeeded or failed.
	Then(f func())
	Failed() bool
}

const (
	leaseDuration = 15 * time.Second
	renewInterval = 5 * time.Second
	// defaultPoll is a safety net: commits wake the runner in the same process,
	// and signals wake it in others.
	defaultPoll = time.Second
	// defaultLinger is how long a node keeps a drained lane, so that the next
	// item needs no claim.
	defaultLinger = 2 * time.Second

	claimBatch = 64
	// initialLimit is how many items of an unknown lane run concurrently. The
	// limit of healthy lanes grows to Options.PerLane, and that of others
	// shrinks to one.
	initialLimit = 4
	maxScans     = 4
	// maxBuffered is roughly how many items all lanes buffer together. minScan
	// is the minimum that a scan may return, for any number of lanes.
	maxBuffered = 4096
	minScan     = 4
	// defaultUnwritten limits the items whose outcome isn't durable. A crash
	// repeats at most that many.
	defaultUnwritten = 256
	// maxHistories limits the remembered lanes, at about fifty bytes each.
	maxHistories = 16384
)

// Options configure a runner.
type Options struct {
	Queue string
	Node  string
	// PerLane limits the concurrent items of a lane, Slots those of all lanes.
	PerLane int
	Slots   int
	// MaxLanes limits the lanes that this node leases.
	MaxLanes int
	// MaxUnwritten limits the items that ran and whose outcome isn't durable; zero
	// means defaultUnwritten. If outcomes are expensive to write, an item of a new
	// lane waits behind that many.
	MaxUnwritten int
	// MoveBacklogs lets lanes with a backlog move to nodes with less work. A lane that moves starts no items until
	// those in flight have ended, so they must be short.
	MoveBacklogs bool
	Now          func() time.Time
	// DrainTimeout limits how long a stopping runner waits for running items; zero
	// means the lease duration.
	DrainTimeout time.Duration

	// These are for tests; zero means the default.
	Poll      time.Duration
	Linger    time.Duration
	imbalance int
}

// Backoff pauses after a storage error, so that a worker doesn't spin.
func Backoff(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// Retry pauses after a storage error, and returns the result of an item that didn't run.
func Retry(ctx context.Context) Result {
	Backoff(ctx)
	return Result{Outcome: db.Written}
}

// shards is how many lanes a workspace has for a kind of work, so that a busy
// workspace spreads over nodes.
const shards = 16

// ShardOf returns the lane of an item: one of the shards of name.
func ShardOf(name, id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return fmt.Sprintf("%s.%d", name, h.Sum32()%shards)
}
