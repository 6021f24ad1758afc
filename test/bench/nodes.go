package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/access"
	"turnpike/test/chaos/program"
)

const (
	nodeCount       = 3
	quietWorkspaces = 9
	busyConnections = 32                     // of the tenth workspace
	busyProvider    = 20 * time.Millisecond  // so that the cores aren't the limit
	modelProvider   = 500 * time.Millisecond // as a model takes, so that each node has little to do
)

// measureNodes measures nodes that share PostgreSQL: what a request costs the
// database, and what a busy workspace costs the others.
func measureNodes(b *bench) {
	e := b.engines[len(b.engines)-1]
	if e.database == nil {
		return // reported as not measured
	}
	var provider string
	mock := b.startChild(roleStatic, usualResponse, &provider)
	defer mock.kill()
	at, remove := b.newPlace(e)
	defer remove()
	nodes := make([]*program.Server, nodeCount)
	for i := range nodes {
		own := program.Place{Dir: filepath.Join(at.Dir, fmt.Sprint(i)), DatabaseURL: at.DatabaseURL}
		check(os.Mkdir(own.Dir, 0o700))
		nodes[i] = b.serveGateway(own, provider)
		defer nodes[i].Kill()
	}

	one, three := b.onNodes(e, at, nodes[:1]), b.onNodes(e, at, nodes)
	one.name, three.name = "one node", fmt.Sprintf("%d nodes", nodeCount)
	helpers := []int{mock.pid(), nodes[1].Pid(), nodes[2].Pid()}
	all := b.throughput("nodes", []*loaded{one, three}, false, helpers...)
	perRequest := func(x sample) float64 { return float64(x.databaseCPU) / float64(x.count) / 1e3 }
	for i, most := range []float64{30, 45} {
		b.atMost(all[i].figure(perRequest), most, "µs", "CPU of PostgreSQL per request, %s", all[i].name)
	}
	b.section("Nodes that share PostgreSQL")
	b.table(all, rateColumn("requests"), rateRounds, p50Column, p99Column, databaseColumn, othersColumn)

	slow := usualResponse
	slow.Delay = modelProvider
	mock.ask(b.ctx, slow, &provider)
	little := b.throughput("nodes with little load", []*loaded{one, three}, false, helpers...)
	b.text("\nThe same connections, and a provider that takes %v, so that each node has little load:", modelProvider)
	b.table(little, rateColumn("requests"), rateRounds, p50Column, p99Column, databaseColumn, othersColumn)

	slow.Delay = busyProvider
	mock.ask(b.ctx, slow, &provider)
	quiet := b.onNodes(e, at, nodes[:1])
	for i := 1; i < quietWorkspaces; i++ {
		more := b.onNodes(e, at, nodes[i%nodeCount:][:1])
		quiet.more = append(quiet.more, loadTarget{more.address, more.plain})
	}
	busy := b.startChild(roleLoad, nil, nil)
	defer busy.kill()
	order := loadOrder{Duration: b.duration, Connections: quietWorkspaces}
	alone := func() sample { return b.underLoad(quiet, order, helpers...) }
	beside := func() (x sample) {
		done := make(chan error, 1)
		go func() {
			var r loadResult
			done <- busy.tryAsk(b.ctx, loadOrder{Targets: three.targets(false), Duration: warmUp + b.duration, Connections: busyConnections}, &r)
		}()
		x = b.underLoad(quiet, order, append(helpers, busy.pid())...)
		check(<-done)
		return x
	}
	neighbors := b.rounds("neighbors", subject{"nine workspaces", alone}, subject{"beside a busy one", beside})
	added := func(x sample) float64 { return inMillis(x.p99 - busyProvider) }
	b.atMost(neighbors[1].ratio(neighbors[0], added), 1.5, "", "time added to a request beside a busy workspace, p99, against without it")
	b.text("\nNine workspaces with one connection each, and a provider that takes %v:", busyProvider)
	b.table(neighbors, rateColumn("requests"), p50Column, p99Column, p99Rounds, databaseColumn, othersColumn)

	b.method("Nodes: %d nodes share one PostgreSQL, and the %d connections of the load generator are spread over them. The busy workspace has %d connections, spread in the same way.", nodeCount, connections, busyConnections)
}

// onNodes creates a workspace and a key, which the connections use on each node in turn.
func (b *bench) onNodes(e *engine, at program.Place, nodes []*program.Server) *loaded {
	s := b.loadWith(e, at, nodes[0], access.Key{}).loaded
	for _, n := range nodes[1:] {
		s.more = append(s.more, loadTarget{addressOf(n.URL), s.plain})
	}
	return s
}
