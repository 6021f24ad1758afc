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
	busyProvider    = 20 * time.Millisecond  // so that the cores aren't the limit
	modelProvider   = 500 * time.Millisecond // as a model takes, so that each node has little to do
)

// busyConnections are the connections of the tenth workspace. With the most, the cores
// have more to do than time.
var busyConnections = []int{4, 8, 16, 32}

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
	beside := func(connections int) (x sample) {
		done := make(chan error, 1)
		go func() {
			var r loadResult
			done <- busy.tryAsk(b.ctx, loadOrder{Targets: three.targets(false), Duration: warmUp + b.duration, Connections: connections}, &r)
		}()
		x = b.underLoad(quiet, order, append(helpers, busy.pid())...)
		check(<-done)
		return x
	}
	subjects := []subject{{"nine workspaces", alone}}
	for _, n := range busyConnections {
		subjects = append(subjects, subject{fmt.Sprintf("beside one with %d connections", n), func() sample { return beside(n) }})
	}
	neighbors := b.rounds("neighbors", subjects...)
	added := func(x sample) float64 { return inMillis(x.p99 - busyProvider) }
	for _, s := range neighbors[1:] {
		b.atMost(s.ratio(neighbors[0], added), 1.5, "", "time added to a request %s, p99, against without it", s.name)
	}
	b.text("\nNine workspaces with one connection each, and a provider that takes %v:", busyProvider)
	b.table(neighbors, rateColumn("requests"), p50Column, p99Column, p99Rounds, databaseColumn, othersColumn)

	b.method("Nodes: %d nodes share one PostgreSQL, and the %d connections of the load generator are spread over them. Those of the busy workspace are spread in the same way.", nodeCount, connections)
}

// onNodes creates a workspace and a key, which the connections use on each node in turn.
func (b *bench) onNodes(e *engine, at program.Place, nodes []*program.Server) *loaded {
	s := b.loadWith(e, at, nodes[0], access.Key{}).loaded
	for _, n := range nodes[1:] {
		s.more = append(s.more, loadTarget{addressOf(n.URL), s.plain})
	}
	return s
}
