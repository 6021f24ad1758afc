package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

const (
	warmEvents         = 1000
	burstEvents        = 5000
	burstBatch         = 50
	steadyEvents       = 1000
	steadyEvery        = 10 * time.Millisecond
	neighborEvents     = 2000
	neighborEvery      = 5 * time.Millisecond
	firstDeliveries    = 1000
	listRequests       = 21
	sharedEndpoints    = 20
	sharedEvents       = 1000
	pendingObservation = 5 * time.Second // of memory
)

type receiving struct {
	*child
	ctx context.Context
	url string
}

func (r *receiving) expect(path string, n int) {
	r.ask(r.ctx, receiverOrder{Path: path, Expect: n}, &receipts{})
}

func (r *receiving) wait(path string) (got receipts) {
	r.ask(r.ctx, receiverOrder{Path: path}, &got)
	if got.Missing > 0 {
		check(fmt.Errorf("%d of %d deliveries to %s didn't arrive within %v", got.Missing, len(got.At), path, receiptTimeout))
	}
	return got
}

func measureWebhooks(b *bench) {
	var first receipts
	to := &receiving{child: b.startChild(roleReceiver, receiverOrder{}, &first), ctx: b.ctx}
	defer to.kill()
	to.url = "http://" + first.Address
	b.measureDeliveries(to)
	b.measureNeighbors(to)
	b.measureSharing(to)
	b.measurePending(to)
}

// deliver publishes on a server and waits for the receipts at the path.
func (b *bench) deliver(n *node, to *receiving, o nodeOrder, path string) sample {
	o.Workspace = n.workspace
	to.expect(path, o.Count)
	var p nodeAnswer
	var got receipts
	x := watch(n.pid(), n.database, []int{to.pid()}, func() {
		n.ask(b.ctx, o, &p)
		got = to.wait(path)
		time.Sleep(100 * time.Millisecond) // the results of the last deliveries are still to be written
	})
	x.count, x.took = o.Count, time.Duration(slices.Max(got.At)-p.Begun)
	if o.Batch >= o.Count { // everything was committed before anything could be delivered
		x.took = time.Duration(slices.Max(got.At) - p.Ended)
	}
	waits := make([]time.Duration, o.Count)
	for i := range waits {
		waits[i] = time.Duration(max(0, got.At[i]-p.Committed[i])) // the publisher may read the clock after the receipt
	}
	x.p50, x.p99 = percentiles(waits)
	return x
}

// measureDeliveries measures one endpoint: how fast a burst is delivered,
// against a loop that only sends, and how long a single event takes.
func (b *bench) measureDeliveries(to *receiving) {
	nodes := make([]*node, len(b.engines))
	for i, e := range b.engines {
		n, stop := b.newNode(e)
		defer stop()
		nodes[i] = n
		n.subscribe(b.ctx, to.url+"/"+e.name)
		b.deliver(n, to, nodeOrder{Count: warmEvents, Batch: burstBatch}, "/"+e.name)
	}
	workers := settings(program.Place{}).Webhooks.PerEndpoint
	order := sendOrder{URL: to.url + "/bare", Secret: webhook.NewSecret(), Body: to.wait("/" + b.engines[0].name).Body, Count: warmEvents, Workers: workers}
	to.expect("/bare", warmEvents)
	loop := b.startChild(roleSender, order, &span{})
	defer loop.kill()
	subjects := func(o nodeOrder) []subject {
		all := []subject{{"sending loop", func() sample {
			order.Count = o.Count
			to.expect("/bare", o.Count)
			var sent span
			var got receipts
			x := watch(loop.pid(), 0, []int{to.pid()}, func() {
				loop.ask(b.ctx, order, &sent)
				got = to.wait("/bare")
			})
			x.count, x.took = o.Count, time.Duration(slices.Max(got.At)-sent.Begun)
			return x
		}}}
		for i, e := range b.engines {
			all = append(all, subject{e.String(), func() sample { return b.deliver(nodes[i], to, o, "/"+e.name) }})
		}
		return all
	}
	columns := []column{rateColumn("deliveries"), ratioColumn, rateRounds, serverCPU("delivery"), databaseColumn, othersColumn}
	b.section("Webhooks, a burst of %d events to one endpoint", burstEvents)
	b.text("Published in transactions of %d during the deliveries, from the first publication to the last receipt:", burstBatch)
	b.table(b.rounds("burst, published during deliveries", subjects(nodeOrder{Count: burstEvents, Batch: burstBatch})...), columns...)
	b.text("\nPublished in one transaction, from its commit to the last receipt:")
	before := b.rounds("burst, published before", subjects(nodeOrder{Count: burstEvents, Batch: burstEvents})...)
	b.table(before, columns...)
	b.section("Webhooks, %.0f events per second to one endpoint", 1/steadyEvery.Seconds())
	steady := b.rounds("steady", subjects(nodeOrder{Count: steadyEvents, Batch: 1, Every: steadyEvery})[1:]...)
	b.table(steady, p50Column, p99Column, p99Rounds, serverCPU("delivery"), databaseColumn, othersColumn)
	for i, e := range b.engines {
		b.atLeast(before[i+1].ratio(before[0], sample.rate), []float64{0.60, 0.50}[i], "", "a burst of deliveries on %s against a sending loop", e.name)
	}
	for i, e := range b.engines {
		b.atMost(steady[i].figure(p99), 50, "ms", "commit to receipt on %s, p99", e.name)
	}
	b.method("Webhooks: Turnpike runs in a process that publishes events as the server's own packages do, in transactions of its database, with default settings except that endpoints may be on this machine. An event is a completed agent run (%d bytes when delivered). Turnpike stores it with its cause, fans it out, signs and posts it; it stores every attempt with headers, timings and response, and loses nothing when the machine loses power.", len(order.Body))
	b.method("The receiver is `net/http` in a separate process. It reads a delivery to its end, notes the time and responds with 200. All processes use the same clock.")
	b.method("The sending loop is Go's HTTP client in a separate process: %d workers, as many as Turnpike uses for one endpoint at most, sign the same bodies with `webhook.Sign` and post them to the same receiver. It stores nothing.", workers)
	b.method("With %.0f events per second, each is published in a separate transaction, %d in all. The latency is the time from its commit to its receipt.", 1/steadyEvery.Seconds(), steadyEvents)
}

