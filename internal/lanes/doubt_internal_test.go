package lanes

import (
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
)

// TestALaneThatMayHaveBeenGivenBackIsNotWorked: the store did not say whether
// it was, and another node may have it by now.
func TestALaneThatMayHaveBeenGivenBackIsNotWorked(t *testing.T) {
	t.Parallel()
	away := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	r := NewRunner(away, Source[errand](nil), Options{Queue: "errands", Node: "a", PerLane: 1, Slots: 1, MaxLanes: 1, Now: time.Now})
	away.Close()
	for name, lose := range map[string]func(){
		"drained":     func() { r.releaseIdle(t.Context()) },
		"handed over": func() { r.handOver(t.Context(), 1, func(*lane[errand]) bool { return true }) },
	} {
		r.lanes["lane"] = &lane[errand]{id: "lane", scanFrom: noScan, idleSince: time.Now().Add(-time.Hour)}
		if lose(); len(r.lanes) > 0 {
			t.Errorf("one that was %s is still this node's", name)
		}
	}
}
