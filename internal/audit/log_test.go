package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

// hold is a reservation that records its release.
type hold struct {
	mu       sync.Mutex
	released bool
}

func (h *hold) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
}

func (h *hold) isReleased() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.released
}

// ledger records charges, and fails while it is told to.
type ledger struct {
	mu    sync.Mutex
	fails error
	list  []Settlement
}

func (b *ledger) book(_ context.Context, tx *db.Tx, list []Settlement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	tx.OnCommit(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.list = append(b.list, list...)
	})
	return nil
}

func (b *ledger) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fails = err
}

func newTestLog(t *testing.T, d *db.DB, b *ledger) (*Log, *nodes.Node) {
	t.Helper()
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(d)
	t.Cleanup(g.Stop)
	return NewLog(g, node, b.book), node
}

// live returns the entry of a request that has a reservation.
func live(h Hold) Entry {
	return Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: "key", Model: "m", CreatedAt: time.Now(),
		Reserved: 10 * credits.Credit, Hold: h}
}

func costing(amount credits.Micro) func(*Entry) {
	return func(e *Entry) { e.Status, e.Credits, e.UsageSource = 200, amount, UsageProvider }
}

func told503(e *Entry) { e.Status, e.ErrorCode = 503, "storage_unavailable" }

// TestEntryWrittenTwiceIsChargedOnce covers a first commit that was in doubt.
func TestEntryWrittenTwiceIsChargedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &ledger{}
		l, _ := newTestLog(t, d, b)
		e := live(&hold{})
		costing(4 * credits.Credit)(&e)
		e.Settled = true
		r := l.Open(e)
		r.state = recordClosing
		for range 2 {
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return l.writeOnce(t.Context(), tx, []*Record{r}) }); err != nil {
				t.Fatal(err)
			}
		}
		if len(b.list) != 2 || b.list[0].Previous != nil {
			t.Fatalf("booked as %+v", b.list)
		}
		if old := b.list[1].Previous; old == nil || old.Credits != 4*credits.Credit {
			t.Errorf("booked a second time as if it were the first: %+v", b.list[1])
		}
	})
}

// TestRefusalWrittenTwiceRefundsNothing covers a job that was created by a refused call after all, and has been charged.
func TestRefusalWrittenTwiceRefundsNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &ledger{}
		l, _ := newTestLog(t, d, b)
		e := live(nil)
		told503(&e)
		e.Settled = true
		r := l.Open(e)
		r.state = recordClosing
		write := func() {
			t.Helper()
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return l.writeOnce(t.Context(), tx, []*Record{r}) }); err != nil {
				t.Fatal(err)
			}
		}
		write()
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := Amend(t.Context(), tx, e.RequestID, func(e *Entry) { e.Credits = 4 * credits.Credit })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		write()
		if last := b.list[len(b.list)-1]; last.Previous == nil || last.Previous.Credits != last.Entry.Credits {
			t.Errorf("got %+v after %+v, want no difference to charge", last.Entry, last.Previous)
		}
	})
}

// TestRefusedCallReleasesItsReservation checks the time of the release:
// immediately if the entry can't have been written, otherwise when it is stored
// as refused.
func TestRefusedCallReleasesItsReservation(t *testing.T) {
	t.Parallel()
	inDoubt := fmt.Errorf("%w: %w", db.ErrInDoubt, db.ErrUnavailable)
	for _, test := range []struct {
		name    string
		failure error
		written bool
	}{
		{"the store was away", db.ErrUnavailable, false},
		{"the commit was not answered", inDoubt, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := &ledger{fails: test.failure}
				l, _ := newTestLog(t, d, b)
				h := &hold{}
				r := l.Open(live(h))
				r.Settle(costing(4 * credits.Credit)) // in one write with the intent
				if err := r.Durable(5 * time.Second); !errors.Is(err, test.failure) {
					t.Fatalf("durable: %v", err)
				}
				r.Refuse(told503)
				if released := h.isReleased(); released == test.written {
					t.Errorf("released: %t", released)
				}
				b.fail(nil)
				if !test.written {
					return
				}
				if err := l.settlements.Add(r).WaitFor(5 * time.Second); err != nil { // queued after the retained writes
					t.Fatal(err)
				}
				got, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, r.entry.RequestID)
				if err != nil || got.Status != 503 || got.Credits != 0 || !got.Settled {
					t.Errorf("in the log as %+v (%v)", got, err)
				}
				if h.isReleased() {
					t.Error("released beside the booking, which ends it")
				}
			})
		})
	}
}

