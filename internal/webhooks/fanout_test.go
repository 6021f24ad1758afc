package webhooks

import (
	"bytes"
	"context"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/keyring"
	"turnpike/internal/mail"
	"turnpike/internal/safehttp"
	"turnpike/internal/visibility"
)

// TestResumeFindsDeliveriesOfConcurrentFanOut: a fan-out reads that the endpoint is
// paused, and stores its deliveries after it was resumed. Without the shared lock
// they would be held forever by an active endpoint.
func TestResumeFindsDeliveriesOfConcurrentFanOut(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		w := &accounts.Workspace{Name: "w"}
		e := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/", Events: []string{"*"}}
		write(t, d, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			e.WorkspaceID = w.ID
			if _, err := s.Create(ctx, tx, system, e); err != nil {
				return err
			}
			return s.Pause(ctx, tx, system, e)
		})
		event := events.Pending{ID: ids.New(ids.Event), Tenant: w.In(accounts.Test), Type: events.KeyAutoRevoked, CreatedAt: time.Now()}

		resumed := make(chan struct{})
		write(t, d, func(tx *db.Tx) error {
			rows, _, err := s.deliveriesOf(ctx, tx, []events.Pending{event}, time.Now())
			if err != nil {
				return err
			}
			go func() {
				defer close(resumed)
				write(t, d, func(tx *db.Tx) error {
					e, err := s.GetLocked(ctx, tx, visibility.Filter{Tenant: w.In(accounts.Test)}, e.ID)
					if err != nil {
						return err
					}
					return s.Resume(ctx, tx, system, e, false)
				})
			}()
			select {
			case <-resumed: // it did not wait for us
			case <-time.After(300 * time.Millisecond): // it does
			}
			_, err = insertDeliveries.Write(ctx, tx, rows)
			return err
		})
		<-resumed
		held, err := s.HeldCount(ctx, d, e.ID, 10)
		if err != nil || held != 0 {
			t.Errorf("%d deliveries are held at an endpoint that is active (%v)", held, err)
		}
	})
}

func newService(t *testing.T, d *db.DB) *Service {
	t.Helper()
	ring, err := keyring.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(d)
	t.Cleanup(g.Stop)
	return New(Options{DB: d, Group: g, Ring: ring, Guard: safehttp.New(safehttp.Policy{}), Publisher: events.NewPublisher(time.Now),
		Outbox: mail.New(d, ring, nil, "", time.Now), Node: "node_x", PerEndpoint: 1, Slots: 1, Now: time.Now})
}

func write(t *testing.T, d *db.DB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Write(context.WithoutCancel(t.Context()), fn); err != nil {
		t.Error(err)
	}
}
