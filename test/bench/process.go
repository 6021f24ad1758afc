package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc, on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is what the process has used so far, with its children. Only Linux
// tells.
func cpuTime(pid int) (time.Duration, error) {
	stat, err := readStat(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, err
	}
	total := stat.used
	others, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range others {
		if s, err := readStat(path); err == nil && s.parent == pid { // others come and go
			total += s.used
		}
	}
	return total, nil
}

type processStat struct {
	parent int
	used   time.Duration // with children that have ended
}

func readStat(path string) (s processStat, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	// The second field is the name in brackets, which may hold anything.
	at := bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[at+1:]))
	if at < 0 || len(fields) < 15 {
		return s, fmt.Errorf("%s has another form than expected", path)
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return s, err
	}
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return s, err
		}
		s.used += time.Duration(n) * tick
	}
	return s, nil
}

// machineBusy is what all cores have worked so far, for anybody.
func machineBusy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat has another form than expected: %q", line)
	}
	var busy time.Duration
	for i, f := range fields[1:9] { // user nice system idle iowait irq softirq steal
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		if i != 3 && i != 4 {
			busy += time.Duration(n) * tick
		}
	}
	return busy, nil
}

// residentMB is the memory that the process occupies.
func residentMB(pid int) (float64, error) { return memoryMB(pid, "VmRSS:") }

// peakMB is the most that it ever occupied.
func peakMB(pid int) (float64, error) { return memoryMB(pid, "VmHWM:") }

func memoryMB(pid int, field string) (float64, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no resident size of process %d", pid)
}

// settledMB is the highest of the process's sizes within two seconds: what is
// freed or taken late after a start is in it.
func settledMB(pid int) (highest float64, err error) {
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		mb, err := residentMB(pid)
		if err != nil {
			return 0, err
		}
		highest = max(highest, mb)
	}
	return highest, nil
}
