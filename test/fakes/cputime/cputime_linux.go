// Package cputime checks how CPU time grows.
package cputime

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// WantLinear fails if a string takes much more CPU time than factor strings of a part
// of its length. Caches may cost up to five times as much. Quadratic work costs factor
// times as much.
func WantLinear(t *testing.T, part string, factor int, work func(text string)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	whole := strings.Repeat(part, factor)
	work(whole) // warms up
	start := threadTime(t)
	for range factor {
		work(part)
	}
	middle := threadTime(t)
	work(whole)
	// The kernel may count CPU time in ticks of 10 ms.
	if got, limit := threadTime(t)-middle, 5*(middle-start)+50*time.Millisecond; got > limit {
		t.Errorf("%.20q…: %d times the text took %v of CPU time, want at most %v", part, factor, got, limit)
	}
}

// threadTime returns the CPU time of the thread, which doesn't grow while others
// use the CPU.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
