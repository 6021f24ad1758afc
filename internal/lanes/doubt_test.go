package lanes_test

import (
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
)

// TestALaneWhoseClaimWasNotAnsweredIsWorked: the store has the node for its
// owner, and the node never heard of it. Its lease is renewed all the same, so
// that nobody else would ever have it.
func TestALaneWhoseClaimWasNotAnsweredIsWorked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		s.run(t, "a", 4)
		s.put(t, "known", 0, "1")
		eventually(t, 5*time.Second, "a works", func() bool { return s.open(t) == 0 })
		write(t, d, func(tx *db.Tx) error {
			now := time.Now()
			if _, err := tx.Exec(t.Context(), "INSERT INTO tasks (id, lane, due_at, done) VALUES ('2', 'unknown', $1, 0)", now.UnixMicro()); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "INSERT INTO lanes (queue, id, due_at, seq, owner, lease_until) VALUES ($1, 'unknown', $2, 1, 'a', $3)",
				queue, now.UnixMicro(), now.Add(15*time.Second).UnixMicro())
			return err
		})
		eventually(t, 12*time.Second, "a works what it has", func() bool { return s.open(t) == 0 })
	})
}

// TestAStoppingNodeGivesUpWhatItDidNotKnowOf, or others would wait for whatever
// else it has at work.
func TestAStoppingNodeGivesUpWhatItDidNotKnowOf(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newTasks(t, d)
		begun, end := make(chan struct{}), make(chan struct{})
		s.work = func(string, task) bool {
			close(begun)
			<-end
			return true
		}
		_, stop := s.run(t, "a", 4)
		t.Cleanup(func() { close(end) }) // before it is waited for
		s.put(t, "slow", 0, "1")
		<-begun
		go stop()
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "INSERT INTO lanes (queue, id, due_at, seq, owner, lease_until) VALUES ($1, 'unknown', 0, 1, 'a', $2)",
				queue, time.Now().Add(15*time.Second).UnixMicro())
			return err
		})
		eventually(t, 8*time.Second, "it is given up", func() bool {
			var free bool
			err := d.QueryRow(t.Context(), "SELECT owner IS NULL FROM lanes WHERE queue = $1 AND id = 'unknown'", queue).Scan(&free)
			return err == nil && free
		})
	})
}