// TestRefusedCallIsNotLoggedAsServed covers a commit that happened without a
// response, of a request without a reservation.
func TestRefusedCallIsNotLoggedAsServed(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &ledger{fails: fmt.Errorf("%w: %w", db.ErrInDoubt, db.ErrUnavailable)}
		l, _ := newTestLog(t, d, b)
		r := l.Open(live(nil))
		r.Settle(costing(4 * credits.Credit))
		if err := r.Durable(5 * time.Second); !errors.Is(err, db.ErrInDoubt) {
			t.Fatalf("durable: %v", err)
		}
		b.fail(nil)
		served := r.Entry()
		served.Settled = false
		stored := l.Open(*served)
		stored.Settle(func(*Entry) {})
		if err := stored.Settled(5 * time.Second); err != nil {
			t.Fatal(err)
		}
		r.Refuse(told503)
		if err := l.settlements.Add(stored).WaitFor(5 * time.Second); err != nil { // queued after the retry
			t.Fatal(err)
		}
		got, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, served.RequestID)
		if err != nil || got.Status != 503 || got.Credits != 0 {
			t.Errorf("got %+v (%v), want 503 without a charge", got, err)
		}
	})
}

// TestCallRefusedBeforeItsIntentFailsReleasesItsReservation covers an intent
// that fails after its request stopped waiting for it.
func TestCallRefusedBeforeItsIntentFailsReleasesItsReservation(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "sqlite"))
	b := &ledger{fails: db.ErrUnavailable}
	l, _ := newTestLog(t, d, b)
	h := &hold{}
	r := l.Open(live(h))
	blocked, begun := make(chan struct{}), make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		err := d.Write(t.Context(), func(*db.Tx) error {
			close(begun)
			<-blocked
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	r.Start(0, false)
	if err := r.Durable(10 * time.Millisecond); err == nil {
		t.Fatal("durable while another writes")
	}
	r.Refuse(told503)
	if h.isReleased() {
		t.Error("released, and it may still be written")
	}
	close(blocked)
	writer.Wait()
	for begun := time.Now(); !h.isReleased(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("what was set aside for a call that was never written is still set aside")
		}
	}
}

// TestRetryWaitsForTheWriteInDoubt covers a commit that may still be in
// progress. The retry must not charge it twice.
func TestRetryWaitsForTheWriteInDoubt(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	l, _ := newTestLog(t, d, &ledger{})
	e := live(nil)
	costing(credits.Credit)(&e)
	e.Settled = true
	inserted, done := make(chan struct{}), make(chan error)
	go func() {
		done <- d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := insertRequests.Write(t.Context(), tx, [][]any{e.appendRow(nil, l.node.ID)})
			close(inserted)
			dbtest.AwaitBlocked(t, d, tx)
			return err
		})
	}()
	<-inserted
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		again := e
		if old, _, err := l.settledBefore(t.Context(), tx, &again, earlierWrite); err != nil || old == nil || old.Credits != e.Credits {
			t.Errorf("got %+v (%v), want the entry in doubt", old, err)
		}
		return nil
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
}

// TestEvictedNodeWritesNoEntry covers intents, settlements, and entries in the
// transaction of a change. The change fails too.
func TestEvictedNodeWritesNoEntry(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	b := &ledger{}
	l, node := newTestLog(t, d, b)
	open := l.Open(live(&hold{}))
	if err := open.Durable(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := node.Leave(t.Context()); err != nil { // has the same effect as an eviction
		t.Fatal(err)
	}
	other, _ := newTestLog(t, d, b)
	if n, err := other.Recover(t.Context(), d); n != 1 || err != nil {
		t.Fatalf("recovered %d entries (%v), want 1", n, err)
	}

	h := &hold{}
	late := l.Open(live(h))
	if err := late.Durable(5 * time.Second); !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("an intent: got %v, want ErrEvicted", err)
	}
	late.Refuse(told503)
	if !h.isReleased() {
		t.Error("the refused call still holds its reservation")
	}
	open.Settle(costing(4 * credits.Credit))
	if err := open.Settled(50 * time.Millisecond); err == nil {
		t.Error("a settlement was written")
	}
	change := l.Open(live(nil))
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "INSERT INTO nodes (id, started_at, seen_at) VALUES ('changed', 0, 0)"); err != nil {
			return err
		}
		return change.SettleIn(t.Context(), tx, func(*Entry) {})
	})
	if !errors.Is(err, nodes.ErrEvicted) {
		t.Errorf("a change: got %v, want ErrEvicted", err)
	}
	var stored, changed int
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM requests").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	if err := d.QueryRow(t.Context(), "SELECT count(*) FROM nodes WHERE id = 'changed'").Scan(&changed); err != nil {
		t.Fatal(err)
	}
	e, err := Get(t.Context(), d, visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}, open.entry.RequestID)
	if err != nil || stored != 1 || changed != 0 || e.UsageSource != UsageRecovered || e.Credits != e.Reserved {
		t.Errorf("got %d entries, %d changes and %+v (%v); want 1, 0 and the recovered entry", stored, changed, e, err)
	}
	if len(b.list) != 1 {
		t.Errorf("got %d bookings, want the recovered one", len(b.list))
	}
}
