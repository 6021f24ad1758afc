package lanes

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"
)

// shards are how many lanes a workspace has for a kind of work, so that a busy
// one spreads over nodes.
const shards = 16

// ShardOf is the lane of a piece of work: one of those that the name has.
func ShardOf(name, id string) string {
	h := fnv.New32a()
	h.Write([]byte(id))
	return fmt.Sprintf("%s.%d", name, h.Sum32()%shards)
}

// Backoff keeps a source whose store fails from going in circles at full speed.
func Backoff(ctx context.Context) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}
