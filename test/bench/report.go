package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

type report struct {
	targets  []target
	sections strings.Builder
	facts    strings.Builder // rows of the table "Context"
	methods  strings.Builder // list items of "How it is measured"
}

// target is a bound that the run must keep.
type target struct {
	name, value, bound string
	met                bool
}

func (r *report) atLeast(value, bound float64, unit, format string, args ...any) {
	r.targets = append(r.targets, target{fmt.Sprintf(format, args...), number(value, unit), "at least " + number(bound, unit), value >= bound})
}

func (r *report) atMost(value, bound float64, unit, format string, args ...any) {
	r.targets = append(r.targets, target{fmt.Sprintf(format, args...), number(value, unit), "at most " + number(bound, unit), value <= bound})
}

// number writes whole numbers for units that are large, and two digits otherwise.
func number(value float64, unit string) string {
	switch unit {
	case "MB", "KB":
		return fmt.Sprintf("%.0f %s", value, unit)
	case "/s":
		return fmt.Sprintf("%.0f/s", value)
	case "", "%":
		return fmt.Sprintf("%.2f%s", value, unit)
	}
	return fmt.Sprintf("%.2f %s", value, unit)
}

func inMillis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func millis(d time.Duration) string    { return number(inMillis(d), "ms") }
func seconds(d time.Duration) string   { return number(d.Seconds(), "s") }
func megabytes(mb float64) string      { return number(mb, "MB") }

func (r *report) section(format string, args ...any) {
	fmt.Fprintf(&r.sections, "\n## "+format+"\n\n", args...)
}
func (r *report) text(format string, args ...any) { fmt.Fprintf(&r.sections, format+"\n\n", args...) }
func (r *report) fact(name, value string)         { fmt.Fprintf(&r.facts, "| %s | %s |\n", name, value) }
func (r *report) method(format string, args ...any) {
	fmt.Fprintf(&r.methods, "- "+format+"\n", args...)
}
func (r *report) row(cells ...string) {
	r.sections.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// header writes a table's first row, whose first cell is empty.
func (r *report) header(cells ...string) {
	r.row(append([]string{""}, cells...)...)
	r.sections.WriteString(strings.Repeat("|---", len(cells)+1) + "|\n")
}

// column is a column of a table of series; first is the table's first series,
// which ratios refer to.
type column struct {
	title string
	cell  func(s, first series) string
}

func (r *report) table(all []series, columns ...column) {
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	r.header(titles...)
	for _, s := range all {
		cells := []string{s.name}
		for _, c := range columns {
			cells = append(cells, c.cell(s, all[0]))
		}
		r.row(cells...)
	}
}

// figure is the median of what get returns for the samples.
func (s series) figure(get func(sample) float64) float64 {
	values := make([]float64, len(s.samples))
	for i, x := range s.samples {
		values[i] = get(x)
	}
	return median(values)
}

// ratio is the median of the rounds' ratios: each compares two measurements
// that were made one after the other.
func (s series) ratio(to series, get func(sample) float64) float64 {
	ratios := make([]float64, len(s.samples))
	for i := range ratios {
		ratios[i] = get(s.samples[i]) / get(to.samples[i])
	}
	return median(ratios)
}

func p50(x sample) float64 { return inMillis(x.p50) }
func p99(x sample) float64 { return inMillis(x.p99) }

func rateColumn(things string) column {
	return column{things + "/s", func(s, _ series) string { return fmt.Sprintf("%.0f", s.figure(sample.rate)) }}
}

func figureColumn(title, unit string, get func(sample) float64) column {
	return column{title, func(s, _ series) string { return number(s.figure(get), unit) }}
}

func roundsColumn(title, format string, get func(sample) float64) column {
	return column{title, func(s, _ series) string {
		cells := make([]string, len(s.samples))
		for i, x := range s.samples {
			cells[i] = fmt.Sprintf(format, get(x))
		}
		return strings.Join(cells, ", ")
	}}
}

// cpuColumn is CPU time per thing, which not every subject has.
func cpuColumn(title string, get func(sample) time.Duration) column {
	return column{title, func(s, _ series) string {
		per := s.figure(func(x sample) float64 { return float64(get(x)) / float64(x.count) / 1e3 })
		if per == 0 {
			return "–"
		}
		return fmt.Sprintf("%.0f µs", per)
	}}
}

var (
	ratioColumn    = column{"ratio", func(s, first series) string { return number(s.ratio(first, sample.rate), "") }}
	rateRounds     = roundsColumn("rounds", "%.0f", sample.rate)
	p50Column      = figureColumn("p50", "ms", p50)
	p99Column      = figureColumn("p99", "ms", p99)
	p99Rounds      = roundsColumn("p99 of the rounds", "%.2f ms", p99)
	databaseColumn = cpuColumn("database CPU", func(x sample) time.Duration { return x.databaseCPU })
	othersColumn   = column{"others", func(s, _ series) string {
		return fmt.Sprintf("%.0f%%", 100*s.figure(func(x sample) float64 { return x.others }))
	}}
)

func serverCPU(thing string) column {
	return cpuColumn("CPU per "+thing, func(x sample) time.Duration { return x.cpu })
}

func (b *bench) markdown() string {
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("# Benchmarks\n")
	line("`make bench` measures everything on this page, writes it and exits with 1 if a target is missed. The numbers come from one run on %d shared cores", runtime.NumCPU())
	line("(%s, Linux). Servers and clients share the cores, and the machine has other users: compare numbers of one run, not of two.\n", runtime.Version())
	line("## Targets\n\n| | measured | target | |\n|---|---|---|---|")
	for _, t := range b.targets {
		verdict := "met"
		if !t.met {
			verdict = "**missed**"
		}
		line("| %s | %s | %s | %s |", t.name, t.value, t.bound, verdict)
	}
	out.WriteString(b.sections.String())
	line("\n## Context\n\n| | |\n|---|---|\n%s", b.facts.String())
	line("## How it is measured\n")
	line("- Every response and delivery is durable: SQLite runs with `synchronous=FULL`, and PostgreSQL %s with its default settings (`fsync` and `synchronous_commit` on) on the same machine. Servers, the servers they are compared with, the load generator and the receivers are separate processes.", b.databaseVersion)
	out.WriteString(b.methods.String())
	line("- The subjects are measured in turn, in %d rounds. A number is the median of the rounds, a ratio is the median of the rounds' ratios. CPU is the server's process time per request or delivery, with all its threads, the kernel's work for it and the garbage collector, without other processes.", b.options.rounds)
	line("- *Others* is the share of all cores that unrelated processes had. They cost a server that waits for its disk more than one that never waits: with more than a few percent, ratios are lower than on a quiet machine. A measurement waits until others have less than %.0f%%. If they had more, it's repeated, up to %d times in all, and the least disturbed one counts. Each part of the run waits %v at most; jobs, agent runs and the dashboard a quarter of it.", 100*disturbed, attempts, b.wait)
	return out.String()
}
