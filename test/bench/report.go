package main

import (
	"fmt"
	"strings"
	"time"
)

// The targets of the issue that this command was made for.
const (
	minRatio    = 0.35
	maxIdleMB   = 60.0
	maxKeyCheck = 5 * time.Microsecond
)

// report is everything that was measured in one run.
type report struct {
	options         options
	cores           int
	goVersion       string
	postgresVersion string
	withoutPostgres error // why it was not measured

	answer, events []byte // what a call is answered with

	fsync50, fsync99    time.Duration
	keyChecks           []time.Duration
	idleMB, afterCallMB float64
	loadedMB            float64
	plain, stream       []*series // the bare server's first
}

// target is a bound that the run must keep.
type target struct {
	name  string
	value string
	bound string
	met   bool
}

func (r *report) targets() []target {
	ratio := r.plain[1].ratio(r.plain[0])
	check := median(r.keyChecks)
	return []target{
		{"chat on SQLite against bare net/http", fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at least %.2f", minRatio), ratio >= minRatio},
		{"memory after start", megabytes(r.idleMB), "under " + megabytes(maxIdleMB), r.idleMB < maxIdleMB},
		{"memory after one call", megabytes(r.afterCallMB), "under " + megabytes(maxIdleMB), r.afterCallMB < maxIdleMB},
		{"key check, cached", micros(check), "under " + micros(maxKeyCheck), check < maxKeyCheck},
	}
}

// ratio is the median of the rounds' ratios: each compares two measurements
// that were made one after the other.
func (s *series) ratio(to *series) float64 {
	ratios := make([]float64, len(s.samples))
	for i := range ratios {
		ratios[i] = s.samples[i].rate() / to.samples[i].rate()
	}
	return median(ratios)
}

// of is the median of what get finds in the samples.
func (s *series) of(get func(sample) float64) float64 {
	values := make([]float64, len(s.samples))
	for i, sample := range s.samples {
		values[i] = get(sample)
	}
	return median(values)
}

func megabytes(mb float64) string { return fmt.Sprintf("%.0f MB", mb) }
func micros(d time.Duration) string {
	return fmt.Sprintf("%.2f µs", float64(d)/float64(time.Microsecond))
}
func millis(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// markdown is docs/benchmarks.md.
func (r *report) markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Benchmarks")
	line("")
	line("Written by `make bench`, which measures all of it anew and exits with 1 when a target is missed. The figures below are of one run on %d shared cores (%s, Linux),", r.cores, r.goVersion)
	line("where load generator and servers have the same cores and neighbours come and go: compare figures of one run, not of two.")
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
	line("## Chat, plain")
	line("")
	r.table(line, r.plain)
	line("")
	line("## Chat, streamed")
	line("")
	r.table(line, r.stream)
	line("")
	if r.withoutPostgres != nil {
		line("PostgreSQL could not be started and was not measured in this run.") // why is on standard error; it may name folders
		line("")
	}
	line("## Context")
	line("")
	line("| | |")
	line("|---|---|")
	line("| write 4 KiB and fsync, same disk, same run | median %s, 99th percentile %s |", millis(r.fsync50), millis(r.fsync99))
	line("| key check, cached, each round | %s |", joined(r.keyChecks, micros))
	line("| memory after start / after one call / after all of the load above (SQLite) | %s / %s / %s |", megabytes(r.idleMB), megabytes(r.afterCallMB), megabytes(r.loadedMB))
	line("")
	line("## How it is measured")
	line("")
	line("- Turnpike is the released form of the binary with its default settings: the durable request log is on, and no byte of an answer leaves before its entry is committed (SQLite with `synchronous=FULL`%s).", r.postgresText())
	line("  A test key calls `POST /v1/chat/completions`; the simulator answers without delay, so what is measured is all that Turnpike adds: the HTTP edge, the key, the request log, real token counts.")
	line("- The bare server is `net/http` with a handler that writes the very bytes that Turnpike answered (%d plain; %d in %d events, flushed one by one, when streamed). It has no log, no key check, and does not look at the request.", len(r.answer), len(r.events), len(splitEvents(r.events)))
	line("- The load generator is a third process: %d keep-alive connections over loopback, each sending its next request when the last is answered, %v after %v of warm-up. Every answer is read to its end, and any but 200 ends the run.", connections, r.options.duration, warmUp)
	line("- %d rounds measure the servers in turn; a figure is the median of the rounds, a ratio the median of the rounds' ratios. CPU is the server's process time per request, its threads, the kernel's work for it and the garbage collector included, the generator's not.", r.options.rounds)
	line("- Others is the share of all cores that processes which have nothing to do with this run had meanwhile. They take more from a server that waits for its disk and its writer than from one that never waits: with more than a few percent the ratios are lower than on a quiet machine. So a measurement waits until they have less than %.0f %%, and one during which they had more is repeated, up to %d times in all; the least disturbed one counts. After %v of waiting in a run things are measured as they are.", 100*disturbed, attempts, patience)
	line("- Memory is the resident size, the highest within two seconds. The key check is a Go benchmark of `access.Authenticator` on SQLite, in memory, with the reload every ten seconds.")
	return b.String()
}

func (r *report) postgresText() string {
	if r.withoutPostgres != nil {
		return ""
	}
	return fmt.Sprintf("; PostgreSQL %s as installed, `fsync` and `synchronous_commit` on, on the same machine", r.postgresVersion)
}

func (r *report) table(line func(string, ...any), all []*series) {
	line("| | requests/s | ratio | rounds | p50 | p99 | CPU per request | of its database | others |")
	line("|---|---|---|---|---|---|---|---|---|")
	for _, s := range all {
		rates := make([]float64, len(s.samples))
		for i, sample := range s.samples {
			rates[i] = sample.rate()
		}
		store := "–"
		if per := s.of(func(x sample) float64 { return float64(x.storeCPU) / float64(x.Requests) }); per > 0 {
			store = fmt.Sprintf("%.0f µs", per/1e3)
		}
		line("| %s | %.0f | %.2f | %s | %s | %s | %.0f µs | %s | %.0f %% |", s.subject,
			median(rates), s.ratio(all[0]), joined(rates, func(v float64) string { return fmt.Sprintf("%.0f", v) }),
			millis(time.Duration(s.of(func(x sample) float64 { return float64(x.P50) }))),
			millis(time.Duration(s.of(func(x sample) float64 { return float64(x.P99) }))),
			s.of(func(x sample) float64 { return float64(x.cpu) / float64(x.Requests) })/1e3, store,
			100*s.of(func(x sample) float64 { return x.others }))
	}
}

func joined[T any](values []T, text func(T) string) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = text(v)
	}
	return strings.Join(parts, ", ")
}
