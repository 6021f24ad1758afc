package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

// measurement is what was measured on 2 cores that everything shares, with the same number of connections in all.
type measurement struct {
	nodes, connections int
	dbCPU, perSecond   string // µs per request, and requests
}

// measurements are those of the lines of the costs.
var measurements = []measurement{
	{1, 1, "224", "1,475"},
	{1, 4, "95", "3,910"},
	{1, 16, "47", "7,213"},
	{1, 64, "24", "11,613"},
	{1, 256, "19", "13,540"},
	{2, 4, "158", "3,028"},
	{2, 16, "69", "6,046"},
	{2, 64, "37", "9,836"},
	{2, 256, "25", "13,918"},
	{3, 4, "154", "3,022"},
	{3, 16, "108", "5,606"},
	{3, 64, "37", "10,474"},
	{3, 256, "28", "12,607"},
}

func (x measurement) setup(o options) setup {
	s := o.setup
	s.nodes, s.databases, s.nodeCores, s.dbCores, s.shared = x.nodes, 1, 2, 2, true
	s.connections = max(1, (x.connections+x.nodes/2)/x.nodes)
	s.provider = 0
	return s
}

func writeCalibration(w io.Writer, o options) {
	setups := make([]setup, len(measurements))
	for i, x := range measurements {
		setups[i] = x.setup(o)
	}
	results := measureAll(setups)
	table(w, "nodes | connections | database CPU per request, measured | predicted | requests/s, measured | predicted | requests per commit, predicted")
	for i, x := range measurements {
		r := results[i]
		row(w, x.nodes, x.connections, x.dbCPU+" µs", micros(r.dbCPU), x.perSecond, round(r.perSecond), fmt.Sprintf("%.1f", r.perCommit))
	}
}

// writeThroughput compares nodes that serve all databases with nodes that serve one each.
func writeThroughput(w io.Writer, o options) {
	var setups []setup
	for _, n := range o.nodeCounts {
		for _, d := range o.databaseCounts {
			s := o.setup
			s.nodes, s.databases = n, d
			setups = append(setups, s)
			s.spread = 1
			setups = append(setups, s)
		}
	}
	results := measureAll(setups)
	table(w, "nodes | databases | requests/s | per commit | commit p50, p99 | busy: nodes, databases | requests/s, one database per node | per commit | commit p50, p99 | busy: nodes, databases")
	for i := 0; i < len(results); i += 2 {
		cells := []any{setups[i].nodes, setups[i].databases}
		for _, r := range results[i : i+2] {
			cells = append(cells, round(r.perSecond), fmt.Sprintf("%.0f", r.perCommit), millis(r.p50)+", "+millis(r.p99), percent(r.nodeShare)+", "+percent(r.dbShare))
		}
		if setups[i].databases == 1 || setups[i].nodes == 1 && setups[i].databases > 1 { // the same, or databases without a node
			cells = append(cells[:6], "", "", "", "")
		}
		row(w, cells...)
	}
}

// measureAll measures setups on all cores. Each has its own simulation, so the order doesn't matter.
func measureAll(setups []setup) []result {
	out := make([]result, len(setups))
	var group sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, s := range setups {
		free <- struct{}{}
		group.Go(func() {
			out[i] = measure(s)
			<-free
		})
	}
	group.Wait()
	return out
}

func table(w io.Writer, header string) {
	fmt.Fprintf(w, "| %s |\n|%s\n", header, strings.Repeat("---|", strings.Count(header, "|")+1))
}

func row(w io.Writer, cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(w, "| %v ", c)
	}
	fmt.Fprintln(w, "|")
}

func millis(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1e3) }

func micros(d time.Duration) string { return grouped(int(d.Microseconds())) + " µs" }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func percent(share float64) string { return fmt.Sprintf("%.0f%%", share*100) }

// round keeps two digits.
func round(x float64) string {
	unit := 1
	for x/float64(unit) >= 100 {
		unit *= 10
	}
	return grouped(int(x/float64(unit)+0.5) * unit)
}

func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return cmp.Or(text, "0")
}
