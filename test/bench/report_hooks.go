package main

import (
	"fmt"
	"time"
)

// The targets for webhooks.
const (
	minDeliveryRatio = 0.35
	maxDeliveryP99   = 50 * time.Millisecond
	minNeighbourRate = 0.9
	maxNeighbourP99  = 2.0
	maxGrowth        = 3.0 // of what must not depend on how many deliveries wait
	maxDeliveringMB  = 100.0
)

func (h *hooks) targets() (all []target) {
	for i, name := range h.engines {
		ratio := ratioOf(h.before[i+1].samples, h.before[0].samples, hookSample.rate)
		all = append(all, atLeast("a burst of deliveries on "+name+" against a bare loop", ratio, minDeliveryRatio))
	}
	for i, name := range h.engines {
		p99 := time.Duration(figure(h.steady[i].samples, p99))
		all = append(all, target{"from commit to receipt on " + name + ", p99", millis(p99), "under " + millis(maxDeliveryP99), p99 < maxDeliveryP99})
	}
	for _, n := range h.neighbours {
		all = append(all,
			atLeast("deliveries/s beside an endpoint that hangs on "+n.engine, n.rate(), minNeighbourRate),
			atMost("p99 beside it on "+n.engine, n.p99(), maxNeighbourP99))
	}
	for _, p := range h.pending {
		if few, many := p.sizes[0], p.sizes[len(p.sizes)-1]; few.pending < many.pending {
			against := fmt.Sprintf("with %d waiting deliveries against %d on %s", many.pending, few.pending, p.engine)
			all = append(all,
				atMost("time to the first deliveries "+against, many.first.Seconds()/few.first.Seconds(), maxGrowth),
				atMost("time of a list of deliveries "+against+", worst", many.worstList(few), maxGrowth))
		}
		mb := p.memory()
		all = append(all, target{"memory while delivering on " + p.engine, megabytes(mb), "under " + megabytes(maxDeliveringMB), mb < maxDeliveringMB})
	}
	if len(h.engines) == 1 {
		all = append(all, target{"webhooks on PostgreSQL", "not measured", "as on SQLite", false})
	}
	return all
}

