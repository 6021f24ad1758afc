package lanes

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/ids"
)

// newWorld returns a model with one node, whose items end as soon as they start
// unless hangs returns true for their ID.
func newWorld(t *testing.T, hangs func(id string) bool) *world {
	t.Helper()
	w := &world{items: map[string]*modelItem{}, rows: map[string]*row{}, feeds: map[string]int{}}
	w.join("a", Options{Queue: "model", PerLane: 4, Slots: 8, MaxLanes: 10, Now: time.Now})
	w.calm(func(r *modelRun) bool { return hangs(r.entry.id) })
	return w
}

// enqueue adds items that are due after the delay, and returns the last one.
func (w *world) enqueue(lane string, delay time.Duration, items int) (id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now().Add(delay).UnixMicro()
	for range items {
		id = w.add(lane, at)
	}
	w.mark(lane, at)
	return id
}

// pass lets time pass and returns the number of scans meanwhile.
func (w *world) pass(d time.Duration) int {
	before := w.scans
	w.nodes[0].signal()
	time.Sleep(d)
	synctest.Wait()
	return w.scans - before
}

func (w *world) stop() {
	w.calm(func(*modelRun) bool { return false })
	w.nodes[0].stop()
}

// TestBusyLaneIsScannedOnlyForAReason checks that a node that knows the next
// due time doesn't scan before it, for any number of items.
func TestBusyLaneIsScannedOnlyForAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hung := ""
		w := newWorld(t, func(id string) bool { return id == hung })
		defer w.stop()
		hung = w.enqueue("lane", 0, 1)
		w.pass(10 * time.Second)
		if n := w.pass(time.Minute); n != 0 {
			t.Errorf("an idle minute beside an item that hangs: got %d scans, want 0", n)
		}
		w.enqueue("lane", time.Hour, 1000)
		w.enqueue("lane", 0, 1)
		if n := w.pass(time.Minute); n > 5 {
			t.Errorf("one item due now and 1000 due later: got %d scans in a minute, want at most 5", n)
		}
		if list := w.undone(func(i *modelItem) bool { return i.due <= time.Now().UnixMicro() }); len(list) > 0 {
			t.Errorf("not done: %v", list)
		}
	})
}

// TestEnqueueNowNeedsNoScan covers a lane that the node leases and knows
// completely.
func TestEnqueueNowNeedsNoScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(string) bool { return false })
		defer w.stop()
		w.enqueue("lane", 0, 1)
		w.pass(time.Second)
		for i := range 5 {
			w.mu.Lock()
			now := time.Now().UnixMicro()
			id := w.add("lane", now)
			w.mark("lane", now)
			seqs := map[string]int64{"lane": w.rows["lane"].seq}
			w.mu.Unlock()
			w.nodes[0].r.addEnqueued(map[string][]entry{"lane": {{id: id, due: now}}}, seqs)
			if n := w.pass(time.Second); n != 0 {
				t.Errorf("item %d: got %d scans, want 0", i, n)
			}
		}
		if list := w.undone(func(*modelItem) bool { return true }); len(list) > 0 {
			t.Errorf("not done: %v", list)
		}
	})
}

// TestEarlierItemOverridesBacklog checks that an item due before a long backlog
// doesn't wait for the scan of all of it.
func TestEarlierItemOverridesBacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(string) bool { return true })
		defer w.stop()
		w.enqueue("lane", 0, 2000)
		w.pass(time.Second)
		early := w.enqueue("lane", -time.Minute, 1)
		started := func() (ended int) {
			for range 2000 {
				w.mu.Lock()
				for _, r := range w.runs {
					if r.entry.id == early {
						w.mu.Unlock()
						return ended
					}
				}
				w.complete(w.runs[0])
				w.mu.Unlock()
				ended++
				w.pass(100 * time.Millisecond)
			}
			return ended
		}
		if n := started(); n > 500 {
			t.Errorf("the item that is due first started after %d of 2000 others, want at most 500", n)
		}
	})
}

// TestStoppingNodeReleasesIdleLanesFirst checks that other nodes don't wait for
// its running items. This includes lanes that it leases unknowingly.
func TestStoppingNodeReleasesIdleLanesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(string) bool { return true })
		w.enqueue("busy", 0, 2)
		w.pass(time.Second)
		w.mu.Lock()
		w.rows["unknown"] = &row{due: 1, seq: 1}
		w.rows["unknown"].assign("a", time.Now().Add(leaseDuration))
		w.mu.Unlock()
		go w.nodes[0].stop()
		owners := func() string {
			time.Sleep(6 * time.Second)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			return fmt.Sprintf("%q %q", w.rows["busy"].owner, w.rows["unknown"].owner)
		}
		if got, want := owners(), `"a" ""`; got != want {
			t.Errorf("owners while an item runs: got %s, want %s", got, want)
		}
		if started := len(w.runs); started != 2 {
			t.Errorf("running items: got %d, want 2", started)
		}
		w.calm(func(*modelRun) bool { return false })
		if got, want := owners(), `"" ""`; got != want {
			t.Errorf("owners after it has stopped: got %s, want %s", got, want)
		}
	})
}

func TestWorkspaceSpreadsOver16Lanes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for range 1000 {
		seen[ShardOf("ws_1.live", ids.New(ids.Run))]++
	}
	if len(seen) != shards {
		t.Errorf("got %d lanes, want %d", len(seen), shards)
	}
	for lane, n := range seen {
		if n > 200 || !strings.HasPrefix(lane, "ws_1.live.") {
			t.Errorf("%d of 1000 items are in %s", n, lane)
		}
	}
	id := ids.New(ids.Run)
	if first, second := ShardOf("a", id), ShardOf("a", id); first != second {
		t.Errorf("one item has two lanes: %s and %s", first, second)
	}
}
