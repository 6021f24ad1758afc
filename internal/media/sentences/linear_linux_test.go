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

// Ten times the text takes about ten times the CPU time. A split that looks at
// everything before it would take a hundred times.
func TestTimeGrowsLinearlyWithTheText(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, unit := range awkward {
		small := strings.Repeat(unit, 10_000/utf8.RuneCountInString(unit))
		large := strings.Repeat(small, 10)
		start := cpuTime(t)
		for range 10 {
			sentences.Split(small, 4000)
		}
		middle := cpuTime(t)
		sentences.Split(large, 4000)
		if ratio := 10 * float64(cpuTime(t)-middle) / float64(middle-start); ratio > 50 {
			t.Errorf("%s: 10 times the text took %.0f times the CPU time, want about 10 times", name, ratio)
		}
	}
}
