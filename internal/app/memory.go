package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// gcPercent lets garbage lie while little is alive: some 10 MB are between
	// requests, and Go by itself would collect dozens of times a second under
	// load. (14 % more calls per second.)
	gcPercent = 400

	// roomy is up to where that goes; above it garbage is collected once there
	// is as much of it as is alive.
	roomy = 48 << 20
	// Model calls in flight move that up. A collection takes both cores of a
	// small machine for some 25 ms, and whoever waits for a first token then
	// waits for it: at 500 streams there was one a second, which was the slowest
	// hundredth of all first tokens.
	roomOfCall = 128 << 10
	roomOfAll  = 64 << 20

	// startTakes is when what only the start needed is given back to the system.
	startTakes = time.Second

	tuneEvery = 250 * time.Millisecond
	tuneStep  = 4 << 20
)

// TuneMemory has the process collect garbage seldom while it is small, unless
// the operator has set GOGC or GOMEMLIMIT. inFlight tells the number of model
// calls; nil is for none.
func TuneMemory(ctx context.Context, inFlight func() int64) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(roomy)
	go func() {
		tick := time.NewTicker(tuneEvery)
		defer tick.Stop()
		giveBack := time.After(startTakes)
		set := int64(roomy)
		for {
			select {
			case <-ctx.Done():
				return
			case <-giveBack:
				debug.FreeOSMemory()
			case <-tick.C:
			}
			var calls int64
			if inFlight != nil {
				calls = inFlight()
			}
			live, beside := inUse()
			if want := memoryLimit(live, beside, calls); want != set {
				debug.SetMemoryLimit(want)
				set = want
			}
		}
	}()
}

// memoryLimit is how much memory may be in use before garbage is collected, in
// steps, so that it is not set again and again.
func memoryLimit(live, beside, calls int64) int64 {
	room := roomy + min(calls*roomOfCall, roomOfAll)
	return (max(room, 2*live+beside) + tuneStep - 1) / tuneStep * tuneStep
}

// inUse is the memory that was alive at the last collection, and what is not
// the heap's: stacks above all, of which each open stream has several.
func inUse() (live, beside int64) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(sample)
	live, beside = int64(sample[0].Value.Uint64()), int64(sample[1].Value.Uint64())
	for _, s := range sample[2:] {
		beside -= int64(s.Value.Uint64())
	}
	return live, max(0, beside)
}
