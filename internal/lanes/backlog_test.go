package lanes_test

import (
	"fmt"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestABacklogDelaysNoNeighbour: twice as many well lanes as there are places
// have work for a long time, and a neighbour has one item now and then.
func TestABacklogDelaysNoNeighbour(t *testing.T) {
	t.Parallel()
	for name, most := range map[string]int{
		"with all lanes in hand":         0,
		"with more lanes than in a node": 12,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				s := newTasks(t, d)
				s.lanes, s.poll = most, 100*time.Millisecond
				begun := make(chan string, 1)
				s.work = func(lane string, i task) bool {
					if lane == "neighbour" {
						begun <- i.id
					} else {
						time.Sleep(50 * time.Millisecond)
					}
					return true
				}
				const busy, each = 16, 200
				for lane := range busy {
					names := make([]string, each)
					for i := range names {
						names[i] = fmt.Sprintf("%d-%d", lane, i)
					}
					s.put(t, fmt.Sprintf("busy-%d", lane), 0, names...)
				}
				s.run(t, "a", 8)
				eventually(t, 10*time.Second, "the busy lanes are well known", func() bool { return s.open(t) < busy*(each-8) })
				for i := range 3 {
					s.put(t, "neighbour", 0, fmt.Sprint("item-", i))
					select {
					case <-begun:
					case <-time.After(4 * time.Second):
						t.Fatalf("the neighbour's item %d waits for the backlog", i)
					}
				}
			})
		})
	}
}
