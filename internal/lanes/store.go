package lanes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"turnpike/internal/db"
)

// upsert puts work into lanes. The bump of seq tells a node that is about to
// give the lane back that it has not seen everything.
var upsert = db.NewBulk("lanes", `ON CONFLICT (queue, id) DO UPDATE SET seq = lanes.seq + excluded.seq,
	due_at = CASE WHEN lanes.due_at IS NULL OR lanes.due_at > excluded.due_at THEN excluded.due_at ELSE lanes.due_at END`,
	"queue text", "id text", "due_at bigint", "seq bigint")

// maxSignal bounds the lanes that a signal names; PostgreSQL takes 8,000 bytes.
const maxSignal = 128

// order is that lanes have work from some moments on.
type order struct {
	queue string
	due   map[string]time.Time
	// then is called after the commit with the lanes' new seqs, unless those are
	// very many; it may be nil.
	then func(seqs map[string]int64)
}

// orders are written when the transaction holds all else that it changes, but
// the books: in one pass, in the order of their ids, as everybody locks them.
// Otherwise two nodes would wait for each other.
var orders = db.NewLast(func(ctx context.Context, tx *db.Tx, list []order) error {
	by := map[string][]order{}
	for _, o := range list {
		by[o.queue] = append(by[o.queue], o)
	}
	for _, queue := range slices.Sorted(maps.Keys(by)) {
		if err := enqueue(ctx, tx, queue, by[queue]); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	return nil
}).Sooner()

// Enqueue says, in the transaction that stores the work, that lanes have some
// from the given moments on. It is written at the end of the transaction.
func Enqueue(_ context.Context, tx *db.Tx, queue string, due map[string]time.Time) error {
	orders.Add(tx, order{queue: queue, due: due})
	return nil
}

func enqueue(ctx context.Context, tx *db.Tx, queue string, list []order) error {
	rows := map[string][]any{}
	for _, o := range list {
		for id, at := range o.due {
			due, seq := at.UnixMicro(), int64(1)
			if row := rows[id]; row != nil { // each counts: whoever put in one of them has not seen the other
				due, seq = min(due, row[2].(int64)), row[3].(int64)+1
			}
			rows[id] = []any{queue, id, due, seq}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(rows))
	sorted := make([][]any, len(names))
	for i, id := range names {
		sorted[i] = rows[id]
	}
	if _, err := upsert.Write(ctx, tx, sorted); err != nil {
		return err
	}
	if len(names) > maxSignal {
		tx.Signal(signalOf(queue), "") // any
		return nil
	}
	seqs, err := readSeqs(ctx, tx, queue, names)
	if err != nil {
		return err
	}
	tx.Signal(signalOf(queue), payloadOf(names, seqs))
	for _, o := range list {
		if o.then != nil {
			tx.OnCommit(func() { o.then(seqs) })
		}
	}
	return nil
}

func readSeqs(ctx context.Context, tx *db.Tx, queue string, names []string) (map[string]int64, error) {
	args, marks := []any{queue}, make([]string, len(names))
	for i, id := range names {
		args = append(args, id)
		marks[i] = fmt.Sprintf("$%d", i+2)
	}
	rows, err := tx.Query(ctx, "SELECT id, seq FROM lanes WHERE queue = $1 AND id IN ("+strings.Join(marks, ", ")+")", args...)
	seqs := make(map[string]int64, len(names))
	err = db.Each(rows, err, func(r db.Row) error {
		l, err := scanLeased(r)
		seqs[l.id] = l.seq
		return err
	})
	return seqs, err
}

// payloadOf names lanes with their seqs, so that whoever has seen that much of
// them need not look.
func payloadOf(names []string, seqs map[string]int64) string {
	var b strings.Builder
	for i, id := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(id)
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(seqs[id], 10))
	}
	return b.String()
}

// Pin gives a lane to one node alone, at once, and says that it has work. A
// node that has it already keeps it, with what it has in hand of it.
func Pin(ctx context.Context, tx *db.Tx, queue, id, node string, now time.Time) error {
	_, err := tx.Exec(ctx, `INSERT INTO lanes (queue, id, due_at, seq, pinned_to) VALUES ($1, $2, $3, 1, $4)
		ON CONFLICT (queue, id) DO UPDATE SET due_at = $3, seq = lanes.seq + 1, pinned_to = $4,
			owner = CASE WHEN lanes.owner = $4 THEN lanes.owner END, lease_until = CASE WHEN lanes.owner = $4 THEN lanes.lease_until END`,
		queue, id, now.UnixMicro(), node)
	if err != nil {
		return fmt.Errorf("pin lane: %w", err)
	}
	tx.Signal(signalOf(queue), id)
	return nil
}

// Remove forgets lanes whose work is no more.
func Remove(ctx context.Context, tx *db.Tx, queue string, names ...string) error {
	for _, id := range names {
		if _, err := tx.Exec(ctx, "DELETE FROM lanes WHERE queue = $1 AND id = $2", queue, id); err != nil {
			return fmt.Errorf("remove lane: %w", err)
		}
	}
	return nil
}

func signalOf(queue string) string { return "lanes." + queue }

// leased is a lane as the store gave it.
type leased struct {
	id  string
	seq int64
}

func scanLeased(r db.Row) (l leased, err error) {
	err = r.Scan(&l.id, &l.seq)
	return l, err
}

