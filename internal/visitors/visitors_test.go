package visitors

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func TestVisitorsAreLimitedByNetworkAndMinute(t *testing.T) {
	t.Parallel()
	now := time.Unix(600, 0)
	c := New(2, func() time.Time { return now })
	admitted := func(ip string) bool { return c.Admit(netip.MustParseAddr(ip)) == 0 }
	if !admitted("192.0.2.1") || !admitted("::ffff:192.0.2.1") || admitted("192.0.2.1") || !admitted("192.0.2.2") {
		t.Error("an IPv4 address is not counted by itself")
	}
	if !admitted("2001:db8::1") || !admitted("2001:db8::2") || admitted("2001:db8:0:0:ffff::3") || !admitted("2001:db8:0:1::1") {
		t.Error("an IPv6 network is not counted as one")
	}
	now = now.Add(45 * time.Second)
	if wait := c.Admit(netip.MustParseAddr("192.0.2.1")); wait != 15*time.Second {
		t.Errorf("the wait is %v, want 15s", wait)
	}
	c.Remove(netip.MustParseAddr("192.0.2.1"))
	for visit := range 2 {
		if got, want := admitted("192.0.2.1"), visit < 1; got != want {
			t.Errorf("visit %d after one was taken back: admitted is %t, want %t", visit+1, got, want)
		}
	}
	now = now.Add(15 * time.Second)
	c.Remove(netip.MustParseAddr("192.0.2.1"))
	for visit := range 3 {
		if got, want := admitted("192.0.2.1"), visit < 2; got != want {
			t.Errorf("visit %d of the next minute: admitted is %t, want %t", visit+1, got, want)
		}
	}
	if off := New(0, time.Now); off.Admit(netip.MustParseAddr("192.0.2.1")) != 0 || off.Wait(netip.MustParseAddr("192.0.2.1")) != 0 {
		t.Error("a limit of 0 limits")
	}
}

// size is how many networks a counter remembers.
func size(c *Counter) (n int) {
	for i := range widths {
		n += len(c.ipv4[i]) + len(c.ipv6[i])
	}
	return n
}

func TestManyAddressesDoNotLockOutOtherNetworks(t *testing.T) {
	t.Parallel()
	now := time.Unix(600, 0)
	const limit = 30
	c := New(limit, func() time.Time { return now })
	admitted := func(ip string) bool { return c.Admit(netip.MustParseAddr(ip)) == 0 }
	if !admitted("2001:db8:ffff::1") {
		t.Fatal("the first visitor is refused")
	}
	// A /48 has 65,536 networks of /64.
	through := 0
	for i := range 1 << 16 {
		for range 2 {
			if admitted(fmt.Sprintf("2001:db8:0:%x::1", i)) {
				through++
			}
		}
	}
	if most := 2*widths[0].room + limit; through > most {
		t.Errorf("a /48 had %d visits, want at most %d", through, most)
	}
	for range limit - 1 {
		if !admitted("2001:db8:ffff::2") {
			t.Fatal("a network that was counted before the attack is refused")
		}
	}
	if admitted("2001:db8:ffff::3") {
		t.Error("a network that was counted before the attack has no limit any more")
	}
	for i := range 1000 {
		for visit := range limit + 1 {
			ip := fmt.Sprintf("2001:db8:%x:%x::1", i+1, visit)
			if got, want := admitted(ip), visit < limit; got != want {
				t.Fatalf("visit %d of the new network 2001:db8:%x::/48: admitted is %t, want %t", visit+1, i+1, got, want)
			}
		}
	}
	if !admitted("192.0.2.1") {
		t.Error("IPv6 addresses lock out IPv4")
	}

	// Everything an attacker could have: memory stays bounded, and networks
	// that had no part in it are admitted.
	for i := range 1 << 17 {
		c.Admit(netip.AddrFrom4([4]byte{byte(i>>10) & 0x7f, byte(i >> 2), byte(i << 6), 1}))
		c.Admit(netip.AddrFrom16([16]byte{0x26, byte(i >> 10), byte(i >> 2), byte(i << 6)}))
	}
	if n, most := size(c), 2*(widths[0].room+widths[1].room+widths[2].room+1); n > most {
		t.Errorf("the counter remembers %d networks, want at most %d", n, most)
	}
	for visit := range limit + 1 {
		if got, want := admitted(fmt.Sprintf("203.0.%d.7", visit)), visit < limit; got != want {
			t.Errorf("visit %d of 203.0.0.0/16: admitted is %t, want %t", visit+1, got, want)
		}
	}
}