func (b *bench) measureNeighbors(to *receiving) {
	var subjects []subject
	for _, e := range b.engines {
		subjects = append(subjects,
			subject{e.String() + ", neighbor responds", func() sample { return b.besideEndpoint(e, to, "/second") }},
			subject{e.String() + ", neighbor hangs", func() sample { return b.besideEndpoint(e, to, hangingPath) }})
	}
	all := b.rounds("next to another endpoint", subjects...)
	b.section("Webhooks, next to an endpoint that hangs")
	b.text("The numbers of a healthy endpoint whose neighbor gets the same events. Deliveries/s are of %d events published without a pause, latencies of %.0f events per second:", neighborEvents, 1/neighborEvery.Seconds())
	b.table(all, rateColumn("deliveries"), rateRounds, p50Column, p99Column, p99Rounds, othersColumn)
	for i, e := range b.engines {
		healthy, hanging := all[2*i], all[2*i+1]
		b.atLeast(hanging.ratio(healthy, sample.rate), 0.9, "", "deliveries/s next to an endpoint that hangs on %s", e.name)
		b.atMost(hanging.ratio(healthy, p99), 2, "", "p99 next to an endpoint that hangs on %s", e.name)
	}
	b.method("The endpoint that hangs accepts every delivery and doesn't respond until Turnpike gives up, after ten seconds. Each measurement next to a neighbor uses a new server and a new database.")
}

func (b *bench) besideEndpoint(e *engine, to *receiving, path string) sample {
	n, stop := b.newNode(e)
	defer stop()
	n.subscribe(b.ctx, to.url+"/first")
	n.subscribe(b.ctx, to.url+path)
	deliver := func(o nodeOrder) sample {
		if path != hangingPath {
			to.expect(path, o.Count)
			defer to.wait(path)
		}
		return b.deliver(n, to, o, "/first")
	}
	deliver(nodeOrder{Count: warmEvents, Batch: burstBatch})
	// The sample has the rate of a burst and the latencies of single events.
	burst := deliver(nodeOrder{Count: neighborEvents, Batch: burstBatch})
	steady := deliver(nodeOrder{Count: steadyEvents, Batch: 1, Every: neighborEvery})
	burst.p50, burst.p99, burst.others = steady.p50, steady.p99, max(burst.others, steady.others)
	return burst
}

// measureSharing measures how two nodes divide a burst that one of them publishes for the endpoints of one workspace.
func (b *bench) measureSharing(to *receiving) {
	for _, e := range b.engines {
		if e.database == nil {
			continue
		}
		b.section("Webhooks, a burst on two nodes")
		b.text("%d events to %d endpoints of one workspace, published on one of two nodes:", sharedEvents, sharedEndpoints)
		b.header("deliveries/s", "share of the busier node")
		var highest float64
		for round := range b.options.rounds {
			share, rate := b.shareOfBusier(e, to)
			highest = max(highest, share)
			b.row(fmt.Sprintf("round %d", round+1), fmt.Sprintf("%.0f", rate), fmt.Sprintf("%.2f", share))
			say("two nodes, round %d: %.0f deliveries/s, the busier node has %.2f", round+1, rate, share)
		}
		b.atMost(highest, 0.65, "", "share of the busier of two nodes in a burst to %d endpoints of one workspace", sharedEndpoints)
		b.method("The nodes of a burst on two nodes are named in the User-Agent of their deliveries, and the receiver counts them. Each round has a new database.")
	}
}

