package logsinks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

// target is a system that stores entries in memory.
type target struct {
	mu      sync.Mutex
	fails   error // before it stores anything
	forgets error // after it has stored everything
	refuses func(list []*audit.Entry) bool
	last    map[string]*audit.Entry
	batches [][]string
}

func newTarget() *target { return &target{last: map[string]*audit.Entry{}} }

func (t *target) open(context.Context) (Sender, error) { return t, nil }
func (t *target) Close()                               {}

func (t *target) Send(_ context.Context, list []*audit.Entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fails != nil {
		return t.fails
	}
	if t.refuses != nil && t.refuses(list) {
		return &RefusedError{errors.New("refused")}
	}
	var batch []string
	for _, e := range list {
		t.last[e.RequestID] = e
		batch = append(batch, e.RequestID)
	}
	t.batches = append(t.batches, batch)
	err := t.forgets
	t.forgets = nil
	return err
}

func (t *target) set(change func(*target)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

func (t *target) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Keys(t.last))
}

// server is a node with its log and a sink.
type server struct {
	t    *testing.T
	node *nodes.Node
	log  *audit.Log
	sink *Sink
}

func newServer(t *testing.T, d *db.DB, to *target) *server {
	t.Helper()
	node, err := nodes.Join(t.Context(), d, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	g := db.NewGroup(d)
	t.Cleanup(g.Stop)
	s := &server{t, node, audit.NewLog(g, node, func(context.Context, *db.Tx, []audit.Settlement) error { return nil }),
		&Sink{Name: "test", DB: d, Node: node, Open: to.open, Now: time.Now}}
	s.check(s.log.StartFeed(t.Context(), d))
	return s
}

func (s *server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// raise moves the floor past all IDs that exist, and returns when new ones are above it.
func (s *server) raise() {
	s.t.Helper()
	to := time.Now().Add(2 * time.Millisecond)
	s.check(s.log.RaiseFloor(s.t.Context(), s.sink.DB, to))
	for ids.New(ids.Request) <= ids.Floor(ids.Request, to.Add(time.Millisecond)) {
		runtime.Gosched()
	}
}

// worker takes over the sink, as after a crash of the last worker.
func (s *server) worker() *worker {
	s.t.Helper()
	_, err := s.write("DELETE FROM meta WHERE name LIKE 'log!_sink!_%' ESCAPE '!'")
	s.check(err)
	w := &worker{Sink: s.sink, claim: &nodes.Claim{DB: s.sink.DB, Row: "log_sink_test_claim", Node: s.node.ID, Now: time.Now}}
	if taken, err := w.claim.Take(s.t.Context()); err != nil || !taken {
		s.t.Fatalf("got no claim (%v)", err)
	}
	w.position, err = w.register(s.t.Context())
	s.check(err)
	w.sender, err = w.Open(s.t.Context())
	s.check(err)
	return w
}

func (s *server) write(statement string, args ...any) (n int64, err error) {
	err = s.sink.DB.Write(s.t.Context(), func(tx *db.Tx) error {
		n, err = tx.Exec(s.t.Context(), statement, args...)
		return err
	})
	return n, err
}

// start starts the sink before the first entry.
func (s *server) start(others ...*server) {
	s.t.Helper()
	w := s.worker()
	for _, other := range append(others, s) {
		other.raise()
	}
	_, err := w.sendNext(s.t.Context())
	s.check(err)
	if w.position == "" {
		s.t.Fatal("the sink has not started")
	}
}

func (s *server) open() *audit.Record {
	return s.log.Open(audit.Entry{RequestID: ids.New(ids.Request), Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}, KeyID: "key", Model: "m", CreatedAt: time.Now()})
}

func (s *server) settle(r *audit.Record) string {
	s.t.Helper()
	r.Settle(func(e *audit.Entry) { e.Status, e.Credits = 200, credits.Credit })
	s.check(r.Settled(10 * time.Second))
	return r.Entry().RequestID
}

// drain sends everything.
func (w *worker) drain(ctx context.Context) error {
	for {
		more, err := w.sendNext(ctx)
		if err != nil {
			return err
		}
		if !more {
			return w.sendPending(ctx)
		}
	}
}

// TestEveryEntryIsSentWithItsLastValues lets two nodes write entries that take from no time to longer than their
// floor, in all ways, while workers crash before and after a batch is stored.
func TestEveryEntryIsSentWithItsLastValues(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		servers := []*server{newServer(t, d, to), newServer(t, d, to)}
		servers[0].start(servers[1])
		var writing sync.WaitGroup
		var left atomic.Int64
		for n := range 8 {
			s := servers[n%2]
			left.Add(1)
			writing.Go(func() {
				defer left.Add(-1)
				for range 40 {
					s.writeEntry()
				}
			})
		}
		for _, s := range servers {
			writing.Go(func() {
				for left.Load() > 0 {
					s.raise()
				}
			})
		}
		crashes := 0
		for w := servers[0].worker(); left.Load() > 0; {
			switch crash := rand.IntN(6); crash {
			case 0:
				to.set(func(to *target) { to.forgets = errors.New("crash") })
			case 1:
				to.set(func(to *target) { to.fails = errors.New("crash") })
			}
			if err := w.drain(t.Context()); err != nil {
				crashes++
				w = servers[crashes%2].worker()
			}
			to.set(func(to *target) { to.fails, to.forgets = nil, nil })
		}
		writing.Wait()
		for _, s := range servers {
			s.raise()
		}
		w := servers[0].worker()
		servers[0].check(w.drain(t.Context()))
		stored, err := audit.ReadBetween(t.Context(), d, "", ids.Floor(ids.Request, time.Now().Add(time.Hour)), 10_000)
		servers[0].check(err)
		if len(stored) != 8*40 || len(to.ids()) != len(stored) {
			t.Errorf("got %d of %d entries after %d crashes, want all of 320", len(to.ids()), len(stored), crashes)
		}
		for _, e := range stored {
			if got := to.last[e.RequestID]; got == nil || got.Credits != e.Credits || got.Tenant != e.Tenant || !got.Settled {
				t.Errorf("got %+v, want %+v", got, e)
			}
		}
		if status, err := w.ReadStatus(t.Context()); err != nil || status.Pending != 0 || status.Lag != 0 {
			t.Errorf("got %+v (%v), want nothing left", status, err)
		}
	})
}

