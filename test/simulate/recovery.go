package main

import (
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// trials is how often a death is repeated, at other moments.
const trials = 2000

// deaths is how long it takes others to notice that a node died.
type deaths struct {
	lanes     []time.Duration // until another node has its lanes, sorted
	evictions []time.Duration // until another node evicts it, and so releases its budgets
}

// simulateDeaths lets one of the nodes die.
func simulateDeaths(nodes int, seed uint64) (out deaths) {
	random := rand.New(rand.NewPCG(seed, 1))
	uniform := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	for range trials {
		// Its last heartbeat and its last renewal were before its death. Others check at their own times.
		out.evictions = append(out.evictions, firstCheck(nodes-1, staleAfter-uniform(heartbeat), recoverEvery, uniform))
		out.lanes = append(out.lanes, firstCheck(nodes-1, laneLease-uniform(laneRenewal), lanePoll, uniform))
	}
	slices.Sort(out.evictions)
	slices.Sort(out.lanes)
	return out
}

// firstCheck returns when the first of some nodes checks, at or after a time.
func firstCheck(nodes int, from, interval time.Duration, uniform func(time.Duration) time.Duration) time.Duration {
	wait := interval
	for range nodes {
		wait = min(wait, uniform(interval))
	}
	return from + wait
}

func writeNodeDeaths(w io.Writer, o options) {
	table(w, "nodes | another node has its lanes: median, longest | its budgets are released: median, longest")
	for _, n := range o.nodeCounts {
		if n < 2 {
			continue
		}
		d := simulateDeaths(n, o.seed)
		row(w, n, seconds(percentile(d.lanes, 50))+", "+seconds(percentile(d.lanes, 100)), seconds(percentile(d.evictions, 50))+", "+seconds(percentile(d.evictions, 100)))
	}
}

// failover is what an outage of one database does.
type failover struct {
	accepted time.Duration // from its return until every node has served a request
	kept     int           // entries whose requests failed, and that were written afterwards
	others   float64       // what the other databases served during the outage, against before; 0 without others
}

// outageWarmUp is the time before an outage that it is compared with.
const outageWarmUp = 10 * time.Second

func (o options) failover(nodes, databases int, outage time.Duration) setup {
	s := o.setup
	s.nodes, s.databases = nodes, databases
	// A light load: the outage matters, not the cores.
	s.connections, s.provider = 2*databases, 100*time.Millisecond
	s.outageAt, s.outageFor = outageWarmUp, outage
	s.longest = s.outageAt + s.outageFor + 20*time.Second
	return s
}

func simulateFailover(s setup) (out failover) {
	m := newModel(s)
	before := 0
	m.s.run(func() bool { return m.s.now >= s.outageAt })
	for _, d := range m.servers[1:] {
		before += d.completed
	}
	m.s.run(func() bool { return m.s.now >= s.longest })
	during := 0
	for _, d := range m.servers[1:] {
		during += d.completedOutside
	}
	if before > 0 {
		out.others = float64(during) / s.outageFor.Seconds() / (float64(before) / s.outageAt.Seconds())
	}
	out.kept = m.kept
	for _, n := range m.members {
		if g := n.groups[0]; g != nil {
			out.accepted = max(out.accepted, g.returned-s.outageAt-s.outageFor)
		}
	}
	return out
}

func writeFailovers(w io.Writer, o options) {
	table(w, "nodes | databases | outage | all nodes serve its workspaces again after | entries written afterwards | requests/s of the other databases meanwhile")
	for _, n := range []int{3, 100} {
		for _, d := range []int{1, 4} {
			for _, outage := range []time.Duration{10 * time.Second, time.Minute} {
				f := simulateFailover(o.failover(n, d, outage))
				others := ""
				if d > 1 {
					others = percent(f.others)
				}
				row(w, n, d, outage, seconds(f.accepted), grouped(f.kept), others)
			}
		}
	}
}
