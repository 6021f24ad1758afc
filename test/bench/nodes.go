package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/app"
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

	mock.ask(b.ctx, usualResponse, &provider)
	b.measureCommits(e, at, nodes, mock.pid())
	b.method("Nodes: %d nodes share one PostgreSQL, and the %d connections of the load generator are spread over them. Those of the busy workspace are spread in the same way.", nodeCount, connections)
}

// sweep are the connections with which the costs of a request and a commit are measured.
var sweep = []int{1, 4, 16, 64, 256}

// measureCommits measures what PostgreSQL and the nodes take per request for batches of different sizes, and draws
// lines through the measurements: a cost per request, and one per commit.
func (b *bench) measureCommits(e *engine, at program.Place, nodes []*program.Server, mock int) {
	b.text("\nRequests per commit, and CPU by the number of connections, with a provider that responds immediately:")
	b.header("requests/s", "requests per commit", "database CPU per request", "CPU of the nodes per request", "others")
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	var share, database, node []float64 // commits per request, and CPU per request in µs
	for n := 1; n <= nodeCount; n++ {
		s := b.onNodes(e, at, nodes[:n])
		for _, connections := range sweep {
			if connections < n {
				continue
			}
			order := loadOrder{Targets: s.targets(false), Connections: connections, Duration: warmUp}
			var r loadResult
			b.waitForQuiet()
			b.load.ask(b.ctx, order, &r)
			order.Duration = b.duration
			var nodeCPU time.Duration
			for _, other := range nodes[1:n] {
				nodeCPU -= cpuTime(other.Pid())
			}
			before := commits(b.ctx, d, at)
			x := watch(nodes[0].Pid(), e.pid, []int{mock, b.load.pid(), nodes[1].Pid(), nodes[2].Pid()}, func() { b.load.ask(b.ctx, order, &r) })
			made := float64(commits(b.ctx, d, at)-before) / float64(r.Requests)
			for _, other := range nodes[1:n] {
				nodeCPU += cpuTime(other.Pid())
			}
			nodeCPU += x.cpu
			perRequest := func(t time.Duration) float64 { return float64(t.Microseconds()) / float64(r.Requests) }
			share, database, node = append(share, made), append(database, perRequest(x.databaseCPU)), append(node, perRequest(nodeCPU))
			say("%d nodes, %d connections: %d requests, %.1f per commit, %.0f µs and %.0f µs per request", n, connections, r.Requests, 1/made, perRequest(x.databaseCPU), perRequest(nodeCPU))
			b.row(fmt.Sprintf("%d nodes, %d connections", n, connections), fmt.Sprintf("%.0f", float64(r.Requests)/r.Took.Seconds()), fmt.Sprintf("%.1f", 1/made),
				fmt.Sprintf("%.0f µs", perRequest(x.databaseCPU)), fmt.Sprintf("%.0f µs", perRequest(nodeCPU)), fmt.Sprintf("%.0f%%", 100*x.others))
		}
	}
	request, commit := line(share, database)
	nodeRequest, nodeCommit := line(share, node)
	b.text("\nLines through these measurements: PostgreSQL takes %.0f µs per request and %.0f µs per commit, a node %.0f and %.0f µs.", request, commit, nodeRequest, nodeCommit)
}

// line returns the intercept and the slope with the smallest sum of squared relative errors.
func line(x, y []float64) (intercept, slope float64) {
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		w := 1 / (y[i] * y[i])
		n, sx, sy, sxx, sxy = n+w, sx+w*x[i], sy+w*y[i], sxx+w*x[i]*x[i], sxy+w*x[i]*y[i]
	}
	slope = (n*sxy - sx*sy) / (n*sxx - sx*sx)
	return (sy - slope*sx) / n, slope
}

// onNodes creates a workspace and a key, which the connections use on each node in turn.
func (b *bench) onNodes(e *engine, at program.Place, nodes []*program.Server) *loaded {
	s := b.loadWith(e, at, nodes[0], access.Key{}).loaded
	for _, n := range nodes[1:] {
		s.more = append(s.more, loadTarget{addressOf(n.URL), s.plain})
	}
	return s
}
