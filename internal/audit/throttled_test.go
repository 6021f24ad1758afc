package audit

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/visibility"
)

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
