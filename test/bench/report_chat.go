package main

import (
	"fmt"
	"time"
)

// The targets for chat.
const (
	minRatio    = 0.35
	maxIdleMB   = 60.0
	maxKeyCheck = 5 * time.Microsecond
)

func (c *chat) targets() []target {
	ratio := ratioOf(c.plain[1].samples, c.plain[0].samples, sample.rate)
	check := median(c.keyChecks)
	return []target{
		{"chat on SQLite against bare net/http", fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at least %.2f", minRatio), ratio >= minRatio},
		{"memory after start", megabytes(c.idleMB), "under " + megabytes(maxIdleMB), c.idleMB < maxIdleMB},
		{"memory after one call", megabytes(c.afterCallMB), "under " + megabytes(maxIdleMB), c.afterCallMB < maxIdleMB},
		{"key check, cached", micros(check), "under " + micros(maxKeyCheck), check < maxKeyCheck},
	}
}

func (c *chat) tables(line line) {
	line("## Chat, plain")
	line("")
	chatTable(line, c.plain)
	line("")
	line("## Chat, streamed")
	line("")
	chatTable(line, c.stream)
	line("")
}

func chatTable(line line, all []*series) {
	line("| | requests/s | ratio | rounds | p50 | p99 | CPU per request | of its database | others |")
	line("|---|---|---|---|---|---|---|---|---|")
	for _, s := range all {
		store := "–"
		if per := figure(s.samples, func(x sample) float64 { return float64(x.storeCPU) / float64(x.Requests) }); per > 0 {
			store = fmt.Sprintf("%.0f µs", per/1e3)
		}
		line("| %s | %.0f | %.2f | %s | %s | %s | %.0f µs | %s | %.0f %% |", s.subject,
			figure(s.samples, sample.rate), ratioOf(s.samples, all[0].samples, sample.rate),
			joined(s.samples, func(x sample) string { return fmt.Sprintf("%.0f", x.rate()) }),
			millis(time.Duration(figure(s.samples, func(x sample) float64 { return float64(x.P50) }))),
			millis(time.Duration(figure(s.samples, func(x sample) float64 { return float64(x.P99) }))),
			figure(s.samples, func(x sample) float64 { return float64(x.cpu) / float64(x.Requests) })/1e3, store,
			100*figure(s.samples, func(x sample) float64 { return x.others }))
	}
}

func (c *chat) context(line line) {
	line("| key check, cached, each round | %s |", joined(c.keyChecks, micros))
	line("| memory after start / after one call / after all of the chat above (SQLite) | %s / %s / %s |", megabytes(c.idleMB), megabytes(c.afterCallMB), megabytes(c.loadedMB))
}

func (c *chat) method(line line, o options) {
	line("- Chat: Turnpike is the released form of the binary with its default settings: the durable request log is on, and no byte of an answer leaves before its entry is committed.")
	line("  A test key calls `POST /v1/chat/completions`; the simulator answers without delay, so what is measured is all that Turnpike adds: the HTTP edge, the key, the request log, real token counts.")
	line("- The bare server is `net/http` with a handler that writes the very bytes that Turnpike answered (%d plain; %d in %d events, flushed one by one, when streamed). It has no log, no key check, and does not look at the request.", len(c.answer), len(c.events), len(splitEvents(c.events)))
	line("- The load generator is a third process: %d keep-alive connections over loopback, each sending its next request when the last is answered, %v after %v of warm-up. Every answer is read to its end, and any but 200 ends the run.", connections, o.duration, warmUp)
	line("- Memory is the resident size, the highest within two seconds. The key check is a Go benchmark of `access.Authenticator` on SQLite, in memory, with the reload every ten seconds.")
}
