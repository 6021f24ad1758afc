package o200k

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns the CPU time of the calling thread, which doesn't grow while
// others use the CPU.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Twice the text may take about twice the CPU time, and not four times as the
// tokenizer module's splitter does. The ratio of 16 times the text leaves room
// for caches: 16 is linear, and 256 quadratic.
func TestHostileTextIsLinear(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const size, factor = 1 << 14, 16
	Count("load the vocabulary")
	for _, unit := range []string{"a", " ", "\r\n  ", "\n ", "!", "日A", "Aa'", "\u0301", "\xff"} {
		small := strings.Repeat(unit, size/len(unit))
		large := strings.Repeat(small, factor)
		Count(large)
		start := cpuTime(t)
		for range 8 {
			Count(small)
		}
		middle := cpuTime(t)
		Count(large)
		// The kernel may count CPU time in ticks of 10 ms.
		if got, limit := cpuTime(t)-middle, 5*factor*(middle-start)/8+50*time.Millisecond; got > limit {
			t.Errorf("%q: %d times the text took %v of CPU time, want at most %v", unit, factor, got, limit)
		}
	}
}
