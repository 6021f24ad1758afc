package lanes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestAFullNodeMakesRoom for those that wait, and for no more.
func TestAFullNodeMakesRoom(t *testing.T) {
	t.Parallel()
	const limit = 32 // of which it gives up two at a time
	busy := func(l *lane[errand]) { l.inFlight = 1 }
	looked := func(l *lane[errand]) { l.phase = scanning }
	unserved := func(l *lane[errand]) { l.started = false }
	goes := func(h health) func(l *lane[errand]) {
		return func(l *lane[errand]) { l.health, l.started = h, false }
	}
	for name, c := range map[string]struct {
		waiting  int
		but      map[int]func(*lane[errand]) // lanes that are not healthy, served and at rest
		strained bool                        // strangers have all their places
		gone     string
	}{
		"nobody waits":                {waiting: 0},
		"one waits":                   {waiting: 1, gone: "00"},
		"many wait":                   {waiting: 9, gone: "00 01"},
		"some are at work":            {waiting: 9, but: map[int]func(*lane[errand]){0: busy, 2: looked}, gone: "01 03"},
		"some had no turn yet":        {waiting: 9, but: map[int]func(*lane[errand]){0: unserved, 1: unserved}, gone: "02 03"},
		"one is slow":                 {waiting: 9, but: map[int]func(*lane[errand]){7: goes(slow)}, gone: "00 07"},
		"strangers have their turn":   {waiting: 9, but: map[int]func(*lane[errand]){7: goes(unknown)}, gone: "00 01"},
		"strangers have all they may": {waiting: 9, but: map[int]func(*lane[errand]){7: goes(unknown)}, strained: true, gone: "00 07"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				r := NewRunner(d, Source[errand](nil), Options{Queue: "errands", Node: "a", PerLane: 1, Slots: 8, MaxLanes: limit, Now: time.Now})
				node := "a"
				row := func(id string, owner *string) {
					if err := d.Write(t.Context(), func(tx *db.Tx) error {
						_, err := tx.Exec(t.Context(), "INSERT INTO lanes (queue, id, due_at, seq, owner) VALUES ('errands', $1, 1, 1, $2)", id, owner)
						return err
					}); err != nil {
						t.Fatal(err)
					}
				}
				begun := time.Now()
				for i := range limit {
					l := &lane[errand]{id: fmt.Sprintf("%02d", i), claimedAt: begun.Add(time.Duration(i)), started: true, history: history{health: healthy}}
					if change := c.but[i]; change != nil {
						change(l)
					}
					r.mu.Lock()
					r.lanes[l.id] = l
					r.mu.Unlock()
					row(l.id, &node)
				}
				for i := range c.waiting {
					row(fmt.Sprint("waits-", i), nil)
				}
				if c.strained {
					r.mu.Lock()
					r.runningBy[unknown] = 6
					r.mu.Unlock()
				}
				r.makeRoom(t.Context())
				rows, err := d.Query(t.Context(), "SELECT id FROM lanes WHERE owner IS NULL AND due_at > 1")
				gone, err := db.All(rows, err, func(r db.Row) (id string, err error) { return id, r.Scan(&id) })
				if slices.Sort(gone); err != nil || strings.Join(gone, " ") != c.gone {
					t.Errorf("it gave up %v (%v)", gone, err)
				}
			})
		})
	}
}
