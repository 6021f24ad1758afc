package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// small is a setup that runs in milliseconds.
func small(change func(*setup)) setup {
	o := setup{costs: measured, nodes: 2, databases: 2, nodeCores: 2, dbCores: 2, connections: 32, seed: 7, warmUp: 50 * time.Millisecond, requests: 3000, longest: 10 * time.Second}
	if change != nil {
		change(&o)
	}
	return o
}

func TestEveryRequestEnds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*setup){
		"without an outage":     nil,
		"shared cores":          func(o *setup) { o.shared = true },
		"one database per node": func(o *setup) { o.spread = 1 },
		"a provider":            func(o *setup) { o.provider = 20 * time.Millisecond },
		"an outage":             func(o *setup) { o.outageAt, o.outageFor = 300*time.Millisecond, time.Second },
		"a long outage":         func(o *setup) { o.connections, o.outageAt, o.outageFor = 2, 300*time.Millisecond, 40*time.Second },
	} {
		m := newModel(small(change))
		m.s.run(func() bool { return m.s.now >= 2*time.Second+m.outageFor })
		m.closing = true
		m.s.run(func() bool { return false })
		if m.started != m.ended || m.started == 0 {
			t.Errorf("%s: %d requests started, %d ended", name, m.started, m.ended)
		}
		completed := 0
		for _, d := range m.servers {
			completed += d.completed
			if d.flushing || len(d.waiting) > 0 || len(d.machine.threads) > 0 {
				t.Errorf("%s: database %d still works", name, d.id)
			}
		}
		for _, n := range m.members {
			for _, g := range n.groups {
				if g != nil && (g.busy || len(g.queue) > 0) {
					t.Errorf("%s: %d writes are left", name, len(g.queue))
				}
			}
		}
		if completed+m.refused != m.ended || (m.refused > 0) != (m.outageFor > 0) {
			t.Errorf("%s: %d requests ended, of which %d succeeded and %d were refused", name, m.ended, completed, m.refused)
		}
	}
}

func TestSameSeedSameResult(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} {
		o := small(func(o *setup) { o.seed = seed })
		if a, b := measure(o), measure(o); a != b {
			t.Errorf("seed %d: got %+v and %+v", seed, a, b)
		}
	}
	a, b := measure(small(nil)), measure(small(func(o *setup) { o.seed++ }))
	if a == b {
		t.Error("another seed gives the same result")
	}
}

// Nothing asks for batches: they grow while a commit is in progress.
func TestBatchesGrowWithTheLoad(t *testing.T) {
	t.Parallel()
	last := 0.0
	for _, connections := range []int{1, 8, 32, 128} {
		r := measure(small(func(o *setup) { o.nodes, o.databases, o.connections = 1, 1, connections }))
		if r.perCommit < last*1.5 && last > 0 {
			t.Errorf("%d connections: %.1f requests per commit, after %.1f with fewer", connections, r.perCommit, last)
		}
		last = r.perCommit
	}
	if one := measure(small(func(o *setup) { o.nodes, o.databases, o.connections = 1, 1, 1 })); one.perCommit < 0.99 || one.perCommit > 1.01 {
		t.Errorf("one connection: %.2f requests per commit, want 1", one.perCommit)
	}
}

func TestMoreResourcesDoNotSlowDown(t *testing.T) {
	t.Parallel()
	const tolerance = 0.97 // of random numbers
	busy := func(o *setup) { o.nodes, o.databases, o.connections = 4, 1, 128 }
	base := measure(small(busy))
	for name, change := range map[string]func(*setup){
		"cores of the database": func(o *setup) { o.dbCores *= 2 },
		"cores of the nodes":    func(o *setup) { o.nodeCores *= 2 },
		"nodes":                 func(o *setup) { o.nodes *= 2 },
		"a second database for half of the nodes": func(o *setup) { o.databases, o.spread = 2, 1 },
		"cheaper commits":                         func(o *setup) { o.dbCommit /= 2 },
	} {
		if r := measure(small(func(o *setup) { busy(o); change(o) })); r.perSecond < base.perSecond*tolerance {
			t.Errorf("with %s: %.0f requests/s instead of %.0f", name, r.perSecond, base.perSecond)
		}
	}
	for name, change := range map[string]func(*setup){
		"a slower disk":    func(o *setup) { o.fsync *= 50 },
		"a longer way":     func(o *setup) { o.roundTrip *= 20 },
		"dearer commits":   func(o *setup) { o.dbCommit *= 4 },
		"cores for others": func(o *setup) { o.dbCores = 1 },
	} {
		if r := measure(small(func(o *setup) { busy(o); change(o) })); r.p50 <= base.p50 {
			t.Errorf("with %s: a commit takes %v instead of %v", name, r.p50, base.p50)
		}
	}
}

