// Package visitors counts what addresses do without a login, so that none does
// too much of it.
package visitors

import (
	"net/netip"
	"sync"
	"time"
)

// maxVisitors bounds the memory that many addresses can take. Those beyond it
// share one allowance.
const maxVisitors = 10_000

// Counter counts by the minute. Each node has its own.
type Counter struct {
	limit int64
	now   func() time.Time

	mu     sync.Mutex
	minute int64
	counts map[netip.Prefix]int64
}

// New makes a Counter that allows so many visits a minute; 0 allows all.
func New(limit int64, now func() time.Time) *Counter {
	return &Counter{limit: limit, now: now, counts: map[netip.Prefix]int64{}}
}

// Admit counts a visit. When the address has had too many it returns how long
// to wait; 0 is welcome.
func (c *Counter) Admit(ip netip.Addr) (wait time.Duration) {
	if c.limit == 0 {
		return 0
	}
	from := network(ip)
	now := c.now()
	minute := now.Unix() / 60
	c.mu.Lock()
	defer c.mu.Unlock()
	if minute != c.minute {
		c.minute = minute
		clear(c.counts)
	}
	if _, known := c.counts[from]; !known && len(c.counts) >= maxVisitors {
		from = netip.Prefix{}
	}
	if c.counts[from] >= c.limit {
		return time.Unix((minute+1)*60, 0).Sub(now)
	}
	c.counts[from]++
	return 0
}

// network is what one visitor has: a whole /64 in IPv6.
func network(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap()
	size := ip.BitLen()
	if ip.Is6() {
		size = 64
	}
	p, _ := ip.WithZone("").Prefix(size)
	return p
}
