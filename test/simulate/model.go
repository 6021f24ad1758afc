package main

import (
	"math/rand/v2"
	"slices"
	"time"
)

// setup is what a simulation runs.
type setup struct {
	costs
	nodes, databases    int
	nodeCores, dbCores  int
	spread              int           // databases that a node serves; 0 for all
	connections         int           // of each node, each with one request at a time
	provider            time.Duration // that a provider takes
	shared              bool          // everything runs on one machine with nodeCores, including the clients
	seed                uint64
	warmUp              time.Duration
	requests            int           // that are measured
	longest             time.Duration // of the simulation
	outageAt, outageFor time.Duration // of the first database; 0 for none
}

// model is a running setup.
type model struct {
	setup
	s       simulation
	random  *rand.Rand
	members []*node
	servers []*database
	clients *process // nil if clients cost nothing here

	started, ended, refused, kept int
	measuring                     bool
	measuredFrom                  time.Duration
	completed, commits            int
	waits                         []time.Duration // from queued to durable
	closing                       bool            // no request starts
}

type node struct {
	process
	groups []*group // by database; nil for those that it doesn't serve
}

// database is one PostgreSQL server.
type database struct {
	id       int
	machine  *machine
	worked   time.Duration // CPU so far
	flushing bool
	waiting  []func() // for the next flush of the log
	down     bool
	outages  int

	completed        int // requests
	completedOutside int // of them after the outage of another database began, and before it ended
}

// group is the group commit of a node's writes to one database: one commit at a time, which takes all that is queued.
type group struct {
	m        *model
	n        *node
	db       *database
	queue    []*write
	busy     bool
	degraded bool // the last commit failed
	journal  int  // rows to post
	renewed  time.Duration
	returned time.Duration // when a request first succeeded after the outage; 0 for not yet
}

// write is an entry of the request log whose request waits for it.
type write struct {
	queued time.Duration
	done   func(durable bool)
}

func newModel(o setup) *model {
	m := &model{setup: o, random: rand.New(rand.NewPCG(o.seed, 0))}
	var all *machine
	if o.shared {
		all = newMachine(&m.s, o.nodeCores)
		m.clients = &process{m: all, threads: o.nodeCores}
		m.roundTrip = 0
	}
	on := func(cores int) *machine {
		if all != nil {
			return all
		}
		return newMachine(&m.s, cores)
	}
	for i := range o.databases {
		m.servers = append(m.servers, &database{id: i, machine: on(o.dbCores)})
	}
	spread := o.spread
	if spread == 0 {
		spread = o.databases
	}
	for i := range o.nodes {
		n := &node{process: process{m: on(o.nodeCores), threads: o.nodeCores}, groups: make([]*group, o.databases)}
		m.members = append(m.members, n)
		for k := range spread {
			db := m.servers[(i*spread+k)%o.databases]
			if n.groups[db.id] != nil {
				continue
			}
			g := &group{m: m, n: n, db: db}
			n.groups[db.id] = g
			m.every(postInterval, g.post)
			m.every(heartbeat, g.heartbeat)
			m.every(idleInterval, g.poll)
		}
		mine := slices.DeleteFunc(slices.Clone(n.groups), func(g *group) bool { return g == nil })
		for c := range o.connections {
			g := mine[c%len(mine)]
			// Connections don't start in step.
			m.s.after(m.uniform(time.Millisecond), func() { m.request(g) })
		}
	}
	if o.outageFor > 0 {
		first := m.servers[0]
		m.s.after(o.outageAt, func() { first.down = true; first.outages++ })
		m.s.after(o.outageAt+o.outageFor, func() { first.down = false })
	}
	return m
}

// every calls do at an interval, from a random time on.
func (m *model) every(interval time.Duration, do func()) {
	var again func()
	again = func() {
		if m.closing {
			return
		}
		m.s.after(interval, again)
		do()
	}
	m.s.after(m.uniform(interval), again)
}

func (m *model) uniform(most time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(most)))
}

// vary returns a duration between half and one and a half of d.
func (m *model) vary(d time.Duration) time.Duration { return d/2 + m.uniform(d+1) }

// fsyncTime has its 99th percentile at 1.7 times the median, as measured.
func (m *model) fsyncTime() time.Duration {
	d := m.fsync - m.fsync/10 + m.uniform(m.fsync/5+1)
	if m.random.IntN(50) == 0 {
		d += m.uniform(m.fsync*7/5 + 1)
	}
	return d
}

// onClient runs the half of a client's work.
func (m *model) onClient(done func()) {
	if m.clients == nil {
		done()
		return
	}
	m.clients.run(m.vary(m.client/2), done)
}

