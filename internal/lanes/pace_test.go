package lanes

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"turnpike/internal/db"
)

// timedSource records when items of a lane start.
type timedSource struct {
	mu     sync.Mutex
	starts map[string][]time.Time
}

func (s *timedSource) Fetch(context.Context, string, Key, int) (b Batch[fakeItem], err error) {
	return b, nil
}

func (s *timedSource) Work(_ context.Context, lane string, _ fakeItem) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts[lane] = append(s.starts[lane], time.Now())
	return Result{Healthy: true, Done: true, Outcome: db.Written}
}

func TestIntervalSpacesOneLaneAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source, r := &timedSource{starts: map[string][]time.Time{}}, fakeRunner()
		r.source, r.workCtx, r.Slots = source, t.Context(), 1
		paced, other := fakeLane(healthy, 4, 50), fakeLane(healthy, 4, 50)
		paced.id, other.id = "paced", "other"
		r.lanes = map[string]*lane[fakeItem]{"paced": paced, "other": other}
		began := time.Now()
		r.SetInterval("paced", 100*time.Millisecond)
		r.SetInterval("gone", time.Second)
		r.mu.Lock()
		r.schedule(other)
		r.dispatch()
		r.mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		source.mu.Lock()
		for _, at := range source.starts["other"] {
			if !at.Equal(began) {
				t.Errorf("an item of the other lane started after %v", at.Sub(began))
			}
		}
		starts := source.starts["paced"]
		source.mu.Unlock()
		if n := len(source.starts["other"]); n != 50 {
			t.Errorf("%d items of the other lane started, want 50", n)
		}
		if len(starts) < 20 || len(starts) > 22 {
			t.Errorf("%d items started in 2 seconds, want about 20", len(starts))
		}
		for i := 10; i < len(starts); i++ {
			if took := starts[i].Sub(starts[i-10]); took < 900*time.Millisecond {
				t.Errorf("11 items started within %v", took)
			}
		}
		r.SetInterval("paced", 0)
		synctest.Wait()
		if n := len(source.starts["paced"]); n != 50 {
			t.Errorf("without an interval %d items started, want all 50", n)
		}
	})
}
