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
		t.Errorf("the wait is %v", wait)
	}
	now = now.Add(15 * time.Second)
	if !admitted("192.0.2.1") {
		t.Error("a new minute did not begin")
	}
	for i := range maxVisitors {
		c.Admit(netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i/256, i%256)))
	}
	if len(c.counts) > maxVisitors+1 || admitted("198.51.100.1") && admitted("198.51.100.2") && admitted("198.51.100.3") {
		t.Error("many addresses are not bounded")
	}
	if off := New(0, time.Now); off.Admit(netip.MustParseAddr("192.0.2.1")) != 0 || len(off.counts) > 0 {
		t.Error("a limit of 0 is one")
	}
}