// writeEntry writes an entry in one of the ways that the server does.
func (s *server) writeEntry() {
	pause := func() { time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) }
	r := s.open()
	switch rand.IntN(4) {
	case 0: // a short request
		pause()
		s.settle(r)
	case 1: // a stream
		s.check(r.Durable(10 * time.Second))
		pause()
		s.settle(r)
	case 2: // a change
		pause()
		s.check(s.sink.DB.Write(s.t.Context(), func(tx *db.Tx) error {
			return r.SettleIn(s.t.Context(), tx, func(e *audit.Entry) { e.Status = 201 })
		}))
	case 3: // a job
		id := s.settle(r)
		pause()
		s.check(s.sink.DB.Write(s.t.Context(), func(tx *db.Tx) error {
			_, err := audit.Amend(s.t.Context(), tx, id, func(e *audit.Entry) { e.Credits = 7 * credits.Credit })
			return err
		}))
	}
}

func TestOpenEntryHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s := newServer(t, d, to)
		s.start()
		stream := s.open()
		s.check(stream.Durable(10 * time.Second))
		later := s.settle(s.open())
		s.raise()
		w := s.worker()
		s.check(w.drain(t.Context()))
		if got := to.ids(); !slices.Equal(got, []string{later}) {
			t.Errorf("got %v, want %s, which is settled", got, later)
		}
		s.settle(stream)
		s.check(w.drain(t.Context()))
		if got := to.ids(); len(got) != 2 {
			t.Errorf("got %v, want both entries", got)
		}
		s.check(w.drain(t.Context()))
		if len(to.batches) != 2 {
			t.Errorf("got batches %v, want each entry once", to.batches)
		}
	})
}

func TestEntriesOfDeadNodeAreSentAfterItsEviction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s, dead := newServer(t, d, to), newServer(t, d, to)
		s.start(dead)
		stream := dead.open()
		s.check(stream.Durable(10 * time.Second))
		s.settle(s.open())
		s.raise()
		w := s.worker()
		s.check(w.drain(t.Context()))
		if got := to.ids(); len(got) != 0 {
			t.Errorf("got %v beyond the floor of a node that may insert more", got)
		}
		s.check(dead.node.Leave(t.Context())) // has the same effect as an eviction
		if n, err := s.log.Recover(t.Context(), d); err != nil || n != 1 {
			t.Fatalf("recovered %d entries (%v), want 1", n, err)
		}
		s.check(w.drain(t.Context()))
		if got := to.ids(); len(got) != 2 || to.last[stream.Entry().RequestID].UsageSource != audit.UsageRecovered {
			t.Errorf("got %v, want the recovered entry and another one", got)
		}
	})
}