func (b *bench) shareOfBusier(e *engine, to *receiving) (share, rate float64) {
	at, remove := b.newPlace(e)
	defer remove()
	a := newAccounts(b.ctx, at, 1, liveKey)[0]
	var nodes [2]*node
	for i := range nodes {
		nodes[i] = b.startVersion(e, at, a, fmt.Sprint("node-", i))
		defer nodes[i].kill()
	}
	path := func(i int) string { return fmt.Sprint("/shared-", i) }
	for i := range sharedEndpoints {
		nodes[0].subscribe(b.ctx, to.url+path(i))
		to.expect(path(i), sharedEvents)
	}
	b.waitForQuiet()
	var p nodeAnswer
	nodes[0].ask(b.ctx, nodeOrder{Workspace: a.workspace, Count: sharedEvents, Batch: burstBatch}, &p)
	by, total, last := map[string]int{}, 0, int64(0)
	for i := range sharedEndpoints {
		got := to.wait(path(i))
		for agent, n := range got.By {
			by[agent] += n
			total += n
		}
		last = max(last, slices.Max(got.At))
	}
	if total != sharedEvents*sharedEndpoints {
		check(fmt.Errorf("%d deliveries arrived, want %d: some were repeated", total, sharedEvents*sharedEndpoints))
	}
	return float64(slices.Max(slices.Collect(maps.Values(by)))) / float64(total), float64(total) / time.Duration(last-p.Begun).Seconds()
}

type pendingSample struct {
	first            time.Duration   // from its start to the first receipts
	medians, slowest []time.Duration // of the lists
	mb               float64
}

func (b *bench) measurePending(to *receiving) {
	b.section("Webhooks, many pending deliveries")
	b.text("On %d endpoints:", fillWorkspaces*fillEndpoints)
	b.header("pending", fmt.Sprintf("first %d delivered", firstDeliveries), "list, first page", "list, one endpoint's, pending", "list, failed", "memory")
	for _, e := range b.engines {
		var samples []pendingSample
		highest := 0.0
		for _, n := range b.sizes {
			s := b.withPending(e, to, n)
			samples, highest = append(samples, s), max(highest, s.mb)
			cells := []string{e.String(), strconv.Itoa(n), seconds(s.first)}
			for i := range s.medians {
				cells = append(cells, fmt.Sprintf("%s (slowest %s)", millis(s.medians[i]), millis(s.slowest[i])))
			}
			b.row(append(cells, megabytes(s.mb))...)
			say("%s, %d pending: first %d after %s, lists %v, %s", e, n, firstDeliveries, seconds(s.first), s.medians, megabytes(s.mb))
		}
		if few, many := samples[0], samples[len(samples)-1]; len(samples) > 1 {
			against := fmt.Sprintf("with %d pending deliveries against %d on %s", b.sizes[len(b.sizes)-1], b.sizes[0], e.name)
			b.atMost(many.first.Seconds()/few.first.Seconds(), 3, "", "time to the first deliveries %s", against)
			worst := 0.0
			for i := range many.medians {
				worst = max(worst, many.medians[i].Seconds()/few.medians[i].Seconds())
			}
			b.atMost(worst, 3, "", "time of a list of deliveries %s, worst", against)
		}
		b.atMost(highest, 100, "MB", "memory while delivering on %s", e.name)
	}
	b.method("Pending deliveries are written to an empty database: %d workspaces with %d endpoints each, and events that %d of them subscribe to. Lists are read while the server is idle (%d times each; no delivery has failed). The first %d deliveries are timed from the start of a server that finds all of them due; memory is the highest resident size within the first %v. PostgreSQL has its statistics (`ANALYZE`), which it would otherwise collect a minute later.", fillWorkspaces, fillEndpoints, fillFanout, listRequests, firstDeliveries, pendingObservation)
}

func (b *bench) withPending(e *engine, to *receiving, pending int) (s pendingSample) {
	at, remove := b.newPlace(e)
	defer remove()
	a, endpoint := b.fillPending(at, to.url+"/pending", pending)
	s.medians, s.slowest = b.timeLists(e, at, a, endpoint)
	b.makeDue(at)
	b.waitForQuiet()
	to.expect("/pending", min(firstDeliveries, pending))
	n := b.startNode(e, at, a)
	defer n.kill()
	s.mb = highestMB(n.pid(), pendingObservation)
	s.first = time.Duration(slices.Max(to.wait("/pending").At) - n.begun)
	return s
}

func (b *bench) timeLists(e *engine, at program.Place, a account, endpoint string) (medians, slowest []time.Duration) {
	n := b.startNode(e, at, a)
	defer n.kill()
	b.leastDisturbed("lists", subject{e.String(), func() sample {
		medians, slowest = nil, nil
		return watch(n.pid(), n.database, nil, func() {
			for _, query := range []string{"", "?status=pending&endpoint=" + endpoint, "?status=failed"} {
				took := make([]time.Duration, listRequests+1)
				for i := range took {
					begun := time.Now()
					must(callAPI(b.ctx, http.MethodGet, n.url+"/v1/deliveries"+query, n.key, nil))
					took[i] = time.Since(begun)
				}
				took = took[1:] // the first one opens the connection
				medians, slowest = append(medians, median(took)), append(slowest, slices.Max(took))
			}
		})
	}})
	return medians, slowest
}
