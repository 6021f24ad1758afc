package webhooks

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/visibility"
)

// TestEventDeliveriesAreFoundByEventID: all visible ones, by a range of IDs instead
// of a table scan.
func TestEventDeliveriesAreFoundByEventID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		w := &accounts.Workspace{Name: "w"}
		var ends []*Endpoint
		var list []*events.Event
		write(t, d, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			for range 3 {
				e := &Endpoint{Tenant: w.In(accounts.Test), URL: "https://example.com/", Events: []string{"*"}}
				if _, err := s.Create(ctx, tx, system, e); err != nil {
					return err
				}
				ends = append(ends, e)
			}
			var err error
			list, err = s.Publisher.PublishAll(ctx, tx, events.Origin{Tenant: w.In(accounts.Test)}, events.KeyRevoked{}, events.KeyRevoked{})
			if err != nil {
				return err
			}
			var rows [][]any
			for _, event := range list {
				for _, e := range ends {
					rows = append(rows, s.newDelivery(e, event.ID, event.Type, event.CreatedAt, time.Now()).row())
				}
			}
			_, err = insertDeliveries.Write(ctx, tx, rows)
			return err
		})
		for _, event := range list {
			found, err := s.EventDeliveries(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, event.ID)
			if err != nil || len(found) != len(ends) {
				t.Fatalf("%d deliveries are found (%v)", len(found), err)
			}
			for _, one := range found {
				if one.EventID != event.ID {
					t.Errorf("%s is of %s", one.ID, one.EventID)
				}
			}
		}
		for _, other := range []struct {
			workspace string
			env       accounts.Environment
		}{{w.ID, accounts.Live}, {"ws_1", accounts.Test}} {
			found, err := s.EventDeliveries(ctx, d, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: other.workspace, Environment: other.env}}, list[0].ID)
			if err != nil || len(found) != 0 {
				t.Errorf("%v finds %d (%v)", other, len(found), err)
			}
			named, err := s.Named(ctx, d, visibility.Filter{Tenant: accounts.Tenant{WorkspaceID: other.workspace, Environment: other.env}}, ends[0].ID)
			if err != nil || len(named) != 0 {
				t.Errorf("%v names %v (%v)", other, named, err)
			}
		}
	})
}

func TestListReplaysAndTunnels(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		w := &accounts.Workspace{Name: "w"}
		one := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/1", Events: []string{"*"}}
		two := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/2", Events: []string{"*"}}
		tunnel := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, Kind: Tunnel, Events: []string{"*"}}
		write(t, d, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			for _, e := range []*Endpoint{one, two, tunnel} {
				e.WorkspaceID = w.ID
				if _, err := s.Create(ctx, tx, system, e); err != nil {
					return err
				}
			}
			return nil
		})
		var begun []string
		for _, e := range []*Endpoint{one, two, one} {
			p := &Replay{EndpointID: e.ID, Since: time.Now().Add(-time.Hour)}
			if err := s.PlanReplay(ctx, visibility.Filter{Tenant: w.In(accounts.Test)}, p); err != nil {
				t.Fatal(err)
			}
			write(t, d, func(tx *db.Tx) error {
				return s.StartReplay(ctx, tx, system, visibility.Filter{Tenant: w.In(accounts.Test)}, p)
			})
			write(t, d, func(tx *db.Tx) error { return s.stopReplays(ctx, tx, e.ID) }) // or it would be the endpoint's only one
			begun = append(begun, p.ID)
		}
		found, err := s.ListReplays(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, one.ID, db.Page{Limit: 10})
		if err != nil || len(found.Rows) != 2 || found.Rows[0].ID != begun[2] || found.Rows[1].ID != begun[0] {
			t.Errorf("of %v there are %+v (%v)", begun, found, err)
		}
		tunnels, err := s.ListTunnels(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, db.Page{Limit: 10})
		if err != nil || len(tunnels.Rows) != 1 || tunnels.Rows[0].ID != tunnel.ID {
			t.Errorf("the tunnels are %+v (%v)", tunnels, err)
		}
		write(t, d, func(tx *db.Tx) error { return s.Delete(ctx, tx, system, one) })
		named, err := s.Named(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, one.ID, two.ID, one.ID, "wh_1")
		if err != nil || len(named) != 2 || named[one.ID].DeletedAt == nil {
			t.Errorf("named are %v (%v)", named, err)
		}
	})
}
