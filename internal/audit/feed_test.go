package audit

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

const testSink = "test"

func addSink(t *testing.T, d *db.DB, position string) {
	t.Helper()
	write(t, d, func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO log_sinks (name, position, sent, seen_at, failures) VALUES ($1, $2, 0, 0, 0)", testSink, position)
		return err
	})
}

func write(t *testing.T, d *db.DB, fn func(tx *db.Tx) error) {
	t.Helper()
	if err := d.Write(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func raise(t *testing.T, l *Log, d *db.DB, to time.Time) {
	t.Helper()
	if err := l.RaiseFloor(t.Context(), d, to); err != nil {
		t.Fatal(err)
	}
}

func durable(t *testing.T, r *Record) {
	t.Helper()
	if err := r.Durable(5 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func settle(t *testing.T, r *Record) {
	t.Helper()
	r.Settle(costing(credits.Credit))
	if err := r.Settled(5 * time.Second); err != nil {
		t.Fatal(err)
	}
}

func pendingIDs(t *testing.T, d *db.DB) []string {
	t.Helper()
	list, err := ReadPending(t.Context(), d, testSink, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, p := range list {
		out = append(out, p.RequestID)
	}
	return out
}

func checkPending(t *testing.T, d *db.DB, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := pendingIDs(t, d); !slices.Equal(got, want) {
		t.Errorf("got pending entries %v, want %v", got, want)
	}
}

// ahead is beyond all IDs of a test.
func ahead() time.Time { return time.Now().Add(time.Hour) }

func TestEntriesInsertedBelowTheFloorArePending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		addSink(t, d, "")
		raise(t, l, d, time.Now().Add(-time.Hour))
		settle(t, l.Open(live(nil))) // above the floor
		stream := l.Open(live(nil))
		durable(t, stream)
		short, change := l.Open(live(nil)), l.Open(live(nil))
		raise(t, l, d, ahead())
		settle(t, short)
		settle(t, stream) // sinks know its intent
		write(t, d, func(tx *db.Tx) error { return change.SettleIn(t.Context(), tx, costing(0)) })
		checkPending(t, d, short.entry.RequestID, change.entry.RequestID)
	})
}

func TestChangedEntriesArePending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		job, refused := l.Open(live(nil)), l.Open(live(nil))
		settle(t, job)
		settle(t, refused)
		addSink(t, d, "")
		raise(t, l, d, ahead())
		write(t, d, func(tx *db.Tx) error {
			_, err := Amend(t.Context(), tx, job.entry.RequestID, costing(3*credits.Credit))
			return err
		})
		refused.Refuse(told503)
		if err := refused.Settled(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		checkPending(t, d, job.entry.RequestID, refused.entry.RequestID)
	})
}

func TestIntentInDoubtIsPendingOnceWritten(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &ledger{}
		l, _ := newTestLog(t, d, b)
		addSink(t, d, "")
		raise(t, l, d, ahead())
		b.fail(errors.Join(db.ErrInDoubt, db.ErrUnavailable))
		r := l.Open(live(&hold{}))
		r.Settle(costing(credits.Credit))
		if err := r.pending.WaitFor(5 * time.Second); !errors.Is(err, db.ErrInDoubt) {
			t.Fatalf("got %v, want a write in doubt", err)
		}
		b.fail(nil)
		for begun := time.Now(); len(pendingIDs(t, d)) == 0; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("the entry is not pending after 10 seconds")
			}
		}
		checkPending(t, d, r.entry.RequestID)
	})
}

func TestPendingEntryThatChangesWhileItIsSentStaysPending(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		addSink(t, d, "")
		r, other := l.Open(live(nil)), l.Open(live(nil))
		settle(t, r)
		settle(t, other)
		amend := func() {
			write(t, d, func(tx *db.Tx) error {
				_, err := Amend(t.Context(), tx, r.entry.RequestID, func(e *Entry) { e.Credits++ })
				return err
			})
		}
		amend()
		write(t, d, func(tx *db.Tx) error { return AddPending(t.Context(), tx, testSink, []string{other.entry.RequestID}) })
		sent, err := ReadPending(t.Context(), d, testSink, "", 100)
		if err != nil || len(sent) != 2 {
			t.Fatalf("got %d pending entries (%v), want 2", len(sent), err)
		}
		amend()
		write(t, d, func(tx *db.Tx) error { return RemovePending(t.Context(), tx, testSink, sent) })
		checkPending(t, d, r.entry.RequestID)
	})
}

func TestFloorIsPublishedAfterOlderTransactionsEnded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, _ := newTestLog(t, d, &ledger{})
		addSink(t, d, "")
		r := l.Open(live(nil))
		raised := make(chan error, 1)
		write(t, d, func(tx *db.Tx) error {
			if err := r.SettleIn(t.Context(), tx, costing(0)); err != nil {
				return err
			}
			go func() { raised <- l.RaiseFloor(context.WithoutCancel(t.Context()), d, ahead()) }()
			for isRaised := false; !isRaised; {
				l.feed.mu.Lock()
				isRaised = l.feed.floor != ""
				l.feed.mu.Unlock()
			}
			if f, err := ReadFloors(t.Context(), d); err != nil || f.Lowest != "" {
				t.Errorf("got floors %+v (%v) while a transaction didn't know them", f, err)
			}
			return nil
		})
		if err := <-raised; err != nil {
			t.Fatal(err)
		}
		f, err := ReadFloors(t.Context(), d)
		if err != nil || f.Lowest == "" {
			t.Fatalf("got floors %+v (%v)", f, err)
		}
		if list, err := ReadBetween(t.Context(), d, "", f.Lowest, 10); err != nil || len(list) != 1 {
			t.Errorf("got %d entries below the floor (%v), want 1", len(list), err)
		}
		checkPending(t, d)
	})
}

func TestFirstFloorIsNotBelowWhatSinksHaveRead(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		l, node := newTestLog(t, d, &ledger{})
		raise(t, l, d, ahead())
		if f, err := ReadFloors(t.Context(), d); err != nil || f.Highest != "" {
			t.Errorf("got floors %+v (%v) without a sink", f, err)
		}
		position := ids.Floor(ids.Request, ahead())
		addSink(t, d, position)
		raise(t, l, d, time.Now())
		if f, err := ReadFloors(t.Context(), d); err != nil || f.Lowest != position {
			t.Errorf("got floors %+v (%v), want %s", f, err, position)
		}
		late := l.Open(live(nil))
		settle(t, late)
		checkPending(t, d, late.entry.RequestID)

		higher := ids.Floor(ids.Request, ahead().Add(time.Hour))
		write(t, d, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), "UPDATE nodes SET log_floor = $2 WHERE id = $1", node.ID, higher)
			return err
		})
		joined, _ := newTestLog(t, d, &ledger{})
		if f, err := ReadFloors(t.Context(), d); err != nil || f.Lowest != "" {
			t.Errorf("got floors %+v (%v) before the new node has one", f, err)
		}
		raise(t, joined, d, time.Now())
		if f, err := ReadFloors(t.Context(), d); err != nil || f.Lowest != higher {
			t.Errorf("got floors %+v (%v), want %s of the other node", f, err, higher)
		}
	})
}
