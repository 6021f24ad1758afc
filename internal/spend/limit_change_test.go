package spend

import (
	"context"
	"errors"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestLimitLoweredAgainAfterARaiseHolds covers a node that has leased a whole
// limit. The limit is raised, another node leases the rest, and the limit is
// lowered again. The first node must not spend its unused credits then, though
// it leased them under the current limit.
func TestLimitLoweredAgainAfterARaiseHolds(t *testing.T) {
	t.Parallel()
	account := Account{Key, "key_1"}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ledger := NewLedger(d)
		one, other := ledger.LeaseCache(join(t, d)), ledger.LeaseCache(join(t, d))
		one.reclaimTimeout = 0
		now := time.Now()
		reserve := func(g *LeaseCache, limit credits.Micro) (*Reservation, error) {
			return g.Reserve(t.Context(), []Cap{{account, &limit}}, credits.Credit, now)
		}
		first, err := reserve(one, credits.Credit)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := reserve(other, 2*credits.Credit); err != nil {
			t.Fatal(err)
		}
		err = d.Write(t.Context(), func(tx *db.Tx) error { ReclaimLeases(tx, account, PeriodOf(now)); return nil })
		if err != nil {
			t.Fatal(err)
		}
		first.Release()
		var refusal *Refusal
		if _, err := reserve(one, credits.Credit); !errors.As(err, &refusal) {
			t.Errorf("got %v for a call beyond the limit, want a refusal", err)
		}
	})
}

// changingSource changes the limit during the first acquire.
type changingSource struct {
	leaseSource
	cache    *LeaseCache
	acquires int
}

func (s *changingSource) acquire(ctx context.Context, key accountMonth, o acquireOptions) (credits.Micro, balance, error) {
	got, before, err := s.leaseSource.acquire(ctx, key, o)
	if s.acquires++; s.acquires == 1 {
		s.cache.expireLeases("")
	}
	return got, before, err
}

func TestLeaseAcquiredDuringALimitChangeIsAcquiredAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := NewLedger(d).LeaseCache(join(t, d))
		s := &changingSource{leaseSource: c.source, cache: c}
		c.source, c.background = s, nil
		limit := 10 * credits.Credit
		if _, err := c.Reserve(t.Context(), []Cap{{Account{Key, "key_1"}, &limit}}, credits.Credit, time.Now()); err != nil || s.acquires != 2 {
			t.Errorf("got %d acquires (%v), want 2", s.acquires, err)
		}
	})
}
