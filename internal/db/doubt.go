package db

import (
	"context"
	"fmt"
	"time"
)

// A commit without a response may have happened. Its items can be written again only if it
// didn't, and only the database knows. So a group marks its commits: each stores its number in
// the group's row of commit_marks. If the row has the number, the commit has happened.

// doubt is a commit without a response.
type doubt struct {
	mark    int64
	err     error
	batches []groupBatch // durable ones
	tx      *Tx          // the transaction, for what runs after its commit
}

const storeMark = `INSERT INTO commit_marks (id, mark, stored_at) VALUES ($1, $2, $3)
	ON CONFLICT (id) DO UPDATE SET mark = excluded.mark, stored_at = excluded.stored_at`

func (g *Group) storeMark(tx *Tx) error {
	return tx.Send(nil, storeMark, g.id, g.mark, time.Now().UnixMicro())
}

// resolve finds out whether the commit in doubt has happened. If so, its items are written. Otherwise
// they wait again.
func (g *Group) resolve() (happened bool, err error) {
	d, ctx := g.doubt, context.Background()
	var stored int64
	err = g.db.Write(ctx, func(tx *Tx) (err error) {
		// A write, because it waits for the commit if that is still in progress.
		stored, err = Value[int64](tx.QueryRow(ctx, "INSERT INTO commit_marks (id, mark, stored_at) VALUES ($1, 0, $2) ON CONFLICT (id) DO UPDATE SET stored_at = excluded.stored_at RETURNING mark",
			g.id, time.Now().UnixMicro()))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look up a commit in doubt: %w", err)
	}
	g.doubt = nil
	if stored != d.mark {
		g.requeue(d.batches)
		return false, nil
	}
	for _, fn := range d.tx.onCommit {
		fn()
	}
	g.fail(d.batches, nil)
	return true, nil
}

// marksKept is longer than any outage after which a process writes what it has kept.
const marksKept = 30 * 24 * time.Hour

// PurgeMarks deletes the marks of processes that have ended long ago.
func PurgeMarks(ctx context.Context, tx *Tx, now time.Time, limit int64) (int64, error) {
	n, err := tx.Exec(ctx, "DELETE FROM commit_marks WHERE id IN (SELECT id FROM commit_marks WHERE stored_at < $1 LIMIT $2)", now.Add(-marksKept).UnixMicro(), limit)
	return n, Wrap(err, "purge commit marks")
}

type loseKey struct{}

// LoseResponses returns a context for Open, for tests: commits of groups happen without a response if
// lose returns true. It gets the names of their durable queues.
func LoseResponses(ctx context.Context, lose func(queues []string) bool) context.Context {
	return context.WithValue(ctx, loseKey{}, lose)
}

// losesResponse reports whether a test wants the commit to be in doubt.
func (d *DB) losesResponse(tx *Tx) bool {
	if d.lose == nil || tx.of == nil {
		return false
	}
	var names []string
	for _, b := range tx.of {
		if b.queue().durable {
			names = append(names, b.queue().name)
		}
	}
	return d.lose(names)
}
