package api

import (
	"sync"
	"time"

	"turnpike/internal/fault"
)

// bodyRoom is the memory of large bodies that are under way, all together, from
// their first bytes to the end of their requests. Nobody's limits count them
// before they are read, so without it a few slow senders could have all of it.
type bodyRoom struct {
	limit int64

	mu    sync.Mutex
	taken int64
	by    map[string]int64 // by workspace; visitors are one that has no name
}

func newBodyRoom(limit int64) *bodyRoom { return &bodyRoom{limit: limit, by: map[string]int64{}} }

// take takes more room for somebody's body. There is always some left: a
// workspace may have half of what the others leave, and visitors without a key,
// who send nothing large but reports of leaks, a sixteenth of all.
func (b *bodyRoom) take(who string, bytes int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	share := (b.limit - b.taken + b.by[who]) / 2
	if who == "" {
		share = b.limit / 16
	}
	if b.taken+bytes > b.limit || b.by[who]+bytes > share {
		return false
	}
	b.taken += bytes
	b.by[who] += bytes
	return true
}

func (b *bodyRoom) give(who string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= bytes
	if b.by[who] -= bytes; b.by[who] == 0 {
		delete(b.by, who)
	}
}

// roomFor takes room for a body of so many bytes. What every body may have is
// not counted.
func (c *Call) roomFor(size int64) error {
	more := size - firstPiece - c.room
	if more <= 0 {
		return nil
	}
	if c.room == 0 && c.Principal != nil {
		c.roomOf = c.Principal.WorkspaceID
	}
	if !c.s.bodies.take(c.roomOf, more) {
		e := fault.New(fault.Overloaded, "too many large bodies are under way; try again in a moment")
		e.RetryAfter = time.Second
		return e
	}
	c.room += more
	return nil
}

// giveRoom gives back what the call's body had.
func (c *Call) giveRoom() {
	if c.room > 0 {
		c.s.bodies.give(c.roomOf, c.room)
	}
}
