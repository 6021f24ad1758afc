package lanes

import (
	"strings"
	"testing"

	"turnpike/internal/ids"
)

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