// claim leases up to n lanes: those that are due and free, and with expired
// those whose node has not renewed its lease, whatever they may hold.
func (r *Runner[T]) claim(ctx context.Context, n int, expired bool) (got []leased, err error) {
	clock := r.db.Now() // leases are about processes, not about the service's time
	which := "owner IS NULL AND due_at <= $5 AND (pinned_to IS NULL OR pinned_to = $1) ORDER BY due_at"
	moment := r.now().UnixMicro()
	if expired {
		which = "owner IS NOT NULL AND lease_until < $5 AND (pinned_to IS NULL OR pinned_to = $1) ORDER BY lease_until"
		moment = clock.UnixMicro()
	}
	err = r.db.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `UPDATE lanes SET owner = $1, lease_until = $2 WHERE queue = $3 AND id IN
			(SELECT id FROM lanes WHERE queue = $3 AND `+which+` LIMIT $4`+tx.Claim("lanes")+`) RETURNING id, seq`,
			r.node, clock.Add(lease).UnixMicro(), r.queue, int64(n), moment)
		got, err = db.All(rows, err, scanLeased)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim lanes: %w", err)
	}
	return got, nil
}

// due reports whether there is a lane to claim, without the write lock.
func (r *Runner[T]) due(ctx context.Context, expired bool) (bool, error) {
	query := "SELECT EXISTS (SELECT 1 FROM lanes WHERE queue = $1 AND owner IS NULL AND due_at <= $2 AND (pinned_to IS NULL OR pinned_to = $3))"
	moment := r.now()
	if expired {
		query = "SELECT EXISTS (SELECT 1 FROM lanes WHERE queue = $1 AND owner IS NOT NULL AND lease_until < $2 AND (pinned_to IS NULL OR pinned_to = $3))"
		moment = r.db.Now()
	}
	var any bool
	err := r.db.QueryRow(ctx, query, r.queue, moment.UnixMicro(), r.node).Scan(&any)
	return any, err
}

// waiting counts the lanes that are due and nobody's, up to n.
func (r *Runner[T]) waiting(ctx context.Context, n int) (found int, err error) {
	err = r.db.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM lanes WHERE queue = $1 AND owner IS NULL AND due_at <= $2
		AND (pinned_to IS NULL OR pinned_to = $3) LIMIT $4) AS w`, r.queue, r.now().UnixMicro(), r.node, int64(n)).Scan(&found)
	return found, err
}

// renew extends the leases of everything this node has, and returns it.
func (r *Runner[T]) renew(ctx context.Context, until time.Time) (have []leased, err error) {
	err = r.db.Write(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, `UPDATE lanes SET lease_until = $1 WHERE queue = $2 AND id IN
			(SELECT id FROM lanes WHERE queue = $2 AND owner = $3 ORDER BY id`+tx.Lock("lanes")+`) RETURNING id, seq`,
			r.db.At(until).UnixMicro(), r.queue, r.node)
		have, err = db.All(rows, err, scanLeased)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return have, nil
}

// released is a lane to be given back.
type released struct {
	id   string
	seq  int64
	next time.Time // when it has work again; zero for never
}

// release gives lanes back that have nothing to do now. One into which
// something was put since is kept; the ids that were given back are returned.
func (r *Runner[T]) release(ctx context.Context, list []released) (gone []string, err error) {
	slices.SortFunc(list, func(a, b released) int { return strings.Compare(a.id, b.id) })
	err = r.db.Write(ctx, func(tx *db.Tx) error {
		gone = nil
		for _, l := range list {
			var next *int64
			if !l.next.IsZero() {
				us := l.next.UnixMicro()
				next = &us
			}
			n, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1
				WHERE queue = $2 AND id = $3 AND owner = $4 AND seq = $5`, next, r.queue, l.id, r.node, l.seq)
			if err != nil {
				return err
			}
			if n > 0 {
				gone = append(gone, l.id)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("release lanes: %w", err)
	}
	return gone, nil
}

// freeLanes gives lanes back, to be looked at by others now.
func (r *Runner[T]) freeLanes(ctx context.Context, names []string) error {
	slices.Sort(names)
	return r.db.Write(ctx, func(tx *db.Tx) error {
		for _, id := range names {
			if _, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1
				WHERE queue = $2 AND id = $3 AND owner = $4`, r.now().UnixMicro(), r.queue, id, r.node); err != nil {
				return fmt.Errorf("free lanes: %w", err)
			}
		}
		tx.Signal(signalOf(r.queue), strings.Join(names, ","))
		return nil
	})
}

// releaseAll gives everything back at the end, to be looked at by whoever comes next.
func (r *Runner[T]) releaseAll(ctx context.Context) error {
	return r.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = $1 WHERE queue = $2 AND id IN
			(SELECT id FROM lanes WHERE queue = $2 AND owner = $3 ORDER BY id`+tx.Lock("lanes")+`)`,
			r.now().UnixMicro(), r.queue, r.node)
		return err
	})
}

// seqOf reads how much was put into a lane so far. It is read before the work
// itself, so that what comes between the two is seen twice and never missed.
func (r *Runner[T]) seqOf(ctx context.Context, id string) (seq int64, err error) {
	err = r.db.QueryRow(ctx, "SELECT seq FROM lanes WHERE queue = $1 AND id = $2", r.queue, id).Scan(&seq)
	return seq, err
}

// ClearOwners takes every lane from its owner. It is for the one process that has
// the database to itself and knows that whoever owned them is dead.
func ClearOwners(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE lanes SET owner = NULL, lease_until = NULL, due_at = 0 WHERE owner IS NOT NULL")
		return err
	})
}

// LockPinnedNode returns the node that alone may have the lane, and locks it.
func LockPinnedNode(ctx context.Context, tx *db.Tx, queue, id string) (string, error) {
	var node *string
	err := tx.QueryRow(ctx, "SELECT pinned_to FROM lanes WHERE queue = $1 AND id = $2"+tx.Lock("lanes"), queue, id).Scan(&node)
	if errors.Is(err, db.ErrNotFound) {
		return "", nil
	}
	return db.Text(node), err
}
