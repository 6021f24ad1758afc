package leaks

import (
	"net/netip"
	"sync"
	"time"
)

// maxVisitors bounds the memory that many addresses can take. Those beyond it
// share one allowance.
const maxVisitors = 10_000

// visitors counts what addresses do without a login, by the minute.
type visitors struct {
	limit int64
	now   func() time.Time

	mu     sync.Mutex
	minute int64
	counts map[netip.Prefix]int64
}

func newVisitors(limit int64, now func() time.Time) *visitors {
	return &visitors{limit: limit, now: now, counts: map[netip.Prefix]int64{}}
}

// Admit counts a visit of somebody without a login. When the address has had
// too many it returns how long to wait; 0 is welcome.
func (s *Service) Admit(ip netip.Addr) (wait time.Duration) { return s.visitors.add(network(ip)) }

func (v *visitors) add(from netip.Prefix) time.Duration {
	if v.limit == 0 {
		return 0
	}
	now := v.now()
	minute := now.Unix() / 60
	v.mu.Lock()
	defer v.mu.Unlock()
	if minute != v.minute {
		v.minute = minute
		clear(v.counts)
	}
	if _, known := v.counts[from]; !known && len(v.counts) >= maxVisitors {
		from = netip.Prefix{}
	}
	if v.counts[from] >= v.limit {
		return time.Unix((minute+1)*60, 0).Sub(now)
	}
	v.counts[from]++
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