// request is a connection's next request, from its start to its end.
func (m *model) request(g *group) {
	if m.closing {
		return
	}
	m.started++
	end := func(durable bool) {
		m.ended++
		pause := time.Duration(0)
		if !durable {
			m.refused++
			pause = clientRetry
		} else {
			m.count(g)
		}
		m.s.after(pause, func() { m.request(g) })
	}
	m.onClient(func() {
		g.n.run(m.vary(time.Duration(beforeCommit*float64(m.nodeRequest))), func() {
			if g.degraded || m.s.now-g.renewed > nodeLease {
				end(false)
				return
			}
			m.s.after(m.provider, func() {
				g.add(&write{queued: m.s.now, done: func(durable bool) {
					g.n.run(m.vary(time.Duration((1-beforeCommit)*float64(m.nodeRequest))), func() {
						m.onClient(func() { end(durable) })
					})
				}})
			})
		})
	})
}

// count counts a request that succeeded.
func (m *model) count(g *group) {
	g.db.completed++
	if m.outageFor > 0 && m.s.now >= m.outageAt {
		if m.s.now < m.outageAt+m.outageFor {
			g.db.completedOutside++
		} else if g.returned == 0 {
			g.returned = m.s.now
		}
	}
	if m.measuring {
		m.completed++
	}
}

func (g *group) add(w *write) {
	g.queue = append(g.queue, w)
	g.commit()
}

// commit writes everything that is queued when the node has time for it.
func (g *group) commit() {
	if g.busy || len(g.queue) == 0 {
		return
	}
	g.busy = true
	m := g.m
	g.n.runNext(m.vary(m.nodeCommit/2), func() {
		n := min(len(g.queue), groupMax)
		batch := g.queue[:n:n]
		g.queue = g.queue[n:]
		g.db.transaction(m, m.vary(m.dbCommit)+time.Duration(n)*m.dbRequest, func(durable bool) {
			g.n.runNext(m.vary(m.nodeCommit/2), func() { g.finish(batch, durable) })
		})
	})
}

func (g *group) finish(batch []*write, durable bool) {
	m := g.m
	g.busy = false
	g.degraded = !durable
	if !durable {
		// The callers get 503. The entries are kept, since the provider has been paid.
		for i, w := range batch {
			if w.done != nil {
				w.done(false)
				m.kept++
			}
			batch[i] = &write{queued: w.queued}
		}
		g.queue = append(batch, g.queue...)
		g.busy = true
		m.s.after(outageRetry, func() { g.busy = false; g.commit() })
		return
	}
	g.journal++
	if m.measuring {
		m.commits++
	}
	for _, w := range batch {
		if w.done == nil {
			continue
		}
		if m.measuring {
			m.waits = append(m.waits, m.s.now-w.queued)
		}
		w.done(true)
	}
	g.commit()
}

// post moves the journal into the ledger.
func (g *group) post() {
	rows := g.journal
	if rows == 0 {
		return
	}
	g.journal = 0
	g.db.transaction(g.m, g.m.dbCommit+time.Duration(rows)*g.m.postedRow, func(durable bool) {
		if !durable {
			g.journal += rows
		}
	})
}

func (g *group) heartbeat() {
	at := g.m.s.now
	g.db.transaction(g.m, g.m.dbCommit, func(durable bool) {
		if durable {
			g.renewed = at
		}
	})
}

// poll stands for the reads of an idle node.
func (g *group) poll() {
	if !g.db.down {
		g.db.worked += g.m.dbIdle / time.Duration(time.Second/idleInterval)
		g.db.machine.run(g.m.dbIdle/time.Duration(time.Second/idleInterval), func() {})
	}
}

// transaction takes one round trip.
func (d *database) transaction(m *model, work time.Duration, done func(durable bool)) {
	outages := d.outages
	lost := func() bool { return d.down || d.outages != outages }
	m.s.after(m.roundTrip, func() {
		if lost() {
			done(false)
			return
		}
		d.machine.run(work, func() {
			d.worked += work
			d.flush(m, func() { done(!lost()) })
		})
	})
}

// flush calls done when the log is on the disk. One flush serves all that wait when it starts.
func (d *database) flush(m *model, done func()) {
	d.waiting = append(d.waiting, done)
	if !d.flushing {
		d.flushing = true
		d.flushOnce(m)
	}
}

func (d *database) flushOnce(m *model) {
	serves := d.waiting
	d.waiting = nil
	m.s.after(m.fsyncTime(), func() {
		for _, done := range serves {
			done()
		}
		d.flushing = len(d.waiting) > 0
		if d.flushing {
			d.flushOnce(m)
		}
	})
}
