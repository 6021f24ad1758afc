package audit

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
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

func TestThrottledRequestsAreCountedPerKeyAndMinute(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		throttled := NewThrottled(d, func() time.Time { return now })
		stored := func() (n int64) {
			t.Helper()
			throttled.flush(t.Context())
			if err := d.QueryRow(t.Context(), "SELECT coalesce(sum(count), 0) FROM throttled_requests WHERE key_id = 'key_a' AND workspace_id = 'ws' AND environment = 'test'").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		send := func(key string, n int) (logged int) {
			for range n {
				if throttled.Add(Entry{KeyID: key, Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "test"}}) {
					logged++
				}
			}
			return logged
		}
		if n := send("key_a", 100); n != throttledEntries {
			t.Errorf("got %d of 100 logged, want %d", n, throttledEntries)
		}
		if n := stored(); n != 40 {
			t.Errorf("got a stored count of %d, want 40", n)
		}
		if n := send("key_b", 10); n != 10 {
			t.Errorf("got %d of another key's 10 logged, want all", n)
		}
		send("key_a", 5)
		if n := stored(); n != 45 {
			t.Errorf("got a stored count of %d, want 45", n)
		}
		now = now.Add(time.Minute)
		if n := send("key_a", 10); n != 10 {
			t.Errorf("got %d of the next minute's 10 logged, want all", n)
		}
		if n := stored(); n != 45 || len(throttled.counts) != 1 {
			t.Errorf("got a stored count of %d and %d counters, want 45 and 1", n, len(throttled.counts))
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := PurgeThrottled(t.Context(), tx, now, 10)
			return err
		})
		if n := stored(); n != 0 || err != nil {
			t.Errorf("got a count of %d after a purge (%v), want 0", n, err)
		}
	})
}
