// Package addrlimit limits how many unauthenticated requests a client address may send per minute.
package addrlimit

import (
	"net/netip"
	"sync"
	"time"

	"turnpike/internal/clientip"
)

// tiers are the network sizes by which clients are counted. The first is the client itself: an IPv4
// address, or in IPv6 a /64. When a tier is full, new clients share the count of a wider network,
// so many addresses neither exhaust memory nor lock other networks out.
var tiers = [...]struct{ ipv4Bits, ipv6Bits, maxNetworks int }{
	{32, 64, 10_000},
	{24, 48, 10_000},
	{16, 32, 1 << 16}, // enough for every IPv4 /16
}

type counts [len(tiers)]map[netip.Prefix]int64

// Limiter counts requests per minute. Each node has its own.
type Limiter struct {
	limit int64
	now   func() time.Time

	mu         sync.Mutex
	minute     int64
	ipv4, ipv6 counts // separate, because IPv6 addresses are easy to get
}

// New returns a Limiter that allows limit requests per minute; 0 means no limit.
func New(limit int64, now func() time.Time) *Limiter {
	return &Limiter{limit: limit, now: now}
}

// Allow counts a request. If the client's network has reached the limit, Allow
// returns how long the client must wait instead.
func (l *Limiter) Allow(ip netip.Addr) (wait time.Duration) {
	if wait := l.Wait(ip); wait > 0 {
		return wait
	}
	l.Add(ip)
	return 0
}

// Wait returns how long a client must wait before its next request, or 0 if it is below the limit.
func (l *Limiter) Wait(ip netip.Addr) time.Duration {
	if l.limit == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.startMinute()
	count, network := l.find(ip)
	if count[network] < l.limit {
		return 0
	}
	return time.Unix((l.minute+1)*60, 0).Sub(now)
}

// Add counts a request even beyond the limit. It returns the network that the
// client is counted by and that network's requests in this minute.
func (l *Limiter) Add(ip netip.Addr) (netip.Prefix, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startMinute()
	count, network := l.find(ip)
	count[network]++
	return network, count[network]
}

// Remove undoes one Allow.
func (l *Limiter) Remove(ip netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.startMinute()
	if count, network := l.find(ip); count[network] > 0 {
		count[network]--
	}
}

// startMinute resets the counts at the start of each minute.
func (l *Limiter) startMinute() (now time.Time) {
	now = l.now()
	if minute := now.Unix() / 60; minute != l.minute || l.ipv4[0] == nil {
		l.minute = minute
		for i := range tiers {
			l.ipv4[i], l.ipv6[i] = map[netip.Prefix]int64{}, map[netip.Prefix]int64{}
		}
	}
	return now
}

// find returns the narrowest network of a client that is already counted or
// fits into its tier, and the map with its count.
func (l *Limiter) find(ip netip.Addr) (map[netip.Prefix]int64, netip.Prefix) {
	ip = ip.Unmap().WithZone("")
	all := &l.ipv6
	if ip.Is4() {
		all = &l.ipv4
	}
	for i, tier := range tiers {
		bits := tier.ipv6Bits
		if ip.Is4() {
			bits = tier.ipv4Bits
		}
		network := clientip.Mask(ip, bits)
		if _, counted := all[i][network]; counted || len(all[i]) < tier.maxNetworks {
			return all[i], network
		}
	}
	return all[len(tiers)-1], netip.Prefix{} // one count for all others
}
