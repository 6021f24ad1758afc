package main

import (
	"runtime"
	"slices"
	"syscall"
	"time"
)

// usage is what processes did during a measurement.
type usage struct {
	cpu    []time.Duration // of each
	took   time.Duration
	others float64 // share of all cores that went to processes which are not ours
}

// watch runs fn and tells what the processes, which besides this one are all
// that work for it, spent meanwhile.
func watch(pids []int, fn func() error) (u usage, err error) {
	before, busyBefore, err := spent(pids)
	if err != nil {
		return u, err
	}
	ownBefore, err := ownTime()
	if err != nil {
		return u, err
	}
	begun := time.Now()
	if err := fn(); err != nil {
		return u, err
	}
	u.took = time.Since(begun)
	capacity := u.took * time.Duration(runtime.NumCPU())
	after, busy, err := spent(pids)
	if err != nil {
		return u, err
	}
	own, err := ownTime()
	if err != nil {
		return u, err
	}
	ours := own - ownBefore
	for i := range pids {
		u.cpu = append(u.cpu, after[i]-before[i])
		ours += u.cpu[i]
	}
	u.others = max(0, float64(busy-busyBefore-ours)/float64(capacity))
	return u, nil
}

func spent(pids []int) (each []time.Duration, busy time.Duration, err error) {
	for _, pid := range pids {
		used, err := cpuTime(pid)
		if err != nil {
			return nil, 0, err
		}
		each = append(each, used)
	}
	busy, err = machineBusy()
	return each, busy, err
}

// ownTime is what this process has used, without its children.
func ownTime() (time.Duration, error) {
	var used syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), err
}

// present are the processes that exist: 0 stands for none.
func present(pids ...int) []int {
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == 0 })
}
