// Package visitors counts what client addresses do without authenticating, so
// that none does too much of it.
package visitors

import (
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/clientip"
)

// widths are the networks by which clients are counted. The first is the client
// itself: an IPv4 address, or in IPv6 a /64. When there is no room for another
// one, clients that weren't counted yet share the count of a wider network, so
// that many addresses neither take all memory nor lock other networks out.
var widths = [...]struct{ ipv4, ipv6, room int }{
	{32, 64, 10_000},
	{24, 48, 10_000},
	{16, 32, 1 << 16}, // has room for every /16
}

// counts has a map for each of the widths.
type counts [len(widths)]map[netip.Prefix]int64

// Counter counts by the minute. Each node has its own.
type Counter struct {
	limit int64
	now   func() time.Time

	mu         sync.Mutex
	minute     int64
	ipv4, ipv6 counts // apart, because IPv6 addresses are easy to have
}

// New returns a Counter that allows so many visits a minute; 0 allows all.
func New(limit int64, now func() time.Time) *Counter {
	return &Counter{limit: limit, now: now}
}

// Admit counts a visit. If the client's network has had too many, Admit returns
// how long it must wait.
func (c *Counter) Admit(ip netip.Addr) (wait time.Duration) {
	if wait := c.Wait(ip); wait > 0 {
		return wait
	}
	c.Add(ip)
	return 0
}

// Wait returns how long a client must wait before its next visit. It is 0 for a
// client that is below the limit.
func (c *Counter) Wait(ip netip.Addr) time.Duration {
	if c.limit == 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.begin()
	count, network := c.find(ip)
	if count[network] < c.limit {
		return 0
	}
	return time.Unix((c.minute+1)*60, 0).Sub(now)
}

// Add counts a visit, also beyond the limit. It returns the network that the
// client is counted by, and the visits of that network in this minute.
func (c *Counter) Add(ip netip.Addr) (netip.Prefix, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin()
	count, network := c.find(ip)
	count[network]++
	return network, count[network]
}

// Remove takes back a visit that Admit has counted.
func (c *Counter) Remove(ip netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin()
	if count, network := c.find(ip); count[network] > 0 {
		count[network]--
	}
}

// begin forgets the counts of the minute before.
func (c *Counter) begin() (now time.Time) {
	now = c.now()
	if minute := now.Unix() / 60; minute != c.minute || c.ipv4[0] == nil {
		c.minute = minute
		for i := range widths {
			c.ipv4[i], c.ipv6[i] = map[netip.Prefix]int64{}, map[netip.Prefix]int64{}
		}
	}
	return now
}

// find returns the narrowest network of a client that is counted already or
// that there is room for, and the map that has its count.
func (c *Counter) find(ip netip.Addr) (map[netip.Prefix]int64, netip.Prefix) {
	ip = ip.Unmap().WithZone("")
	all := &c.ipv6
	if ip.Is4() {
		all = &c.ipv4
	}
	for i, width := range widths {
		bits := width.ipv6
		if ip.Is4() {
			bits = width.ipv4
		}
		network := clientip.Mask(ip, bits)
		if _, counted := all[i][network]; counted || len(all[i]) < width.room {
			return all[i], network
		}
	}
	return all[len(widths)-1], netip.Prefix{} // one count for all others
}
