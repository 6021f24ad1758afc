package sentences_test

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"turnpike/internal/media/sentences"
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

// A text takes about as much CPU time as ten texts of a tenth of its length. A
// split that looks at everything before it would take ten times as much.
func TestTimeGrowsLinearlyWithTheText(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, unit := range awkward {
		small := strings.Repeat(unit, 50_000/utf8.RuneCountInString(unit))
		large := strings.Repeat(small, 10)
		start := cpuTime(t)
		for range 10 {
			sentences.Split(small, 4000)
		}
		middle := cpuTime(t)
		sentences.Split(large, 4000)
		// The kernel may count CPU time in ticks of 10 ms.
		if got, limit := cpuTime(t)-middle, 5*(middle-start)+50*time.Millisecond; got > limit {
			t.Errorf("%s: the long text took %v of CPU time, want at most %v", name, got, limit)
		}
	}
}
