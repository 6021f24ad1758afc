package lanes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"turnpike/internal/db"
)

// leaseStore holds the leases of a queue's lanes. table implements it, and so
// does the model in the tests.
type leaseStore interface {
	// claimable reports whether claim would find a lane, without the write lock.
	claimable(ctx context.Context, expired bool) (bool, error)
	// claim leases up to n lanes that are due and not leased. With expired, it
	// leases lanes whose node hasn't renewed its lease, due or not.
	claim(ctx context.Context, n int, expired bool) ([]leasedLane, error)
	// waiting counts the lanes that are due and not leased, up to n.
	waiting(ctx context.Context, n int) (int, error)
	// renew extends the leases of all lanes that this node leases, and returns them. It tells the other
	// nodes how many of them have a backlog.
	renew(ctx context.Context, until time.Time, busy int) ([]leasedLane, error)
	// give gives lanes to another node, for giveLease.
	give(ctx context.Context, node string, names []string) error
	// release releases idle lanes, except those into which work was enqueued since
	// their last scan. It returns the released ones.
	release(ctx context.Context, list []releasedLane) ([]string, error)
	// handOver releases lanes that are due now.
	handOver(ctx context.Context, names []string) error
	// releaseAll releases all lanes of this node as due now.
	releaseAll(ctx context.Context) error
	// seq counts the enqueues of a lane. It is read before the items, so that
	// concurrently enqueued work is seen twice and never missed.
	seq(ctx context.Context, lane string) (int64, error)
}

// leasedLane is a lane that this node leases.
type leasedLane struct {
	id     string
	seq    int64
	pinned bool // to this node
}

// releasedLane is an idle lane to release.
type releasedLane struct {
	id   string
	seq  int64     // at its last scan
	next time.Time // when its next item is due; zero if it has none
}

// table is the lanes table of the database, as seen by one node.
type table struct {
	db    *db.DB
	queue string
	node  string
	now   func() time.Time
}

// leasedColumns are the columns of scanLeasedLane.
const leasedColumns = "id, seq, pinned_to IS NOT NULL"

func scanLeasedLane(r db.Row) (l leasedLane, err error) {
	err = r.Scan(&l.id, &l.seq, &l.pinned)
	return l, err
}

// claimCondition selects the lanes that claim may lease, with the arguments $1 to $3.
func (t *table) claimCondition(expired bool) (where string, args []any) {
	where, at := "queue = $1 AND owner IS NULL AND due_at <= $2 AND (pinned_to IS NULL OR pinned_to = $3)", t.now()
	if expired { // leases follow the database's clock, not the service's
		where, at = "queue = $1 AND owner IS NOT NULL AND lease_until < $2 AND (pinned_to IS NULL OR pinned_to = $3)", t.db.Now()
	}
	return where, []any{t.queue, at.UnixMicro(), t.node}
}

