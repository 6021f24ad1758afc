package main

import (
	"fmt"
	"strings"
	"time"
)

// report is everything that was measured in one run.
type report struct {
	options         options
	cores           int
	goVersion       string
	postgresVersion string
	withoutPostgres error // why it was not measured

	fsync50, fsync99 time.Duration

	chat    *chat      // nil when it was not asked for
	gateway *gateway   // likewise
	hooks   *hooks     // likewise
	media   *media     // likewise
	agents  *agents    // likewise
	pages   *dashboard // likewise
}

// target is a bound that the run must keep.
type target struct {
	name  string
	value string
	bound string
	met   bool
}

func (r *report) targets() (all []target) {
	if r.chat != nil {
		all = append(all, r.chat.targets()...)
	}
	if r.gateway != nil {
		all = append(all, r.gateway.targets()...)
	}
	if r.hooks != nil {
		all = append(all, r.hooks.targets()...)
	}
	if r.media != nil {
		all = append(all, r.media.targets()...)
	}
	if r.agents != nil {
		all = append(all, r.agents.targets()...)
	}
	if r.pages != nil {
		all = append(all, r.pages.targets()...)
	}
	return all
}

// line writes a line of the report.
type line func(format string, args ...any)

// markdown is docs/benchmarks.md.
func (r *report) markdown() string {
	var b strings.Builder
	var line line = func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Benchmarks")
	line("")
	line("Written by `make bench`, which measures all of it anew and exits with 1 when a target is missed. The figures below are of one run on %d shared cores (%s, Linux),", r.cores, r.goVersion)
	line("where servers and whoever calls them have the same cores and neighbours come and go: compare figures of one run, not of two.")
	line("")
	line("## Targets")
	line("")
	line("| | measured | target | |")
	line("|---|---|---|---|")
	for _, t := range r.targets() {
		verdict := "met"
		if !t.met {
			verdict = "**missed**"
		}
		line("| %s | %s | %s | %s |", t.name, t.value, t.bound, verdict)
	}
	line("")
	if r.chat != nil {
		r.chat.tables(line)
	}
	if r.gateway != nil {
		r.gateway.tables(line)
	}
	if r.hooks != nil {
		r.hooks.tables(line)
	}
	if r.media != nil {
		r.media.tables(line)
	}
	if r.agents != nil {
		r.agents.tables(line)
	}
	if r.pages != nil {
		r.pages.tables(line)
	}
	if r.withoutPostgres != nil {
		line("PostgreSQL could not be started and was not measured in this run.") // why is on standard error; it may name folders
		line("")
	}
	line("## Context")
	line("")
	line("| | |")
	line("|---|---|")
	line("| write 4 KiB and fsync, same disk, same run | median %s, 99th percentile %s |", millis(r.fsync50), millis(r.fsync99))
	if r.chat != nil {
		r.chat.context(line)
	}
	if r.gateway != nil {
		r.gateway.context(line)
	}
	line("")
	line("## How it is measured")
	line("")
	line("- Everything that a server answers or delivers is durable: SQLite runs with `synchronous=FULL`%s. Servers, and what they are compared with, called by or deliver to, are processes of their own.", r.postgresText())
	if r.chat != nil {
		r.chat.method(line, r.options)
	}
	if r.gateway != nil {
		r.gateway.method(line)
	}
	if r.hooks != nil {
		r.hooks.method(line)
	}
	if r.media != nil {
		r.media.method(line)
	}
	if r.agents != nil {
		r.agents.method(line)
	}
	if r.pages != nil {
		r.pages.method(line)
	}
	line("- The subjects are measured in turn, in %d rounds; a figure is the median of the rounds, a ratio the median of the rounds' ratios. CPU is the server's process time per request or delivery, its threads, the kernel's work for it and the garbage collector included, that of the other processes not.", r.options.rounds)
	line("- Others is the share of all cores that processes which have nothing to do with this run had meanwhile. They take more from a server that waits for its disk and its writer than from one that never waits: with more than a few percent the ratios are lower than on a quiet machine. So a measurement waits until they have less than %.0f %%, and one during which they had more is repeated, up to %d times in all; the least disturbed one counts. After %v of waiting, for each part of the run unless it says otherwise, things are measured as they are.", 100*disturbed, attempts, patience)
	return b.String()
}

func (r *report) postgresText() string {
	if r.withoutPostgres != nil {
		return ""
	}
	return fmt.Sprintf("; PostgreSQL %s is as it is installed, `fsync` and `synchronous_commit` on, on the same machine", r.postgresVersion)
}

func megabytes(mb float64) string { return fmt.Sprintf("%.0f MB", mb) }
func micros(d time.Duration) string {
	return fmt.Sprintf("%.2f µs", float64(d)/float64(time.Microsecond))
}
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// seconds is for what takes long enough to be waited for.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// figure is the median of what get finds in the samples.
func figure[S any](samples []S, get func(S) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = get(s)
	}
	return median(values)
}

// ratioOf is the median of the rounds' ratios: each compares two measurements
// that were made one after the other.
func ratioOf[S any](samples, to []S, get func(S) float64) float64 {
	ratios := make([]float64, len(samples))
	for i := range ratios {
		ratios[i] = get(samples[i]) / get(to[i])
	}
	return median(ratios)
}

func joined[T any](values []T, text func(T) string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = text(v)
	}
	return strings.Join(parts, ", ")
}
