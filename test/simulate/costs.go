package main

import (
	"flag"
	"time"
)

// costs are what was measured, and what the code does. docs/explanation/past-one-postgresql.md describes them.
type costs struct {
	// CPU of PostgreSQL and of a node: the lines that make bench ARGS="-only nodes" draws through 13 measurements of 1, 2
	// and 3 nodes on 2 shared cores. They had 1 to 256 connections, and 1 to 100 requests per commit.
	dbRequest, dbCommit     time.Duration
	nodeRequest, nodeCommit time.Duration
	// CPU of PostgreSQL per second for a node that has no requests: 410 ms in 40 s for three of them, which ran 2,711
	// transactions, mostly polls.
	dbIdle time.Duration
	// CPU of the load generator and the provider's mock: what a bare proxy leaves of 2 cores. It served 15,900 requests
	// per second, with 79 µs each.
	client time.Duration
	// fsync of 4 KiB takes 0.10 ms, and 0.17 ms at the 99th percentile: docs/benchmarks.md.
	fsync time.Duration
	// A round trip between machines of one zone. Assumed: all measurements use loopback, whose CPU is in the costs.
	roundTrip time.Duration
	// Posting 500 rows takes 7 ms: docs/architecture.md.
	postedRow time.Duration
}

var measured = costs{
	dbRequest: 20 * time.Microsecond, dbCommit: 195 * time.Microsecond, dbIdle: 3400 * time.Microsecond,
	nodeRequest: 91 * time.Microsecond, nodeCommit: 267 * time.Microsecond,
	client: 47 * time.Microsecond, fsync: 100 * time.Microsecond, roundTrip: 200 * time.Microsecond, postedRow: 14 * time.Microsecond,
}

// The constants of the code that the simulation repeats.
const (
	groupMax     = 1024                   // db.groupMax
	outageRetry  = 500 * time.Millisecond // db.retryInterval
	postInterval = time.Second            // spend.postInterval
	idleInterval = 200 * time.Millisecond // a few polls together
	heartbeat    = 5 * time.Second        // nodes.heartbeatInterval
	staleAfter   = time.Minute            // nodes.staleAfter
	nodeLease    = 30 * time.Second       // nodes.leaseDuration
	recoverEvery = 30 * time.Second       // app.recoverInterval
	laneLease    = 15 * time.Second       // lanes.leaseDuration
	laneRenewal  = 5 * time.Second        // lanes.renewInterval
	lanePoll     = time.Second            // lanes.Options.Poll
	clientRetry  = time.Second            // of a client that got a 503
	beforeCommit = 0.75                   // of a node's work on a request; the rest sends the response
)

func (c *costs) flags(f *flag.FlagSet) {
	for _, o := range []struct {
		to    *time.Duration
		name  string
		usage string
	}{
		{&c.dbRequest, "db-request", "CPU of a database per request"},
		{&c.dbCommit, "db-commit", "CPU of a database per commit"},
		{&c.dbIdle, "db-idle", "CPU of a database per second for each node that it serves"},
		{&c.nodeRequest, "node-request", "CPU of a node per request"},
		{&c.nodeCommit, "node-commit", "CPU of a node per commit"},
		{&c.fsync, "fsync", "time of an fsync"},
		{&c.roundTrip, "round-trip", "time of a round trip between a node and a database"},
		{&c.postedRow, "posted-row", "CPU of a database per row of a journal that is posted"},
	} {
		f.DurationVar(o.to, o.name, *o.to, o.usage)
	}
}
