package lanes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// world is the model: items, the lanes table, and nodes whose runners are the
// code under test. It is in memory and runs in a synctest bubble. Items, scans
// and releases end only when an action of the test ends them.
type world struct {
	mu       sync.Mutex
	items    map[string]*modelItem
	rows     map[string]*row
	feeds    map[string]int // items that an empty scan of a lane adds
	nodes    []*node
	problems []string
	ids      int
	scans    int

	hold    bool              // scans and releases wait in gates
	gates   []*gate           // waiting scans and releases
	runs    []*modelRun       // running items
	written []*modelOutcome   // unwritten outcomes
	finish  func(r *modelRun) // ends items when they start; nil in the random part
}

type modelItem struct {
	lane    string
	due     int64 // zero if it is done
	direct  bool  // added by EnqueueNow
	silent  bool  // changed without an enqueue; found when its lane is idle
	changes int   // by enqueues
	writes  int   // of outcomes
	epoch   int   // of the last one
}

type row struct {
	due   int64 // zero for none
	seq   int64
	owner string
	until time.Time
	epoch int // counts the owners
}

// entry is an item as a scan saw it.
type entry struct {
	id              string
	due             int64
	changes, writes int
}

func (e entry) Key() Key { return Key{Due: e.due, ID: e.id} }

// gate blocks a scan or a release.
type gate struct {
	open  chan struct{}
	fails bool
}

// modelRun is a running item.
type modelRun struct {
	n     *node
	lane  string
	entry entry
	epoch int
	end   chan Result
}

// modelOutcome is the write of a result.
type modelOutcome struct {
	w      *world
	run    *modelRun
	due    int64 // the item's next due time
	failed bool
	ended  bool
	then   func()
}

func (o *modelOutcome) Failed() bool { return o.ended && o.failed }

func (o *modelOutcome) Then(f func()) {
	o.w.mu.Lock()
	if !o.ended {
		o.then = f
		o.w.mu.Unlock()
		return
	}
	o.w.mu.Unlock()
	f()
}

// write applies the outcome, unless the item was changed since it started.
func (o *modelOutcome) write() {
	o.w.mu.Lock()
	o.w.written = slices.DeleteFunc(o.w.written, func(p *modelOutcome) bool { return p == o })
	if i := o.w.items[o.run.entry.id]; !o.failed && i.changes == o.run.entry.changes && i.writes == o.run.entry.writes {
		i.due, i.epoch = o.due, o.run.epoch
		i.writes++
	}
	o.ended = true
	then := o.then
	o.w.mu.Unlock()
	if then != nil {
		then()
	}
}

// node is a runner, its store and its source.
type node struct {
	w       *world
	name    string
	r       *Runner[entry]
	down    bool            // the store is unreachable
	deaf    bool            // responses to writes are lost
	told    map[string]bool // lanes that the store reported as the node's
	unaware map[string]bool // lanes that it lost since the last renewal
	// lost and aware are deleted from told and unaware once the node has
	// processed the response to a renewal, which is when nothing moves.
	lost, aware map[string]bool
	signals     []string // pending signals
	loads       []string // pending signals about the load of nodes
	given       bool     // a pending signal
	stop        func()
}

var errStore = errors.New("store unavailable")

func (w *world) problemf(format string, args ...any) {
	w.problems = append(w.problems, fmt.Sprintf(format, args...))
}

func (w *world) wait() *gate {
	w.mu.Lock()
	g := &gate{open: make(chan struct{})}
	if w.hold {
		w.gates = append(w.gates, g)
	} else {
		close(g.open)
	}
	w.mu.Unlock()
	<-g.open
	return g
}

// read reads from the store.
func (n *node) read(do func(now time.Time)) error {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.down {
		return errStore
	}
	do(time.Now())
	return nil
}

// write writes to the store. Its response may be lost.
func (n *node) write(do func(now time.Time)) error {
	if err := n.read(do); err != nil || n.deaf {
		return errStore
	}
	return nil
}

func (r *row) claimableBy(now time.Time, expired bool) bool {
	if expired {
		return r.owner != "" && r.until.Before(now)
	}
	return r.owner == "" && r.due != 0 && r.due <= now.UnixMicro()
}

func (r *row) assign(owner string, until time.Time) {
	r.owner, r.until = owner, until
	r.epoch++
}

