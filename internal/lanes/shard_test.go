package lanes_test

import (
	"strings"
	"testing"

	"turnpike/internal/ids"
	"turnpike/internal/lanes"
)

func TestWorkSpreadsOverAFewLanes(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for range 1000 {
		seen[lanes.ShardOf("ws_1.live", ids.New(ids.Run))]++
	}
	if len(seen) != 16 {
		t.Errorf("there are %d lanes", len(seen))
	}
	for lane, n := range seen {
		if n > 200 || !strings.HasPrefix(lane, "ws_1.live.") {
			t.Errorf("%d of 1000 are in %s", n, lane)
		}
	}
	id := ids.New(ids.Run)
	if first, second := lanes.ShardOf("a", id), lanes.ShardOf("a", id); first != second {
		t.Errorf("a piece of work has two lanes: %s and %s", first, second)
	}
}
