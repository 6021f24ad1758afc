package main

import (
	"slices"
	"time"
)

// result is what a setup reaches.
type result struct {
	perSecond      float64 // requests
	perCommit      float64 // requests
	p50, p99       time.Duration
	nodeShare      float64       // of the nodes' cores that are busy
	dbShare        float64       // of the databases' cores
	dbCPU, nodeCPU time.Duration // per request
}

// How many requests each connection makes before and during the measurement, on average, at least.
const (
	warmUpRequests   = 3
	measuredRequests = 3
)

// measure runs a setup until enough requests have ended after the warm-up.
func measure(o setup) result {
	m := newModel(o)
	m.s.run(func() bool {
		return m.s.now >= o.warmUp && m.ended >= warmUpRequests*o.nodes*o.connections || m.s.now >= o.longest/2
	})
	m.measuring, m.measuredFrom = true, m.s.now
	nodes, databases := m.worked()
	m.s.run(func() bool {
		return m.completed >= max(o.requests, measuredRequests*o.nodes*o.connections) || m.s.now >= o.longest
	})
	return m.result(nodes, databases)
}

// worked returns the CPU of all nodes and all databases so far.
func (m *model) worked() (nodes, databases time.Duration) {
	for _, n := range m.members {
		nodes += n.process.worked
	}
	for _, d := range m.servers {
		databases += d.worked
	}
	return nodes, databases
}

// result describes the time since the nodes and databases had worked so much.
func (m *model) result(nodesBefore, databasesBefore time.Duration) result {
	nodes, databases := m.worked()
	nodes, databases = nodes-nodesBefore, databases-databasesBefore
	passed := m.s.now - m.measuredFrom
	share := func(worked time.Duration, cores int) float64 {
		return min(1, worked.Seconds()/passed.Seconds()/float64(cores)) // a thread may end just within the time
	}
	count := time.Duration(max(1, m.completed))
	slices.Sort(m.waits)
	return result{
		perSecond: float64(m.completed) / passed.Seconds(), perCommit: float64(m.completed) / float64(max(1, m.commits)),
		p50: percentile(m.waits, 50), p99: percentile(m.waits, 99),
		nodeShare: share(nodes, m.nodes*m.nodeCores), dbShare: share(databases, m.databases*m.dbCores),
		dbCPU: databases / count, nodeCPU: nodes / count,
	}
}

// percentile returns a percentile of a sorted list.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