func (n *node) claimable(_ context.Context, expired bool) (found bool, err error) {
	err = n.read(func(now time.Time) {
		for _, r := range n.w.rows {
			found = found || r.claimableBy(now, expired)
		}
	})
	return found, err
}

func (n *node) claim(_ context.Context, most int, expired bool) (list []leasedLane, err error) {
	err = n.write(func(now time.Time) {
		for _, id := range sortedKeys(n.w.rows) {
			if r := n.w.rows[id]; len(list) < most && r.claimableBy(now, expired) {
				r.assign(n.name, now.Add(leaseDuration))
				list = append(list, leasedLane{id: id, seq: r.seq})
				n.told[id] = n.told[id] || !n.deaf
				delete(n.unaware, id)
				delete(n.lost, id)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (n *node) waiting(_ context.Context, most int) (found int, err error) {
	err = n.read(func(now time.Time) {
		for _, r := range n.w.rows {
			if found < most && r.claimableBy(now, false) {
				found++
			}
		}
	})
	return found, err
}

func (n *node) renew(_ context.Context, until time.Time, busy int) (list []leasedLane, err error) {
	err = n.write(func(time.Time) {
		for id, r := range n.w.rows {
			if r.owner == n.name {
				r.until = until
				list = append(list, leasedLane{id: id, seq: r.seq})
			}
		}
		for _, other := range n.w.nodes {
			other.loads = append(other.loads, loadPayload(n.name, busy))
		}
		if n.deaf {
			return
		}
		n.lost, n.aware = maps.Clone(n.told), maps.Clone(n.unaware)
		for _, l := range list {
			n.told[l.id] = true
			delete(n.lost, l.id)
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (n *node) release(_ context.Context, list []releasedLane) (names []string, err error) {
	n.w.wait()
	err = n.write(func(time.Time) {
		for _, l := range list {
			r := n.w.rows[l.id]
			if r.owner != n.name || r.seq != l.seq {
				continue
			}
			r.assign("", time.Time{})
			if r.due = 0; !l.next.IsZero() {
				r.due = l.next.UnixMicro()
			}
			names = append(names, l.id)
		}
	})
	n.w.wait()
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, l := range list {
		if err != nil || slices.Contains(names, l.id) {
			delete(n.told, l.id)
		}
	}
	if err != nil {
		return nil, err
	}
	return names, nil
}

func (n *node) handOver(_ context.Context, names []string) error {
	return n.write(func(now time.Time) {
		for _, id := range names {
			if r := n.w.rows[id]; r.owner == n.name {
				r.assign("", time.Time{})
				r.due = now.UnixMicro()
			}
			delete(n.told, id)
		}
		for _, other := range n.w.nodes {
			other.signals = append(other.signals, names...)
		}
	})
}

// checkNothingInFlight checks a lane that its node gives away. The caller holds the lock.
func (w *world) checkNothingInFlight(lane string, epoch int) {
	for _, r := range w.runs {
		if r.lane == lane && r.epoch == epoch {
			w.problemf("%s gives %s away while %s runs", r.n.name, lane, r.entry.id)
		}
	}
	for _, o := range w.written {
		if o.run.lane == lane && o.run.epoch == epoch {
			w.problemf("%s gives %s away before the outcome of %s is written", o.run.n.name, lane, o.run.entry.id)
		}
	}
}

func (n *node) give(_ context.Context, to string, names []string) error {
	return n.write(func(now time.Time) {
		for _, id := range names {
			if r := n.w.rows[id]; r.owner == n.name {
				n.w.checkNothingInFlight(id, r.epoch)
				r.assign(to, now.Add(giveLease))
			}
			delete(n.told, id)
		}
		for _, other := range n.w.nodes {
			other.given = other.given || other.name == to
		}
	})
}

func (n *node) releaseAll(ctx context.Context) error {
	var names []string
	n.w.mu.Lock()
	for id, r := range n.w.rows {
		if r.owner == n.name {
			names = append(names, id)
		}
	}
	n.w.mu.Unlock()
	return n.handOver(ctx, names)
}

func (n *node) seq(_ context.Context, id string) (seq int64, err error) {
	err = n.read(func(time.Time) { seq = n.w.rows[id].seq })
	return seq, err
}

// Fetch reads the items immediately, and returns them when its gate opens.
func (n *node) Fetch(_ context.Context, lane string, after Key, most int) (b Batch[entry], err error) {
	err = n.read(func(now time.Time) {
		n.w.scans++
		next := int64(0)
		for id, i := range n.w.items {
			k := Key{i.due, id}
			switch {
			case i.lane != lane || i.due == 0:
			case i.due > now.UnixMicro():
				if next == 0 || i.due < next {
					next = i.due
				}
			case compareKeys(k, after) > 0:
				b.Items = append(b.Items, entry{id, i.due, i.changes, i.writes})
			}
		}
		slices.SortFunc(b.Items, func(a, b entry) int { return compareKeys(a.Key(), b.Key()) })
		b.Items = b.Items[:min(most, len(b.Items))]
		if len(b.Items) > 0 {
			return
		}
		if n.w.feeds[lane] > 0 {
			n.w.feeds[lane]--
			n.w.add(lane, now.UnixMicro())
			b.Rescan = true
		} else if next != 0 {
			b.Next = time.UnixMicro(next)
		}
	})
	if g := n.w.wait(); g.fails && err == nil {
		err = errStore
	}
	return b, err
}

// Work checks the invariants of starting an item, and waits until the item
// ends.
func (n *node) Work(_ context.Context, lane string, e entry) Result {
	w := n.w
	w.mu.Lock()
	row, item := w.rows[lane], w.items[e.id]
	run := &modelRun{n: n, lane: lane, entry: e, epoch: row.epoch, end: make(chan Result, 1)}
	now := time.Now()
	if !n.told[lane] {
		w.problemf("%s starts %s in %s, whose lease it knows to be lost", n.name, e.id, lane)
	}
	if !n.unaware[lane] {
		if row.owner != n.name {
			w.problemf("%s starts %s in %s, which %q leases", n.name, e.id, lane, row.owner)
		}
		if item.writes != e.writes && item.epoch == row.epoch {
			w.problemf("%s starts %s again, from before its last outcome", n.name, e.id)
		}
		if item.changes == e.changes && item.writes == e.writes && (item.due != e.due || item.due > now.UnixMicro()) {
			w.problemf("%s starts %s due at %d although it is due at %d", n.name, e.id, e.due, item.due)
		}
	}
	total, inLane := 1, 1
	for _, other := range w.runs {
		if other.n == n {
			total++
			if other.lane == lane && other.epoch == run.epoch {
				inLane++
			}
		}
		if other.entry.id == e.id && other.epoch == run.epoch {
			w.problemf("%s runs twice at once under one lease", e.id)
		}
	}
	for _, o := range w.written {
		if o.run.entry.id == e.id && o.run.epoch == run.epoch {
			w.problemf("%s starts before its outcome is written", e.id)
		}
	}
	if total > n.r.Slots {
		w.problemf("%s runs %d items, and has %d slots", n.name, total, n.r.Slots)
	}
	if inLane > n.r.PerLane {
		w.problemf("%s runs %d items of %s, and may run %d", n.name, inLane, lane, n.r.PerLane)
	}
	w.runs = append(w.runs, run)
	slices.SortFunc(w.runs, func(a, b *modelRun) int {
		return cmp.Or(cmp.Compare(a.n.name, b.n.name), compareKeys(a.entry.Key(), b.entry.Key()))
	})
	if w.finish != nil {
		w.finish(run)
	}
	w.mu.Unlock()
	return <-run.end
}

// add stores a new item. The caller holds the lock.
func (w *world) add(lane string, due int64) string {
	w.ids++
	id := fmt.Sprintf("%04d", (w.ids*7919)%10000) // IDs aren't in the order of time
	w.items[id] = &modelItem{lane: lane, due: due}
	return id
}

// end ends a running item without writing its outcome. The caller holds the
// lock.
func (w *world) end(r *modelRun, o *modelOutcome, result Result) {
	o.w, o.run = w, r
	result.Outcome = o
	w.runs = slices.DeleteFunc(w.runs, func(p *modelRun) bool { return p == r })
	if !o.ended {
		w.written = append(w.written, o)
	}
	r.end <- result
}

// complete ends a running item as done and written. The caller holds the lock.
func (w *world) complete(r *modelRun) {
	if i := w.items[r.entry.id]; i.changes == r.entry.changes {
		i.due, i.epoch = 0, r.epoch
		i.writes++
	}
	w.end(r, &modelOutcome{ended: true}, Result{Healthy: true, Done: true})
}

// mark writes the same as Enqueue. The caller holds the lock.
func (w *world) mark(lane string, due int64) {
	r := w.rows[lane]
	if r == nil {
		r = &row{}
		w.rows[lane] = r
	}
	if r.seq++; r.due == 0 || due < r.due {
		r.due = due
	}
	for _, n := range w.nodes {
		n.signals = append(n.signals, fmt.Sprintf("%s:%d", lane, r.seq))
	}
}

// signal delivers the signals of a node.
func (n *node) signal() {
	n.w.mu.Lock()
	list, loads, given := n.signals, n.loads, n.given
	n.signals, n.loads, n.given = nil, nil, false
	n.w.mu.Unlock()
	for _, payload := range loads {
		n.r.onLoad(payload)
	}
	if given {
		n.r.onGiven(n.name)
	}
	for _, payload := range list {
		n.r.onSignal(payload)
	}
}

// join starts a node.
func (w *world) join(name string, o Options) {
	o.Node = name
	n := &node{w: w, name: name, told: map[string]bool{}, unaware: map[string]bool{}}
	n.r = newRunner(leaseStore(n), Source[entry](n), o)
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		n.r.Run(ctx)
		close(done)
	}()
	n.stop = func() {
		cancel()
		<-done
	}
}

// calm ends all faults, and ends items as soon as they start, except those for
// which hangs is true.
func (w *world) calm(hangs func(*modelRun) bool) {
	w.mu.Lock()
	w.hold = false
	for _, n := range w.nodes {
		n.down, n.deaf = false, false
	}
	w.finish = func(r *modelRun) {
		if !hangs(r) {
			w.complete(r)
		}
	}
	for _, g := range w.gates {
		close(g.open)
	}
	w.gates = nil
	for _, r := range slices.Clone(w.runs) {
		w.finish(r)
	}
	outcomes := slices.Clone(w.written)
	w.mu.Unlock()
	for _, o := range outcomes {
		o.write()
	}
	for _, n := range w.nodes {
		n.signal()
	}
}

// check returns the violated invariants while nothing moves.
func (w *world) check() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, i := range w.items {
		if r := w.rows[i.lane]; i.due != 0 && r.owner == "" && (r.due == 0 || r.due > max(i.due, time.Now().UnixMicro())) {
			w.problemf("%s is due at %d in %s, which was released as due at %d", id, i.due, i.lane, r.due)
		}
	}
	for _, n := range w.nodes {
		maps.DeleteFunc(n.told, func(id string, _ bool) bool { return n.lost[id] })
		maps.DeleteFunc(n.unaware, func(id string, _ bool) bool { return n.aware[id] })
		n.lost, n.aware = nil, nil
		n.r.mu.Lock()
		if bad := n.r.runningBy[unknown] + n.r.runningBy[slow]; bad > n.r.Slots-n.r.Slots/4 {
			w.problemf("%d of %d slots run items of lanes that aren't healthy", bad, n.r.Slots)
		}
		if s := n.r.runningBy[slow]; s > n.r.Slots/2 {
			w.problemf("%d of %d slots run items of slow lanes", s, n.r.Slots)
		}
		if u := n.r.inFlight - n.r.running; u >= n.r.MaxUnwritten+n.r.Slots {
			w.problemf("%d outcomes aren't written", u)
		}
		if len(n.r.lanes) > n.r.MaxLanes+len(w.rows) {
			w.problemf("%s leases %d lanes", n.name, len(n.r.lanes))
		}
		n.r.mu.Unlock()
	}
	return w.problems
}

// undone returns the items that aren't done, except running ones.
func (w *world) undone(counts func(*modelItem) bool) (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, i := range w.items {
		running := slices.ContainsFunc(w.runs, func(r *modelRun) bool { return r.entry.id == id })
		if i.due != 0 && !running && counts(i) {
			list = append(list, fmt.Sprintf("%s in %s (owner %q)", id, i.lane, w.rows[i.lane].owner))
		}
	}
	for lane, n := range w.feeds {
		if n > 0 && counts(&modelItem{lane: lane}) {
			list = append(list, "a feed of "+lane)
		}
	}
	slices.Sort(list)
	return list
}

func compareKeys(a, b Key) int { return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.ID, b.ID)) }

func sortedKeys[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for k := range m {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// pick draws an element, or returns false if there is none.
func pick[E any](rt *rapid.T, label string, list []E) (e E, ok bool) {
	if len(list) == 0 {
		return e, false
	}
	return list[rapid.IntRange(0, len(list)-1).Draw(rt, label)], true
}

// TestNoItemIsLostOrRunsTwice runs random sequences of enqueues, results,
// failures, lost responses and lost leases on two nodes. No item runs twice
// concurrently under one lease. No item starts in a lane whose lease its node
// knows to be lost, or from before its last outcome. Released lanes have
// nothing due, and no limit is exceeded. Then all faults end while one lane, or
// one item, hangs: everything else is done within a minute.
func TestNoItemIsLostOrRunsTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, checkLanes) // the wrapper hides T.Deadline, which a bubble forbids
	})
}

func checkLanes(rt *rapid.T) {
	w := &world{items: map[string]*modelItem{}, rows: map[string]*row{}, feeds: map[string]int{}}
	o := Options{Queue: "model", PerLane: 4, Slots: 8, MoveBacklogs: true, Now: time.Now,
		imbalance:    rapid.SampledFrom([]int{1, 1, 1000}).Draw(rt, "imbalance"),
		MaxLanes:     rapid.SampledFrom([]int{2, 10}).Draw(rt, "max lanes"),
		MaxUnwritten: rapid.SampledFrom([]int{2, 100}).Draw(rt, "max unwritten")}
	w.join("a", o)
	w.join("b", o)
	defer func() {
		w.calm(func(*modelRun) bool { return false })
		for _, n := range w.nodes {
			n.stop()
		}
	}()
	laneNames := []string{"p", "p", "p", "q", "r"}
	delays := []time.Duration{0, 0, 0, -time.Minute, 300 * time.Millisecond, 3 * time.Second}
	due := func() int64 { return time.Now().Add(rapid.SampledFrom(delays).Draw(rt, "delay")).UnixMicro() }
	anyNode := func() *node { return w.nodes[rapid.IntRange(0, 1).Draw(rt, "node")] }
	anyLane := func() string { return rapid.SampledFrom(laneNames).Draw(rt, "lane") }
	rt.Repeat(map[string]func(*rapid.T){
		"": func(rt *rapid.T) {
			synctest.Wait()
			if problems := w.check(); len(problems) > 0 {
				rt.Fatalf("%q", problems)
			}
		},
		"enqueue": func(rt *rapid.T) {
			lane, at := anyLane(), due()
			w.mu.Lock()
			defer w.mu.Unlock()
			for range rapid.SampledFrom([]int{1, 1, 2, 40}).Draw(rt, "items") {
				w.add(lane, at)
			}
			w.mark(lane, at)
		},
		"enqueue now": func(rt *rapid.T) {
			n, lane := anyNode(), anyLane()
			w.mu.Lock()
			now := time.Now().UnixMicro()
			id := w.add(lane, now)
			w.items[id].direct = true
			w.mark(lane, now)
			seqs := map[string]int64{lane: w.rows[lane].seq}
			w.mu.Unlock()
			n.r.addEnqueued(map[string][]entry{lane: {{id: id, due: now}}}, seqs)
			n.signal()
		},
		"enqueue again": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			id, ok := pick(rt, "item", sortedKeys(w.items))
			if r, running := pick(rt, "run", w.runs); running && rapid.Bool().Draw(rt, "running") {
				id = r.entry.id
			}
			if ok {
				i := w.items[id]
				if rapid.Bool().Draw(rt, "moved") || i.due == 0 {
					i.due = due()
				}
				i.changes++
				w.mark(i.lane, i.due)
			}
		},
		"change a running item without an enqueue": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if r, ok := pick(rt, "run", w.runs); ok && r.epoch == w.rows[r.lane].epoch && !w.items[r.entry.id].direct {
				i := w.items[r.entry.id]
				i.changes++
				i.silent = true
			}
		},
		"feed": func(rt *rapid.T) {
			lane := anyLane()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.feeds[lane]++
			w.mark(lane, time.Now().UnixMicro())
		},
		"end": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			for range rapid.IntRange(1, 4).Draw(rt, "items") {
				r, ok := pick(rt, "run", w.runs)
				if !ok {
					return
				}
				out := &modelOutcome{failed: rapid.IntRange(0, 4).Draw(rt, "fails") == 0}
				result := Result{Healthy: rapid.IntRange(0, 3).Draw(rt, "healthy") > 0}
				switch rapid.SampledFrom([]string{"done", "later", "unknown"}).Draw(rt, "result") {
				case "done":
					result.Done = true
				case "later":
					out.due = due()
					at := time.UnixMicro(out.due)
					result.Due = &at
				case "unknown":
					out.due = max(due(), r.entry.due)
				}
				w.end(r, out, result)
			}
		},
		"end all as healthy": func(*rapid.T) {
			w.mu.Lock()
			runs := slices.Clone(w.runs)
			for _, r := range runs {
				w.complete(r)
			}
			w.mu.Unlock()
		},
		"write": func(rt *rapid.T) {
			w.mu.Lock()
			list := slices.Clone(w.written)
			w.mu.Unlock()
			if o, ok := pick(rt, "outcome", list); ok {
				o.write()
			}
		},
		"write all": func(*rapid.T) {
			w.mu.Lock()
			list := slices.Clone(w.written)
			w.mu.Unlock()
			for _, o := range list {
				o.write()
			}
		},
		"hold": func(rt *rapid.T) {
			w.mu.Lock()
			w.hold = rapid.Bool().Draw(rt, "hold")
			w.mu.Unlock()
		},
		"open a gate": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if g, ok := pick(rt, "gate", w.gates); ok {
				w.gates = slices.DeleteFunc(w.gates, func(other *gate) bool { return other == g })
				g.fails = rapid.IntRange(0, 4).Draw(rt, "fails") == 0
				close(g.open)
			}
		},
		"break the store": func(rt *rapid.T) {
			n, kind := anyNode(), rapid.IntRange(0, 3).Draw(rt, "kind")
			w.mu.Lock()
			n.down, n.deaf = kind == 1, kind == 2
			w.mu.Unlock()
		},
		"lose a lease": func(rt *rapid.T) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if lane, ok := pick(rt, "lane", sortedKeys(w.rows)); ok {
				r := w.rows[lane]
				for _, n := range w.nodes {
					if r.owner == n.name {
						n.unaware[lane] = true
					}
				}
				r.assign("another", time.Now().Add(leaseDuration))
			}
		},
		"signal": func(*rapid.T) { anyNode().signal() },
		"advance": func(rt *rapid.T) {
			for _, n := range w.nodes {
				n.signal()
			}
			steps := []time.Duration{10 * time.Millisecond, time.Second, time.Second, time.Second, 3 * time.Second, 20 * time.Second}
			time.Sleep(rapid.SampledFrom(steps).Draw(rt, "time"))
		},
	})
	checkProgress(rt, w)
}

