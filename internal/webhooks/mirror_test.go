package webhooks

import (
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/events"
	"turnpike/internal/fault"
)

// TestAMirrorGoesWithItsEndpoint: what is deleted gets nothing, so what gets
// the same as it gets nothing either. Another endpoint's mirror stays.
func TestAMirrorGoesWithItsEndpoint(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		w := &accounts.Workspace{Name: "w"}
		mirrors := map[*Endpoint]*Endpoint{}
		gone := &Endpoint{Environment: accounts.Test, URL: "https://example.com/1", Events: []string{"key.*"}}
		stays := &Endpoint{Environment: accounts.Test, URL: "https://example.com/2", Events: []string{"billing.credits.low"}}
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
				mirrors[e], _, err = s.ConnectTunnel(ctx, tx, system, TunnelRequest{WorkspaceID: w.ID, Environment: accounts.Test, Mirrors: e.ID})
				if err != nil {
					return err
				}
			}
			return s.Delete(ctx, tx, system, gone)
		})
		if _, err := s.Get(ctx, d, w.ID, accounts.Test, mirrors[gone].ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("the mirror of a deleted endpoint: %v", err)
		}
		if _, err := s.Get(ctx, d, w.ID, accounts.Test, mirrors[stays].ID); err != nil {
			t.Errorf("the mirror of another: %v", err)
		}
		write(t, d, func(tx *db.Tx) error {
			list, err := Subscribers(ctx, tx, w.ID, "test", events.KeyAutoRevoked)
			if len(list) != 0 {
				t.Errorf("%d endpoints get what nobody wants any more", len(list))
			}
			return err
		})
		again := TunnelRequest{WorkspaceID: w.ID, Environment: accounts.Test, Mirrors: gone.ID}
		err := d.Write(ctx, func(tx *db.Tx) error {
			_, _, err := s.ConnectTunnel(ctx, tx, system, again)
			return err
		})
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("a mirror of a deleted endpoint is made: %v", err)
		}
	})
}
