package webhooks

import (
	"slices"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
	"turnpike/internal/visibility"
)

// TestMirrorIsDeletedWithItsEndpoint, and mirrors of other endpoints stay.
func TestMirrorIsDeletedWithItsEndpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		w := &accounts.Workspace{Name: "w"}
		mirrors := map[*Endpoint]*Endpoint{}
		gone := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/1", Events: []string{"key.*"}}
		stays := &Endpoint{Tenant: accounts.Tenant{Environment: accounts.Test}, URL: "https://example.com/2", Events: []string{"billing.credits.low"}}
		write(t, d, func(tx *db.Tx) error {
			if err := accounts.CreateWorkspace(ctx, tx, w, time.Now()); err != nil {
				return err
			}
			for _, e := range []*Endpoint{gone, stays} {
				e.WorkspaceID = w.ID
				if _, err := s.Create(ctx, tx, system, e); err != nil {
					return err
				}
				var err error
				mirrors[e], _, err = s.ConnectTunnel(ctx, tx, system, TunnelRequest{Visibility: visibility.Filter{Tenant: w.In(accounts.Test)}, Mirrors: e.ID})
				if err != nil {
					return err
				}
			}
			return s.Delete(ctx, tx, system, gone)
		})
		if _, err := s.Get(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, mirrors[gone].ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("the mirror of a deleted endpoint: %v", err)
		}
		if _, err := s.Get(ctx, d, visibility.Filter{Tenant: w.In(accounts.Test)}, mirrors[stays].ID); err != nil {
			t.Errorf("the mirror of another: %v", err)
		}
		write(t, d, func(tx *db.Tx) error {
			list, err := Subscribers(ctx, tx, events.Origin{Tenant: w.In(accounts.Test)}, events.KeyAutoRevoked)
			if len(list) != 0 {
				t.Errorf("got %d subscribers after the end of the subscriptions, want none", len(list))
			}
			return err
		})
		again := TunnelRequest{Visibility: visibility.Filter{Tenant: w.In(accounts.Test)}, Mirrors: gone.ID}
		err := d.Write(ctx, func(tx *db.Tx) error {
			_, _, err := s.ConnectTunnel(ctx, tx, system, again)
			return err
		})
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("a mirror of a deleted endpoint is made: %v", err)
		}
	})
}

// TestMirrorShowsEventsAndSecretOfItsEndpoint also after they changed.
func TestMirrorShowsEventsAndSecretOfItsEndpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		b := newFixture(t, d)
		tenant := TunnelRequest{Visibility: visibility.Filter{Tenant: b.endpoint.Tenant}, Mirrors: b.endpoint.ID}
		var mirror *Endpoint
		write(t, d, func(tx *db.Tx) (err error) {
			mirror, _, err = b.ConnectTunnel(ctx, tx, system, tenant)
			return err
		})
		b.change(func(tx *db.Tx, e *Endpoint) error {
			change := audit.Change[Endpoint]{By: system, Visibility: tenant.Visibility, ID: e.ID, Apply: func(e *Endpoint) error {
				e.Events = []string{"key.*"}
				return nil
			}}
			e, err := b.Change(ctx, tx, change)
			if err != nil {
				return err
			}
			_, err = b.RotateSecret(ctx, tx, system, e, time.Hour)
			return err
		})
		origin, err := b.Get(ctx, d, tenant.Visibility, b.endpoint.ID)
		if err != nil {
			t.Fatal(err)
		}
		read := func(q db.Querier) []*Endpoint {
			one, err := b.Get(ctx, q, tenant.Visibility, mirror.ID)
			if err != nil {
				t.Fatal(err)
			}
			list, err := b.ListTunnels(ctx, q, tenant.Visibility, db.Page{Limit: 10})
			if err != nil || len(list.Rows) != 1 {
				t.Fatalf("the tunnels are %+v (%v)", list, err)
			}
			return []*Endpoint{one, list.Rows[0]}
		}
		for _, e := range read(d) {
			if !slices.Equal(e.Events, []string{"key.*"}) || e.SecretHint != origin.SecretHint || e.OldSecretUntil == nil || !e.OldSecretUntil.Equal(*origin.OldSecretUntil) {
				t.Errorf("the mirror is shown as %+v", e)
			}
		}
		for what, change := range map[string]func(tx *db.Tx, e *Endpoint) error{
			"events": func(tx *db.Tx, e *Endpoint) error {
				_, err := b.Change(ctx, tx, audit.Change[Endpoint]{By: system, Visibility: tenant.Visibility, ID: e.ID, Apply: func(e *Endpoint) error {
					e.Events = []string{"*"}
					return nil
				}})
				return err
			},
			"its secret": func(tx *db.Tx, e *Endpoint) error {
				_, err := b.RotateSecret(ctx, tx, system, e, 0)
				return err
			},
			"its grace": func(tx *db.Tx, e *Endpoint) error { return b.EndGrace(ctx, tx, system, e) },
		} {
			err := d.Write(ctx, func(tx *db.Tx) error {
				e, err := b.GetLocked(ctx, tx, tenant.Visibility, mirror.ID)
				if err != nil {
					return err
				}
				return change(tx, e)
			})
			if !fault.Is(err, fault.InvalidState) {
				t.Errorf("%s of a mirror were changed: %v", what, err)
			}
		}
		write(t, d, func(tx *db.Tx) error { // what is its own
			_, err := b.Change(ctx, tx, audit.Change[Endpoint]{By: system, Visibility: tenant.Visibility, ID: mirror.ID, Apply: func(e *Endpoint) error {
				e.Description = "on my desk"
				return nil
			}})
			return err
		})
		if e := read(d)[0]; e.Description != "on my desk" {
			t.Errorf("the mirror is shown as %+v", e)
		}
	})
}
