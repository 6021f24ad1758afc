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

// hold is a reservation that remembers its end.
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

// ledger is a Book that fails as long as it is told to, and remembers the rest.
type ledger struct {
	mu    sync.Mutex
	fails error
	list  []Booking
}

func (b *ledger) book(_ context.Context, _ *db.Tx, list []Booking) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails != nil {
		return b.fails
	}
	b.list = append(b.list, list...)
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

// live is a call that was paid for in advance.
func live(h Hold) Entry {
	return Entry{RequestID: ids.New(ids.Request), WorkspaceID: "ws", Environment: "live", KeyID: "key", Model: "m", CreatedAt: time.Now(),
		Reserved: 10 * credits.Credit, Hold: h}
}

func costing(amount credits.Micro) func(*Entry) {
	return func(e *Entry) { e.Status, e.Credits, e.UsageSource = 200, amount, UsageProvider }
}

func told503(e *Entry) { e.Status, e.ErrorCode = 503, "storage_unavailable" }

// TestWhatIsOfferedTwiceIsBookedOnce: the answer to a commit was lost.
func TestWhatIsOfferedTwiceIsBookedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := &ledger{}
		l, _ := newTestLog(t, d, b)
		e := live(&hold{})
		costing(4 * credits.Credit)(&e)
		e.Settled = true
		r := l.Open(e)
		for range 2 {
			if err := d.Write(t.Context(), func(tx *db.Tx) error { return l.writeOnce(t.Context(), tx, []*Record{r}) }); err != nil {
				t.Fatal(err)
			}
		}
		if len(b.list) != 2 || b.list[0].Old != nil {
			t.Fatalf("booked as %+v", b.list)
		}
		if old := b.list[1].Old; old == nil || old.Credits != 4*credits.Credit {
			t.Errorf("booked a second time as if it were the first: %+v", b.list[1])
		}
	})
}

// TestARefusedCallGivesBackWhatWasSetAside, at once when it cannot have been
// written, and else when it is known to be written as refused.
func TestARefusedCallGivesBackWhatWasSetAside(t *testing.T) {
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
				r.Settle(costing(4 * credits.Credit)) // with the intent, in one write
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
				if err := l.settlements.Add(r).WaitFor(5 * time.Second); err != nil { // behind what was kept
					t.Fatal(err)
				}
				got, err := Get(t.Context(), d, visibility.Filter{WorkspaceID: "ws", Environment: "live"}, r.entry.RequestID)
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

// TestACallThatWasRefusedWhileItWaitedGivesBackWhatWasSetAside: its intent
// fails when nobody waits for it any more.
func TestACallThatWasRefusedWhileItWaitedGivesBackWhatWasSetAside(t *testing.T) {
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
	r.Start(0)
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

// TestAWriteInDoubtIsWaitedFor: its commit may be on its way, and what it has
// booked must not be booked again.
func TestAWriteInDoubtIsWaitedFor(t *testing.T) {
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
			time.Sleep(200 * time.Millisecond)
			return err
		})
	}()
	<-inserted
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		again := e
		if old, there, err := l.settledBefore(t.Context(), tx, &again); err != nil || !there || old == nil || old.Credits != e.Credits {
			t.Errorf("it finds %+v, there %t (%v)", old, there, err)
		}
		return nil
	})
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
}

// TestACallOfAFormerLifeIsNotWritten: what was set aside for it went to others,
// and nobody has charged it. The calls beside it are.
func TestACallOfAFormerLifeIsNotWritten(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.Address(t, "postgres"))
	l, node := newTestLog(t, d, &ledger{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { node.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	rejoined := make(chan struct{})
	node.OnRejoin(func(int) { close(rejoined) })

	h := &hold{}
	former := l.Open(live(h))
	late, err := nodes.Join(t.Context(), d, func() time.Time { return time.Now().Add(time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	if dead, err := late.Bury(t.Context(), node.ID, func(context.Context, *db.Tx) error { return nil }); err != nil || !dead {
		t.Fatalf("dead: %t, %v", dead, err)
	}
	select {
	case <-rejoined: // with its next heartbeat
	case <-time.After(20 * time.Second):
		t.Fatal("the node does not notice that it was buried")
	}
	for end := time.Now().Add(5 * time.Second); !node.Sure() && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	present := l.Open(live(&hold{}))
	former.Start(0)
	present.Start(0)
	if err := present.Durable(5 * time.Second); err != nil {
		t.Errorf("a call of this life: %v", err)
	}
	if err := former.Durable(5 * time.Second); !errors.Is(err, errGivenAway) {
		t.Errorf("a call of a former life: %v", err)
	}
	// One that was settled before its node knew, as a step of a run that is kept
	// through an outage, is in the log and costs nothing.
	kept := l.Open(live(&hold{}))
	kept.entry.CreatedAt = former.entry.CreatedAt
	costing(credits.Credit)(&kept.entry)
	kept.entry.Settled = true
	if err := d.Write(t.Context(), func(tx *db.Tx) error { return l.write(t.Context(), tx, []*Record{kept}) }); err != nil {
		t.Fatal(err)
	}
	if e, err := Get(t.Context(), d, visibility.Filter{WorkspaceID: "ws", Environment: "live"}, kept.entry.RequestID); err != nil || e.Credits != 0 || e.Status != 503 || !e.Settled {
		t.Errorf("a settled call of a former life is %+v (%v)", e, err)
	}
	former.Refuse(told503)
	if !h.isReleased() {
		t.Error("what was set aside for it is still set aside")
	}
	if _, err := Get(t.Context(), d, visibility.Filter{WorkspaceID: "ws", Environment: "live"}, former.entry.RequestID); err == nil {
		t.Error("a call of a former life is in the log")
	}
}