// TestOneCommitIsExact adds up what a single request costs.
func TestOneCommitIsExact(t *testing.T) {
	t.Parallel()
	c := costs{dbRequest: 25 * time.Microsecond, fsync: time.Millisecond, roundTrip: 2 * time.Millisecond}
	r := measure(small(func(o *setup) { o.costs, o.nodes, o.databases, o.connections, o.requests = c, 1, 1, 1, 200 }))
	if low, high := 2900*time.Microsecond, 3200*time.Microsecond; r.p50 < low || r.p50 > high {
		t.Errorf("a round trip of 2 ms and an fsync of 1 ms take %v, want about 3 ms", r.p50)
	}
	if off := r.dbCPU - c.dbRequest; off.Abs() > c.dbRequest/50 {
		t.Errorf("the database used %v per request, want %v", r.dbCPU, c.dbRequest)
	}
}

func TestMachineSharesItsCores(t *testing.T) {
	t.Parallel()
	var s simulation
	m := newMachine(&s, 2)
	var ended []time.Duration
	for _, work := range []time.Duration{10, 10, 10, 30} { // four threads on two cores
		m.run(work*time.Millisecond, func() { ended = append(ended, s.now.Round(time.Microsecond)) })
	}
	s.run(func() bool { return false })
	// At half speed until 20 ms, when three end. The last has 20 ms left, alone.
	want := []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}
	for i := range want {
		if len(ended) != len(want) || ended[i] != want[i] {
			t.Fatalf("threads ended at %v, want %v", ended, want)
		}
	}
}

func TestOutageOfOneDatabaseDelaysNoOther(t *testing.T) {
	t.Parallel()
	o := options{setup: small(nil)}
	f := simulateFailover(o.failover(3, 3, 5*time.Second))
	if f.others < 0.97 || f.others > 1.03 {
		t.Errorf("other databases served %.0f%% of their requests", f.others*100)
	}
	if f.kept == 0 || f.accepted <= 0 || f.accepted > clientRetry+outageRetry+time.Second {
		t.Errorf("got %+v, want kept entries, and service soon", f)
	}
	// Beyond the lease of a node, its next heartbeat comes first.
	long := simulateFailover(o.failover(3, 3, nodeLease+10*time.Second))
	if long.accepted <= f.accepted || long.accepted > heartbeat+clientRetry+time.Second {
		t.Errorf("after a long outage: got %v, want up to %v and more than %v", long.accepted, heartbeat+clientRetry, f.accepted)
	}
}

func TestDeathsAreNoticedWithinTheLimits(t *testing.T) {
	t.Parallel()
	few, many := simulateDeaths(2, 1), simulateDeaths(100, 1)
	for _, d := range []deaths{few, many} {
		if first, last := d.evictions[0], d.evictions[trials-1]; first < staleAfter-heartbeat || last > staleAfter+recoverEvery {
			t.Errorf("evicted after %v to %v", first, last)
		}
		if first, last := d.lanes[0], d.lanes[trials-1]; first < laneLease-laneRenewal || last > laneLease+lanePoll {
			t.Errorf("lanes claimed after %v to %v", first, last)
		}
	}
	if percentile(many.evictions, 50) >= percentile(few.evictions, 50) {
		t.Error("more nodes don't notice sooner")
	}
}

func TestTablesHaveARowForEachSetup(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-nodes", "1,2", "-databases", "1,2", "-connections", "8", "-requests", "200", "-node-cores", "2"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	writeThroughput(&out, o)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 || !strings.HasPrefix(lines[2], "| 1 | 1 | ") || !strings.HasPrefix(lines[5], "| 2 | 2 | ") {
		t.Errorf("got\n%s", out.String())
	}
	for _, l := range lines {
		if strings.Count(l, "|") != strings.Count(lines[0], "|") {
			t.Errorf("%q has other columns than %q", l, lines[0])
		}
	}
	for _, args := range [][]string{{"-nodes", "0"}, {"-databases", "x"}, {"-requests", "0"}, {"more"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
