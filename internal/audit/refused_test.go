package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestRejectedKeysAreCountedAndLoggedByNetwork isn't parallel, because it reads
// the log of the process.
func TestRejectedKeysAreCountedAndLoggedByNetwork(t *testing.T) {
	var lines bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&lines, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	now := time.Unix(600, 0)
	r := NewRefused(nil, 3, func() time.Time { return now })
	limited := func(ip string) bool { return r.Add(netip.MustParseAddr(ip), true) > 0 }
	for i := range 6 {
		if got := limited(fmt.Sprintf("2001:db8::%x", i+1)); got != (i >= 3) {
			t.Errorf("refusal %d of one IPv6 network: limited is %v", i+1, got)
		}
	}
	if limited("2001:db8:0:1::1") || limited("192.0.2.1") || limited("192.0.2.2") {
		t.Error("another network is limited")
	}
	if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "2001:db8::/64") {
		t.Errorf("the log has %q, not one line with the network", text)
	}
	if wait := r.LookupWait(netip.MustParseAddr("2001:db8::ffff")); wait != time.Minute {
		t.Errorf("the limited network waits %v, want 1m", wait)
	}
	if wait := r.LookupWait(netip.MustParseAddr("192.0.2.1")); wait != 0 {
		t.Errorf("another address waits %v", wait)
	}
	now = now.Add(time.Minute)
	if limited("2001:db8::1") {
		t.Error("still limited in the next minute")
	}
}

func TestRefusedKeysStayLimitedWithManyAddresses(t *testing.T) {
	t.Parallel()
	const limit = 3
	r := NewRefused(nil, limit, func() time.Time { return time.Unix(600, 0) })
	for i := range 20_000 {
		r.Add(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0, byte(i >> 8), byte(i)}), true)
	}
	newcomer := netip.MustParseAddr("2001:db8:1::1")
	for i := range 2 * limit {
		if got, want := r.Add(newcomer, true) > 0, i >= limit; got != want {
			t.Errorf("rejected key %d of a new network: limited is %t, want %t", i+1, got, want)
		}
	}
	if r.LookupWait(netip.MustParseAddr("2001:db8:0:ffff::1")) == 0 {
		t.Error("the network with 20,000 addresses is not limited")
	}
}
