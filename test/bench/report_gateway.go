package main

import (
	"fmt"
	"time"
)

// The targets for calls to a provider.
const (
	minGatewayRatio = 0.5
	minGrownRatio   = 0.8
	maxAdded        = 300 * time.Microsecond
	maxFirstAdded   = 2 * time.Millisecond
	maxOpenMB       = 600.0
)

// more is the median of what a server adds, by the rounds.
func (s *latencySeries) more(get func(sample) time.Duration) time.Duration {
	added := make([]time.Duration, len(s.through))
	for i := range added {
		added[i] = get(s.through[i]) - get(s.direct[i])
	}
	return median(added)
}

func p50Of(x sample) time.Duration { return x.P50 }
func p99Of(x sample) time.Duration { return x.P99 }

func (g *gateway) targets() (all []target) {
	for _, s := range g.plain[1:] {
		ratio := ratioOf(s.samples, g.plain[0].samples, sample.rate)
		all = append(all, target{"calls to a provider against a bare reverse proxy, " + s.subject, fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at least %.2f", minGatewayRatio), ratio >= minGatewayRatio})
	}
	for i, s := range g.grown[1:] {
		ratio := ratioOf(s.samples, g.grown[0].samples, sample.rate) / ratioOf(g.plain[i+1].samples, g.plain[0].samples, sample.rate)
		all = append(all, target{fmt.Sprintf("the same ratio with %d entries in the log against before, %s", logEntries, s.subject), fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at least %.2f", minGrownRatio), ratio >= minGrownRatio})
	}
	for _, s := range g.added[1:] {
		more := s.more(p50Of)
		all = append(all, target{"added to a call of 5 ms, median, " + s.subject, millis(more), "under " + millis(maxAdded), more < maxAdded})
	}
	for _, s := range g.first[1:] {
		more := s.more(p99Of)
		all = append(all, target{fmt.Sprintf("added to the first token at %d streams, p99, %s", streamsAtOnce, s.subject), millis(more), "under " + millis(maxFirstAdded), more < maxFirstAdded})
	}
	for _, x := range g.open {
		all = append(all, target{fmt.Sprintf("memory with %d open streams, %s", x.streams, x.subject), megabytes(x.mb), "under " + megabytes(maxOpenMB), x.mb < maxOpenMB})
	}
	return all
}

func (g *gateway) tables(line line) {
	line("## Gateway, plain")
	line("")
	chatTable(line, g.plain)
	line("")
	line("## Gateway, plain, with %d entries in the log", logEntries)
	line("")
	chatTable(line, g.grown)
	line("")
	line("## Gateway, streamed")
	line("")
	chatTable(line, g.stream)
	line("")
	line("## Gateway, latency")
	line("")
	line("| | p50 | directly | p99 | directly |")
	line("|---|---|---|---|---|")
	for _, part := range []struct {
		name string
		list []*latencySeries
	}{{"one connection, a provider that takes 5 ms", g.added}, {fmt.Sprintf("first token of %d streams at once", streamsAtOnce), g.first}} {
		for _, s := range part.list {
			figureOf := func(list []sample, get func(sample) time.Duration) string {
				return millis(time.Duration(figure(list, func(x sample) float64 { return float64(get(x)) })))
			}
			line("| %s: %s | %s | %s | %s | %s |", part.name, s.subject, figureOf(s.through, p50Of), figureOf(s.direct, p50Of), figureOf(s.through, p99Of), figureOf(s.direct, p99Of))
		}
	}
	line("")
}

func (g *gateway) context(line line) {
	for _, x := range g.open {
		line("| memory with %d open streams, %s | %s |", x.streams, x.subject, megabytes(x.mb))
	}
}

func (g *gateway) method(line line) {
	line("- Gateway: a live key with a budget, in a workspace with one, calls a mock of OpenAI's API on this machine (%d bytes in, %d out; 22 events when streamed), with limits and the durable log on. The mock is a process of its own, and so is `httputil.ReverseProxy` in front of it, which has no keys, budgets or log. Their CPU is not the server's.", g.in, g.out)
	line("- Latency: what a server adds is the difference to calling the mock itself in the same round. For the first token the mock waits %v, and as long between events; the streams begin one after the other over the time that one takes.", streamPause)
	line("- Open streams: %d connections, each with one stream that lasts half a minute; the resident size is the highest of 15 seconds.", openStreams)
}
