package addrlimit

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestRequestsAreLimitedByNetworkAndMinute(t *testing.T) {
	t.Parallel()
	now := time.Unix(600, 0)
	l := New(2, func() time.Time { return now })
	allowed := func(ip string) bool { return l.Allow(netip.MustParseAddr(ip)) == 0 }
	if !allowed("192.0.2.1") || !allowed("::ffff:192.0.2.1") || allowed("192.0.2.1") || !allowed("192.0.2.2") {
		t.Error("an IPv4 address is not counted by itself")
	}
	if !allowed("2001:db8::1") || !allowed("2001:db8::2") || allowed("2001:db8:0:0:ffff::3") || !allowed("2001:db8:0:1::1") {
		t.Error("an IPv6 network is not counted as one")
	}
	now = now.Add(45 * time.Second)
	if wait := l.Allow(netip.MustParseAddr("192.0.2.1")); wait != 15*time.Second {
		t.Errorf("the wait is %v, want 15s", wait)
	}
	l.Remove(netip.MustParseAddr("192.0.2.1"))
	for i := range 2 {
		if got, want := allowed("192.0.2.1"), i < 1; got != want {
			t.Errorf("request %d after one was taken back: allowed is %t, want %t", i+1, got, want)
		}
	}
	now = now.Add(15 * time.Second)
	l.Remove(netip.MustParseAddr("192.0.2.1"))
	for i := range 3 {
		if got, want := allowed("192.0.2.1"), i < 2; got != want {
			t.Errorf("request %d of the next minute: allowed is %t, want %t", i+1, got, want)
		}
	}
	if off := New(0, time.Now); off.Allow(netip.MustParseAddr("192.0.2.1")) != 0 || off.Wait(netip.MustParseAddr("192.0.2.1")) != 0 {
		t.Error("a limit of 0 limits")
	}
}

// size is how many networks a limiter has counts for.
func size(l *Limiter) (n int) {
	for i := range tiers {
		n += len(l.ipv4[i]) + len(l.ipv6[i])
	}
	return n
}

func TestManyAddressesDoNotLockOutOtherNetworks(t *testing.T) {
	t.Parallel()
	now := time.Unix(600, 0)
	const limit = 30
	l := New(limit, func() time.Time { return now })
	allowed := func(ip string) bool { return l.Allow(netip.MustParseAddr(ip)) == 0 }
	if !allowed("2001:db8:ffff::1") {
		t.Fatal("the first client is refused")
	}
	// A /48 has 65,536 networks of /64.
	through := 0
	for i := range 1 << 16 {
		for range 2 {
			if allowed(fmt.Sprintf("2001:db8:0:%x::1", i)) {
				through++
			}
		}
	}
	if most := 2*tiers[0].maxNetworks + limit; through > most {
		t.Errorf("a /48 had %d requests, want at most %d", through, most)
	}
	for range limit - 1 {
		if !allowed("2001:db8:ffff::2") {
			t.Fatal("a network that was counted before the attack is refused")
		}
	}
	if allowed("2001:db8:ffff::3") {
		t.Error("a network that was counted before the attack has no limit any more")
	}
	for i := range 1000 {
		for n := range limit + 1 {
			ip := fmt.Sprintf("2001:db8:%x:%x::1", i+1, n)
			if got, want := allowed(ip), n < limit; got != want {
				t.Fatalf("request %d of the new network 2001:db8:%x::/48: allowed is %t, want %t", n+1, i+1, got, want)
			}
		}
	}
	if !allowed("192.0.2.1") {
		t.Error("IPv6 addresses lock out IPv4")
	}

	// Everything an attacker could have: memory stays bounded, and networks
	// that had no part in it are allowed.
	for i := range 1 << 17 {
		l.Allow(netip.AddrFrom4([4]byte{byte(i>>10) & 0x7f, byte(i >> 2), byte(i << 6), 1}))
		l.Allow(netip.AddrFrom16([16]byte{0x26, byte(i >> 10), byte(i >> 2), byte(i << 6)}))
	}
	if n, most := size(l), 2*(tiers[0].maxNetworks+tiers[1].maxNetworks+tiers[2].maxNetworks+1); n > most {
		t.Errorf("the limiter counts %d networks, want at most %d", n, most)
	}
	for i := range limit + 1 {
		if got, want := allowed(fmt.Sprintf("203.0.%d.7", i)), i < limit; got != want {
			t.Errorf("request %d of 203.0.0.0/16: allowed is %t, want %t", i+1, got, want)
		}
	}
}
