package lanes

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// heldSource is a source whose scans wait until it is opened.
type heldSource struct{ open chan struct{} }

func (s heldSource) Fetch(context.Context, string, Key, int) (Batch[fakeItem], error) {
	<-s.open
	return Batch[fakeItem]{}, nil
}

func (heldSource) Work(context.Context, string, fakeItem) Result { return Result{} }

// giveStore records the lanes that a node gives away.
type giveStore struct {
	leaseStore
	given []string
}

func (s *giveStore) give(_ context.Context, _ string, names []string) error {
	s.given = append(s.given, names...)
	return nil
}

func (*giveStore) seq(context.Context, string) (int64, error) { return 0, nil }

// TestLaneIsGivenAwayAfterItsScan covers sources that change items in Fetch, as webhooks do: only the node that
// leases a lane may call it.
func TestLaneIsGivenAwayAfterItsScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, source := &giveStore{}, heldSource{make(chan struct{})}
		r := newRunner[fakeItem](store, source, Options{Node: "a", PerLane: 4, Slots: 8, MaxLanes: 10, MoveBacklogs: true, imbalance: 1, Now: time.Now})
		r.workCtx = t.Context()
		l := fakeLane(healthy, 4, 0)
		l.id, l.phase, l.truncated = "lane", idle, true // the last scan found as many items as it could, and they have ended
		r.lanes[l.id], r.peers["b"] = l, peer{0, time.Now()}
		r.mu.Lock()
		r.startScan(l)
		r.mu.Unlock()
		r.balance()
		if l.givenTo != "b" {
			t.Fatalf("the lane was chosen for %q, want b", l.givenTo)
		}
		if r.giveDrained(t.Context()); len(store.given) > 0 {
			t.Errorf("gave %v away during a scan", store.given)
		}
		close(source.open)
		synctest.Wait()
		select {
		case <-r.wake:
		default:
			t.Error("the end of the scan doesn't wake the node to give the lane away")
		}
		if r.giveDrained(t.Context()); !slices.Equal(store.given, []string{"lane"}) {
			t.Errorf("gave %v away after the scan, want the lane", store.given)
		}
	})
}