func atLeast(name string, ratio, bound float64) target {
	return target{name, fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at least %.2f", bound), ratio >= bound}
}

func atMost(name string, ratio, bound float64) target {
	return target{name, fmt.Sprintf("%.2f", ratio), fmt.Sprintf("at most %.2f", bound), ratio <= bound}
}

func p99(s hookSample) float64 { return float64(s.p99) }

func (n *neighbours) rate() float64 {
	return ratioOf(n.hanging, n.healthy, func(s neighbourSample) float64 { return s.burst.rate() })
}

func (n *neighbours) p99() float64 {
	return ratioOf(n.hanging, n.healthy, func(s neighbourSample) float64 { return p99(s.steady) })
}

// worstList is how much longer than with few a list takes, the one that grew most.
func (s pendingSample) worstList(few pendingSample) (worst float64) {
	for i, l := range s.lists {
		worst = max(worst, l.median.Seconds()/few.lists[i].median.Seconds())
	}
	return worst
}

func (p *pendingSeries) memory() (highest float64) {
	for _, s := range p.sizes {
		highest = max(highest, s.mb)
	}
	return highest
}

func (h *hooks) tables(line line) {
	line("## Webhooks, a burst of %d events to one endpoint", burstEvents)
	line("")
	line("Published in transactions of %d while it is delivered, from the first publish to the last receipt:", burstBatch)
	line("")
	burstTable(line, h.meanwhile)
	line("")
	line("Published in one transaction before, from its commit to the last receipt:")
	line("")
	burstTable(line, h.before)
	line("")
	line("## Webhooks, %.0f events a second to one endpoint", 1/steadyEvery.Seconds())
	line("")
	line("| | p50 | p99 | p99 of the rounds | CPU per delivery | of its database | others |")
	line("|---|---|---|---|---|---|---|")
	for _, s := range h.steady {
		line("| %s | %s | %s | %s | %s | %s | %s |", s.subject, medianMillis(s.samples, func(x hookSample) float64 { return float64(x.p50) }), medianMillis(s.samples, p99),
			joined(s.samples, func(x hookSample) string { return millis(x.p99) }), perDelivery(s.samples, false), perDelivery(s.samples, true), othersOf(s.samples))
	}
	line("")
	line("## Webhooks, beside an endpoint that hangs")
	line("")
	line("The figures of a healthy endpoint that has a neighbour with the same events. Deliveries/s are of %d events at once, the latencies of %.0f events a second:", neighbourEvents, 1/neighbourEvery.Seconds())
	line("")
	line("| | neighbour | deliveries/s | rounds | p50 | p99 | p99 of the rounds | others |")
	line("|---|---|---|---|---|---|---|---|")
	for _, n := range h.neighbours {
		neighbourRow(line, n.engine, "answers", n.healthy)
		neighbourRow(line, n.engine, "hangs", n.hanging)
	}
	line("")
	line("## Webhooks, many waiting deliveries")
	line("")
	line("On %d endpoints:", fillWorkspaces*fillEndpoints)
	line("")
	header, rule := "| | waiting | first %d delivered |", "|---|---|---|"
	for _, l := range h.pending[0].sizes[0].lists {
		header, rule = header+" list, "+l.name+" |", rule+"---|"
	}
	line(header+" memory |", firstDeliveries)
	line("%s---|", rule)
	for _, p := range h.pending {
		for _, s := range p.sizes {
			row := fmt.Sprintf("| Turnpike, %s | %d | %s |", p.engine, s.pending, seconds(s.first))
			for _, l := range s.lists {
				row += fmt.Sprintf(" %s (slowest %s) |", millis(l.median), millis(l.slowest))
			}
			line("%s %s |", row, megabytes(s.mb))
		}
	}
	line("")
}

func burstTable(line line, all []*hookSeries) {
	line("| | deliveries/s | ratio | rounds | CPU per delivery | of its database | others |")
	line("|---|---|---|---|---|---|---|")
	for _, s := range all {
		line("| %s | %.0f | %.2f | %s | %s | %s | %s |", s.subject, figure(s.samples, hookSample.rate), ratioOf(s.samples, all[0].samples, hookSample.rate),
			joined(s.samples, func(x hookSample) string { return fmt.Sprintf("%.0f", x.rate()) }), perDelivery(s.samples, false), perDelivery(s.samples, true), othersOf(s.samples))
	}
}

func neighbourRow(line line, engine, kind string, samples []neighbourSample) {
	steady := make([]hookSample, len(samples))
	for i, s := range samples {
		steady[i] = s.steady
	}
	line("| Turnpike, %s | %s | %.0f | %s | %s | %s | %s | %s |", engine, kind, figure(samples, func(s neighbourSample) float64 { return s.burst.rate() }),
		joined(samples, func(s neighbourSample) string { return fmt.Sprintf("%.0f", s.burst.rate()) }),
		medianMillis(steady, func(x hookSample) float64 { return float64(x.p50) }), medianMillis(steady, p99),
		joined(steady, func(x hookSample) string { return millis(x.p99) }), othersOf(steady))
}

func medianMillis(samples []hookSample, get func(hookSample) float64) string {
	return millis(time.Duration(figure(samples, get)))
}

// perDelivery is the CPU time of the server or of its database.
func perDelivery(samples []hookSample, store bool) string {
	per := figure(samples, func(s hookSample) float64 {
		if store {
			return float64(s.storeCPU) / float64(s.count)
		}
		return float64(s.cpu) / float64(s.count)
	})
	if per == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f µs", per/1e3)
}

func othersOf(samples []hookSample) string {
	return fmt.Sprintf("%.0f %%", 100*figure(samples, func(s hookSample) float64 { return s.others }))
}

func (h *hooks) method(line line) {
	line("- Webhooks: Turnpike runs inside a process that makes its events happen as the parts of the server do, in transactions of its own database, with default settings except that endpoints may be on this machine.")
	line("  An event is a finished run of an agent (%d bytes as it is delivered). It is stored with its cause, fanned out, signed and posted; every attempt is stored with its headers, its timings and the answer, and nothing is forgotten when the machine loses power.", h.body)
	line("- The receiver is `net/http` in a process of its own. It reads a delivery to its end, notes the time and answers 200. Times of different processes are of the same clock.")
	line("- The bare loop is Go's HTTP client in a process of its own: %d at once, as many as Turnpike has to one endpoint at most, sign the same bodies with `webhook.Sign` and post them to the same receiver. It stores nothing.", h.atOnce)
	line("- With %.0f events a second each is published in a transaction of its own, %d in all; the latency is from the moment that its transaction has committed to its receipt.", 1/steadyEvery.Seconds(), steadyEvents)
	line("- The endpoint that hangs accepts every delivery and does not answer until Turnpike gives up, which is after ten seconds. Each measurement beside a neighbour is on a server and a database of its own.")
	line("- Waiting deliveries are put into an empty database: %d workspaces with %d endpoints each, and events that %d of them want. Lists are read while the server is at rest (%d times each; there are no failed deliveries to find).", fillWorkspaces, fillEndpoints, fillFanout, listCalls)
	line("  The first %d are timed from the start of a server that finds all of them due; memory is the highest resident size within the first %v. PostgreSQL has its statistics (`ANALYZE`), as it has by itself a minute later.", firstDeliveries, pendingWork)
}
