package api

import (
	"sync"
	"time"

	"turnpike/internal/fault"
)

// bodyMemory limits the memory of all large bodies in progress, from their first
// bytes to the end of their requests. Rate limits count requests only after their
// bodies are read, so without it a few slow senders could use all memory.
type bodyMemory struct {
	limit int64

	mu    sync.Mutex
	used  int64
	usage map[string]int64 // by workspace; empty for requests without a key
}

func newBodyMemory(limit int64) *bodyMemory {
	return &bodyMemory{limit: limit, usage: map[string]int64{}}
}

// reserve reserves memory for a body. A workspace may have half of what the
// others leave, so there is always some left. Requests without a key, which send
// nothing larger than reports of leaks, share a sixteenth of all.
func (m *bodyMemory) reserve(workspace string, bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	share := (m.limit - m.used + m.usage[workspace]) / 2
	if workspace == "" {
		share = m.limit / 16
	}
	if m.used+bytes > m.limit || m.usage[workspace]+bytes > share {
		return false
	}
	m.used += bytes
	m.usage[workspace] += bytes
	return true
}

func (m *bodyMemory) release(workspace string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= bytes
	if m.usage[workspace] -= bytes; m.usage[workspace] == 0 {
		delete(m.usage, workspace)
	}
}

// reserveBody reserves memory for a body of size bytes, beyond the freeBodyBytes
// that every body gets.
func (c *Call) reserveBody(size int64) error {
	more := size - freeBodyBytes - c.bodyMemory
	if more <= 0 {
		return nil
	}
	if !c.s.bodies.reserve(c.workspace(), more) {
		f := fault.New(fault.Overloaded, "Too many large request bodies are in progress. Retry shortly.")
		f.RetryAfter = time.Second
		return f
	}
	c.bodyMemory += more
	return nil
}

func (c *Call) releaseBody() {
	if c.bodyMemory > 0 {
		c.s.bodies.release(c.workspace(), c.bodyMemory)
	}
}

// workspace returns the workspace of the key, or an empty string without one.
func (c *Call) workspace() string {
	if c.Principal == nil {
		return ""
	}
	return c.Principal.WorkspaceID
}
