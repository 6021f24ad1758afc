package webhooks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
)

// TestFanOutIsolatesTheEventThatFails: events before and after it, also of its own workspace,
// are fanned out, and it is retried with a backoff.
func TestFanOutIsolatesTheEventThatFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		b, other := newFixture(t, d), newFixture(t, d)
		publish := func(to *fixture, n int) (list []string) {
			for range n {
				write(t, d, func(tx *db.Tx) error {
					e, err := b.Publisher.Publish(ctx, tx, events.Origin{Tenant: to.endpoint.Tenant}, events.KeyRevoked{})
					if err == nil {
						list = append(list, e.ID)
					}
					return err
				})
			}
			return list
		}
		publish(b, 20)
		bad := publish(b, 1)[0]
		publish(other, 20)
		failing := true
		b.Notify = func(_ context.Context, _ *db.Tx, list []events.Pending) error {
			for _, e := range list {
				if failing && e.ID == bad {
					return fmt.Errorf("%s can't be rendered", bad)
				}
			}
			return nil
		}
		count := func(from string) int {
			t.Helper()
			n, err := db.Value[int](d.QueryRow(ctx, "SELECT count(*) FROM "+from))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		want := func(when string, delivered, parked int) {
			t.Helper()
			if pending, made, waiting := count("new_events"), count("deliveries"), count("parked_events"); pending != 0 || made != delivered || waiting != parked {
				t.Errorf("%s: got %d pending events, %d deliveries and %d parked events, want 0, %d and %d", when, pending, made, waiting, delivered, parked)
			}
		}
		b.fanOutPending(ctx)
		want("after the fan-out", 40, 1)

		now := time.Now()
		b.Now = func() time.Time { return now }
		retry := func(after time.Duration) int {
			now = now.Add(after)
			if err := b.retryParked(ctx); err != nil {
				t.Fatal(err)
			}
			failures, err := db.Value[int](d.QueryRow(ctx, "SELECT COALESCE(max(failures), 0) FROM parked_events"))
			if err != nil {
				t.Fatal(err)
			}
			return failures
		}
		for i, after := range []time.Duration{0, firstParked + time.Minute, firstParked, firstParked} {
			if got, want := retry(after), []int{1, 2, 2, 3}[i]; got != want {
				t.Errorf("after %v: the event failed %d times, want %d", after, got, want)
			}
		}
		publish(other, 1)
		b.fanOutPending(ctx)
		want("while it is parked", 41, 1)

		failing = false
		retry(maxParked)
		want("after it was repaired", 42, 0)
	})
}

// TestUnavailableDatabaseParksNoEvent: it is no event's fault.
func TestUnavailableDatabaseParksNoEvent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newFixture(t, d)
		write(t, d, func(tx *db.Tx) error {
			_, err := b.Publisher.Publish(t.Context(), tx, events.Origin{Tenant: accounts.Tenant{WorkspaceID: b.endpoint.WorkspaceID, Environment: accounts.Test}}, events.KeyRevoked{})
			return err
		})
		b.Notify = func(context.Context, *db.Tx, []events.Pending) error {
			return fmt.Errorf("outbox: %w", db.ErrUnavailable)
		}
		b.fanOutPending(t.Context())
		pending, err := events.HasPending(t.Context(), d)
		if err != nil || !pending {
			t.Errorf("the event is pending: got %v (%v), want true", pending, err)
		}
	})
}