func TestRejectedEntriesAreCountedAndNotSentAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s := newServer(t, d, to)
		s.start()
		s.settle(s.open())
		s.settle(s.open())
		s.raise()
		to.forgets = fmt.Errorf("collector: %w", &RejectedError{1, "too large"})
		w := s.worker()
		for range 2 {
			s.check(w.drain(t.Context()))
		}
		if len(to.batches) != 1 {
			t.Errorf("got batches %v, want one", to.batches)
		}
		if err := testutil.CollectAndCompare(List{s.sink}, strings.NewReader(`
# HELP turnpike_log_sink_rejected_total Sent entries of the request log that the collector rejected, by this node.
# TYPE turnpike_log_sink_rejected_total counter
turnpike_log_sink_rejected_total{sink="test"} 1
`), "turnpike_log_sink_rejected_total"); err != nil {
			t.Error(err)
		}
		if status, err := w.ReadStatus(t.Context()); err != nil || status.FailedAt != nil || status.Sent != 2 || status.Pending != 0 {
			t.Errorf("got %+v (%v), want 2 entries sent and no failure", status, err)
		}
	})
}

func (s *server) wantRejected(want int64) {
	s.t.Helper()
	if got := s.sink.rejected.Load(); got != want {
		s.t.Errorf("%d entries count as rejected, want %d", got, want)
	}
}

func TestBatchThatIsTooLargeIsSplit(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s := newServer(t, d, to)
		s.start()
		var want []string
		for range 10 {
			want = append(want, s.settle(s.open()))
		}
		slices.Sort(want)
		s.raise()
		to.refuses = func(list []*audit.Entry) bool { return len(list) > 3 }
		w := s.worker()
		s.check(w.drain(t.Context()))
		if got := slices.Concat(to.batches...); !slices.Equal(got, want) {
			t.Errorf("got %v, want each of %v once and in order", to.batches, want)
		}
		s.wantRejected(0)
	})
}

func TestRefusedEntryHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s := newServer(t, d, to)
		s.start()
		var all []string
		for range 10 {
			all = append(all, s.settle(s.open()))
		}
		refused := all[4]
		s.raise()
		to.refuses = func(list []*audit.Entry) bool {
			return slices.ContainsFunc(list, func(e *audit.Entry) bool { return e.RequestID == refused })
		}
		w := s.worker()
		for range 2 {
			s.check(w.drain(t.Context()))
		}
		if got := to.ids(); len(got) != 9 || slices.Contains(got, refused) {
			t.Errorf("got %v, want all of %v but %s", got, all, refused)
		}
		s.wantRejected(1)
		if status, err := w.ReadStatus(t.Context()); err != nil || status.FailedAt != nil || status.Lag != 0 {
			t.Errorf("got %+v (%v), want no failure and nothing left", status, err)
		}
		refused = s.settle(s.open()) // alone in its batch
		s.raise()
		s.check(w.drain(t.Context()))
		s.wantRejected(2)
	})
}

// TestSystemThatRefusesEverythingGetsItLater: it isn't a collector, or its settings are wrong.
func TestSystemThatRefusesEverythingGetsItLater(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		s := newServer(t, d, to)
		s.start()
		to.refuses = func([]*audit.Entry) bool { return true }
		var refused *RefusedError
		for n := range 3 { // alone, and together
			s.settle(s.open())
			s.raise()
			if err := s.worker().drain(t.Context()); !errors.As(err, &refused) {
				t.Errorf("got %v with %d entries, want a failure", err, n+1)
			}
		}
		s.wantRejected(0)
		to.refuses = nil
		w := s.worker()
		s.check(w.drain(t.Context()))
		if got := to.ids(); len(got) != 3 {
			t.Errorf("got %v, want all 3 entries", got)
		}
		to.refuses = func([]*audit.Entry) bool { return true }
		s.settle(s.open())
		s.raise()
		s.check(w.drain(t.Context())) // it has just accepted others
		s.settle(s.open())
		s.raise()
		if err := w.drain(t.Context()); !errors.As(err, &refused) {
			t.Errorf("got %v for the second entry in a row, want a failure", err)
		}
		s.wantRejected(1)
	})
}

func TestBatchesAreLimitedByTheirSize(t *testing.T) {
	t.Parallel()
	list := make([]*audit.Entry, batchEntries)
	for i := range list {
		list[i] = &audit.Entry{TokenMetadata: make([]byte, 8<<10)}
	}
	list[5].TokenMetadata = make([]byte, 2*batchBytes)
	parts := split(list)
	if got := slices.Concat(parts...); !slices.Equal(got, list) {
		t.Fatal("the parts aren't the batch")
	}
	for _, part := range parts {
		size := 0
		for _, e := range part {
			size += len(e.TokenMetadata)
		}
		if size > batchBytes && len(part) > 1 || len(part) == 0 {
			t.Errorf("a part has %d entries of %d bytes", len(part), size)
		}
	}
	if len(parts) > 6 || len(split(list[:1])) != 1 || split(nil) != nil {
		t.Errorf("got %d parts, want as few as possible", len(parts))
	}
}

