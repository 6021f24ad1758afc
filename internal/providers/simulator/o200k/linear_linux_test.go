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
	const size, factor = 1 << 12, 16
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
		ratio := 8 * float64(cpuTime(t)-middle) / float64(middle-start)
		t.Logf("%q: %v, ratio %.1f", unit, (middle-start)/8, ratio)
		if ratio > 5*factor {
			t.Errorf("%q: %d times the text took %.0f times the CPU time, want about %d times", unit, factor, ratio, factor)
		}
	}
}
