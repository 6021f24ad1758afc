package lanes

import (
	"fmt"
	"hash/fnv"
)

// shards is how many lanes a workspace has for a kind of work, so that a busy
// workspace spreads over nodes.
const shards = 16

// ShardOf returns the lane of an item: one of the shards of name.
func ShardOf(name, id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return fmt.Sprintf("%s.%d", name, h.Sum32()%shards)
}
