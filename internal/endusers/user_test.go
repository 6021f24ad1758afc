package endusers

import (
	"context"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/fault"
)

type fixture struct {
	t      *testing.T
	d      *db.DB
	tenant accounts.Tenant
	now    time.Time
}

func each(t *testing.T, test func(o *fixture)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		o := &fixture{t: t, d: d, now: time.Now().Truncate(time.Microsecond)}
		w := &accounts.Workspace{Name: "acme", Alert: accounts.DefaultAlert}
		o.write(func(ctx context.Context, tx *db.Tx) error { return accounts.CreateWorkspace(ctx, tx, w, o.now) })
		o.tenant = w.In(accounts.Live)
		test(o)
	})
}

func (o *fixture) write(fn func(ctx context.Context, tx *db.Tx) error) {
	o.t.Helper()
	if err := o.d.Write(o.t.Context(), func(tx *db.Tx) error { return fn(o.t.Context(), tx) }); err != nil {
		o.t.Fatal(err)
	}
}

func (o *fixture) ensure(name string, limits accounts.UserLimits) (u *User, err error) {
	err = o.d.Write(o.t.Context(), func(tx *db.Tx) (err error) {
		u, err = Ensure(o.t.Context(), tx, Use{Tenant: o.tenant, Name: name, Limits: limits, At: o.now})
		return err
	})
	return u, err
}

func (o *fixture) mustEnsure(name string, limits accounts.UserLimits) *User {
	o.t.Helper()
	u, err := o.ensure(name, limits)
	if err != nil {
		o.t.Fatal(err)
	}
	return u
}

func (o *fixture) names() map[string]bool {
	o.t.Helper()
	list, _, err := List(o.t.Context(), o.d, o.tenant, Filter{}, db.Page{Limit: 100})
	if err != nil {
		o.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, u := range list {
		names[u.Name] = true
	}
	return names
}

func (o *fixture) directory() *Directory {
	o.t.Helper()
	d, err := NewDirectory(o.d, func(context.Context, string) (accounts.UserSettings, error) {
		return accounts.UserSettings{FromRequests: true}, nil
	}, func() time.Time { return o.now })
	if err != nil {
		o.t.Fatal(err)
	}
	return d
}

func TestIdleUsersWithoutALifetimeBudgetArePurged(t *testing.T) {
	each(t, func(o *fixture) {
		budget := credits.Credit
		byToken, byRequest := o.mustEnsure("seen by token", accounts.UserLimits{}), o.mustEnsure("seen by request", accounts.UserLimits{})
		o.mustEnsure("idle", accounts.UserLimits{Budget: &budget, Window: accounts.WindowMonth})
		o.mustEnsure("lifetime", accounts.UserLimits{Budget: &budget, Window: accounts.WindowLifetime})
		purge := func(want int64) {
			o.t.Helper()
			o.write(func(ctx context.Context, tx *db.Tx) error {
				if n, err := Purge(ctx, tx, o.now, 10); err != nil || n != want {
					o.t.Errorf("got %d purged (%v), want %d", n, err, want)
				}
				return nil
			})
		}
		o.now = o.now.Add(idleRetention)
		purge(0)
		users := o.directory()
		if _, err := users.OfToken(t.Context(), o.tenant, byToken.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := users.OfRequest(t.Context(), o.tenant, func() (string, error) { return byRequest.Name, nil }); err != nil {
			t.Fatal(err)
		}
		o.now = o.now.Add(time.Second)
		purge(1)
		if got := o.names(); len(got) != 3 || got["idle"] {
			t.Errorf("got %v, want all but the idle one", got)
		}
		if n, err := db.Value[int64](o.d.QueryRow(t.Context(), "SELECT users FROM end_user_counts WHERE workspace_id = $1", o.tenant.WorkspaceID)); err != nil || n != 3 {
			t.Errorf("got a count of %d (%v), want 3", n, err)
		}
	})
}

func TestNumberOfUsersIsLimited(t *testing.T) {
	each(t, func(o *fixture) {
		first := o.mustEnsure("first", accounts.UserLimits{})
		o.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE end_user_counts SET users = $2 WHERE workspace_id = $1", o.tenant.WorkspaceID, int64(Max-1))
			return err
		})
		o.mustEnsure("last", accounts.UserLimits{})
		if _, err := o.ensure("one too many", accounts.UserLimits{}); !fault.Is(err, fault.LimitReached) {
			t.Errorf("got %v, want limit_reached", err)
		}
		users := o.directory()
		named := func(name string) error {
			_, err := users.OfRequest(t.Context(), o.tenant, func() (string, error) { return name, nil })
			return err
		}
		if err := named("one too many"); !fault.Is(err, fault.LimitReached) {
			t.Errorf("got %v, want limit_reached", err)
		}
		if err := named("first"); err != nil { // known users are served
			t.Error(err)
		}
		if got := o.names(); len(got) != 2 {
			t.Errorf("got users %v, want two", got)
		}
		o.write(func(ctx context.Context, tx *db.Tx) error { return first.remove(ctx, tx) })
		if err := named("one too many"); err != nil {
			t.Errorf("got %v after a user was deleted, want another one", err)
		}
	})
}