// checkProgress ends all faults and expects the work to be done.
func checkProgress(rt *rapid.T, w *world) {
	settle := func() {
		for range 60 {
			for _, n := range w.nodes {
				n.signal()
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if problems := w.check(); len(problems) > 0 {
				rt.Fatalf("%q", problems)
			}
		}
	}
	if hung, ok := pick(rt, "what hangs", w.runs); ok {
		wholeLane := rapid.Bool().Draw(rt, "whole lane")
		hanging := map[*modelRun]bool{hung: true}
		w.calm(func(r *modelRun) bool {
			if wholeLane && r.lane == hung.lane && len(hanging) < 3 { // more of them, under several leases, could take all slots for slow lanes
				hanging[r] = true
			}
			return hanging[r]
		})
		settle()
		blocked := func(lane string) bool { // the hanging item is the only one that its lane may run
			if lane != hung.lane {
				return false
			}
			hung.n.r.mu.Lock()
			defer hung.n.r.mu.Unlock()
			l := hung.n.r.lanes[lane]
			return wholeLane || l != nil && l.limit <= l.running
		}
		if list := w.undone(func(i *modelItem) bool { return !blocked(i.lane) && !(i.silent && i.lane == hung.lane) }); len(list) > 0 {
			rt.Fatalf("while %s of %s hangs (the whole lane: %v), these are never done: %q", hung.entry.id, hung.lane, wholeLane, list)
		}
	}
	w.calm(func(*modelRun) bool { return false })
	settle()
	if list := w.undone(func(*modelItem) bool { return true }); len(list) > 0 {
		rt.Fatalf("these items are lost: %q", list)
	}
	for id, r := range w.rows {
		if r.owner != "" {
			rt.Fatalf("%s is drained and not released", id)
		}
	}
}