func (t *table) claim(ctx context.Context, n int, expired bool) (claimed []leasedLane, err error) {
	where, args := t.claimCondition(expired)
	order := "due_at"
	if expired {
		order = "lease_until"
	}
	args = append(args, t.db.Now().Add(leaseDuration).UnixMicro(), int64(n))
	err = t.db.Write(ctx, func(tx *db.Tx) error {
		claimed, err = db.List(ctx, tx, scanLeasedLane, "WITH due AS (SELECT id FROM lanes WHERE "+
			where+" ORDER BY "+order+" LIMIT $5"+tx.Claim("lanes")+`)
			UPDATE lanes SET owner = $3, lease_until = $4 WHERE queue = $1 AND id IN (SELECT id FROM due) RETURNING `+leasedColumns, args...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim lanes: %w", err)
	}
	return claimed, nil
}

func (t *table) claimable(ctx context.Context, expired bool) (bool, error) {
	where, args := t.claimCondition(expired)
	return db.Value[bool](t.db.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM lanes WHERE "+where+")", args...))
}

func (t *table) waiting(ctx context.Context, n int) (int, error) {
	where, args := t.claimCondition(false)
	return db.Value[int](t.db.QueryRow(ctx, "SELECT count(*) FROM (SELECT 1 FROM lanes WHERE "+where+" LIMIT $4) AS w", append(args, int64(n))...))
}

func (t *table) renew(ctx context.Context, until time.Time, busy int) (leased []leasedLane, err error) {
	err = t.db.Write(ctx, func(tx *db.Tx) error {
		leased, err = db.List(ctx, tx, scanLeasedLane, `UPDATE lanes SET lease_until = $1 WHERE queue = $2 AND id IN
			(SELECT id FROM lanes WHERE queue = $2 AND owner = $3 ORDER BY id`+tx.Lock("lanes")+`) RETURNING `+leasedColumns,
			t.db.At(until).UnixMicro(), t.queue, t.node)
		tx.Signal(loadTopic(t.queue), loadPayload(t.node, busy))
		return err
	})
	return leased, db.Wrap(err, "renew leases")
}

func (t *table) release(ctx context.Context, list []releasedLane) (names []string, err error) {
	slices.SortFunc(list, func(a, b releasedLane) int { return strings.Compare(a.id, b.id) })
	err = t.db.Write(ctx, func(tx *db.Tx) error {
		names = nil
		for _, l := range list {
			var next any
			if !l.next.IsZero() {
				next = l.next.UnixMicro()
			}
			n, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1
				WHERE queue = $2 AND id = $3 AND owner = $4 AND seq = $5`, next, t.queue, l.id, t.node, l.seq)
			if err != nil {
				return err
			}
			if n > 0 {
				names = append(names, l.id)
			}
		}
		return nil
	})
	return names, db.Wrap(err, "release lanes")
}

func (t *table) handOver(ctx context.Context, names []string) error {
	slices.Sort(names)
	return t.db.Write(ctx, func(tx *db.Tx) error {
		for _, id := range names {
			if _, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1
				WHERE queue = $2 AND id = $3 AND owner = $4`, t.now().UnixMicro(), t.queue, id, t.node); err != nil {
				return fmt.Errorf("hand lanes over: %w", err)
			}
		}
		tx.Signal(signalOf(t.queue), strings.Join(names, ","))
		return nil
	})
}

func (t *table) give(ctx context.Context, node string, names []string) error {
	slices.Sort(names)
	return t.db.Write(ctx, func(tx *db.Tx) error {
		for _, id := range names {
			if _, err := tx.Exec(ctx, "UPDATE lanes SET owner = $1, lease_until = $2 WHERE queue = $3 AND id = $4 AND owner = $5 AND pinned_to IS NULL",
				node, t.db.Now().Add(giveLease).UnixMicro(), t.queue, id, t.node); err != nil {
				return fmt.Errorf("give lanes away: %w", err)
			}
		}
		tx.Signal(giveTopic(t.queue), node)
		return nil
	})
}

func (t *table) releaseAll(ctx context.Context) error {
	return t.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1 WHERE queue = $2 AND id IN
			(SELECT id FROM lanes WHERE queue = $2 AND owner = $3 ORDER BY id`+tx.Lock("lanes")+`)`,
			t.now().UnixMicro(), t.queue, t.node)
		tx.Signal(loadTopic(t.queue), loadPayload(t.node, leavingLoad))
		return err
	})
}

func (t *table) seq(ctx context.Context, id string) (int64, error) {
	return db.Value[int64](t.db.QueryRow(ctx, "SELECT seq FROM lanes WHERE queue = $1 AND id = $2", t.queue, id))
}

// ClearOwners ends all leases. Only a process with exclusive use of the
// database may call it, because then the owners are gone.
func ClearOwners(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = 0 WHERE owner IS NOT NULL")
		return err
	})
}

// Remove deletes lanes whose work was deleted.
func Remove(ctx context.Context, tx *db.Tx, queue string, names ...string) error {
	for _, id := range names {
		if _, err := tx.Exec(ctx, "DELETE FROM lanes WHERE queue = $1 AND id = $2", queue, id); err != nil {
			return fmt.Errorf("remove lane: %w", err)
		}
	}
	return nil
}