func TestFailedSinkBacksOffOnAllNodesAndContinues(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		to := newTarget()
		first, second := newServer(t, d, to), newServer(t, d, to)
		first.start(second)
		id := first.settle(first.open())
		first.raise()
		second.raise()
		_, err := first.write("DELETE FROM meta WHERE name = 'log_sink_test_claim'")
		first.check(err)
		now := time.Now()
		for _, s := range []*server{first, second} {
			s.sink.Now = func() time.Time { return now }
		}
		to.fails = errors.New("broker is down")
		if err := first.sink.runOnce(t.Context()); !errors.Is(err, to.fails) {
			t.Fatalf("got %v, want the failure", err)
		}
		if err := second.sink.runOnce(t.Context()); err != nil {
			t.Errorf("got %v during the backoff, want no attempt", err)
		}
		status, err := second.sink.ReadStatus(t.Context())
		if err != nil || status.FailedAt == nil || status.Failure != "broker is down" || status.Lag <= 0 {
			t.Errorf("got %+v (%v), want the failure", status, err)
		}
		if _, err := second.sink.Check(t.Context()); err == nil {
			t.Error("doctor reports no failure")
		}
		to.set(func(to *target) { to.fails = nil })
		now = now.Add(firstBackoff + time.Second)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- second.sink.runOnce(ctx) }()
		for begun := time.Now(); ; time.Sleep(time.Millisecond) {
			if status, err = first.sink.ReadStatus(t.Context()); err != nil || status.FailedAt == nil {
				break
			}
			if time.Since(begun) > 10*time.Second {
				t.Fatal("the failure is still reported")
			}
		}
		stop()
		if err := errors.Join(err, <-done); err != nil {
			t.Fatal(err)
		}
		if got := to.ids(); !slices.Equal(got, []string{id}) || status.Sent != 1 {
			t.Errorf("got %v and %+v, want %s", got, status, id)
		}
	})
}

func TestBackoffGrowsToAMinute(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for n := range int64(7) {
		got = append(got, backoff(n))
	}
	want := []time.Duration{5 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute}
	if !slices.Equal(got, want) || backoff(1<<40) != time.Minute {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestUnsentEntriesAreKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newServer(t, d, newTarget())
		limit := time.Now().Add(time.Hour)
		unsent := func() time.Time {
			t.Helper()
			at, err := audit.Unsent(t.Context(), d, limit)
			s.check(err)
			return at
		}
		if got := unsent(); !got.Equal(limit) {
			t.Errorf("got %v without sinks, want %v", got, limit)
		}
		s.start()
		stream := s.open()
		s.check(stream.Durable(10 * time.Second))
		s.raise()
		w := s.worker()
		if got := unsent(); !got.Equal(ids.Time(w.position)) {
			t.Errorf("got %v, want the position", got)
		}
		s.check(w.drain(t.Context()))
		if got := unsent(); !got.Equal(ids.Time(stream.Entry().RequestID)) {
			t.Errorf("got %v, want the time of the open entry", got)
		}
	})
}

func TestForgottenSinkLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newServer(t, d, newTarget())
		s.start()
		s.check(s.open().Durable(10 * time.Second))
		s.raise()
		w := s.worker()
		s.check(w.drain(t.Context()))
		purge := func(now time.Time) {
			t.Helper()
			s.check(d.Write(t.Context(), func(tx *db.Tx) error {
				_, err := Purge(t.Context(), tx, now, 100)
				return err
			}))
		}
		purge(time.Now())
		if status, err := w.ReadStatus(t.Context()); err != nil || !status.Started || status.Pending != 1 {
			t.Errorf("got %+v (%v), want a sink with a pending entry", status, err)
		}
		purge(time.Now().Add(forgetAfter + time.Hour))
		if status, err := w.ReadStatus(t.Context()); err != nil || status.Started || status.Pending != 0 {
			t.Errorf("got %+v (%v), want none", status, err)
		}
		if n, err := db.Count(t.Context(), d, "log_sink_pending"); err != nil || n != 0 {
			t.Errorf("got %d pending entries (%v), want none", n, err)
		}
		if err := w.store(t.Context(), w.position, 0, func(*db.Tx) error { return nil }); !errors.Is(err, errForgotten) {
			t.Errorf("got %v, want that the sink is forgotten", err)
		}
	})
}
