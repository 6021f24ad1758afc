package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"turnpike/internal/config"
)

const (
	// gcPercent delays collections while the live heap is small. An idle server
	// has about 10 MB, and Go's default collects dozens of times a second under
	// load. This setting serves 14% more requests per second.
	gcPercent = 400

	// baseLimit is the memory up to which gcPercent applies. Above it, garbage is
	// collected when there is a quarter as much of it as live memory: thousands of
	// streams use much memory, but allocate little.
	baseLimit = 48 << 20
	// perCall raises the limit for model requests in flight, up to maxForCalls.
	// A collection takes both cores of a small machine for about 25 ms, which
	// delays first tokens. At 500 streams there was one per second, and it
	// caused the slowest 1% of first tokens.
	perCall     = 128 << 10
	maxForCalls = 64 << 20

	// startupTime is when memory that only the startup needed is returned to
	// the system.
	startupTime = time.Second

	tuneInterval = 250 * time.Millisecond
	tuneStep     = 4 << 20
)

// TuneMemory collects garbage rarely while the process is small, unless GOGC or
// GOMEMLIMIT is set. inFlight returns the number of model requests.
func TuneMemory(ctx context.Context, inFlight func() int64) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(baseLimit)
	go func() {
		tick := time.NewTicker(tuneInterval)
		defer tick.Stop()
		freeMemory := time.After(startupTime)
		set := int64(baseLimit)
		for {
			select {
			case <-ctx.Done():
				return
			case <-freeMemory:
				debug.FreeOSMemory()
			case <-tick.C:
			}
			live, outside := inUse()
			if want := memoryLimit(live, outside, inFlight()); want != set {
				debug.SetMemoryLimit(want)
				set = want
			}
		}
	}()
}

// memoryLimit returns the memory at which garbage is collected, in steps, so that
// it changes rarely.
func memoryLimit(live, outside, calls int64) int64 {
	limit := baseLimit + min(calls*perCall, maxForCalls)
	return (max(limit, live+live/4+outside) + tuneStep - 1) / tuneStep * tuneStep
}

// inUse returns the live heap at the last collection, and the memory outside the
// heap: mostly stacks, of which each open stream has several.
func inUse() (live, outside int64) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(sample)
	live, outside = int64(sample[0].Value.Uint64()), int64(sample[1].Value.Uint64())
	for _, s := range sample[2:] {
		outside -= int64(s.Value.Uint64())
	}
	return live, max(0, outside)
}

// requestMemory returns the memory for requests: the configured one, and at most half of what the
// container or the machine has. A workspace may use half of it, which must hold the largest body.
func requestMemory(l config.Limits) int64 {
	limit := int64(l.BodiesBytes)
	if has, err := availableMemory(); err == nil {
		limit = min(limit, int64(min(has, 1<<62)/2))
	}
	return max(limit, 2*int64(l.BodyBytes), 2*int64(l.ModelBodyBytes))
}

// availableMemory returns the memory of the container, or of the machine.
var availableMemory = memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)
