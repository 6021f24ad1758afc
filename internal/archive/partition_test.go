package archive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

// dailyWorld has a partition for each archived day, which may be dropped now.
func dailyWorld(t *testing.T) (w *world, list []*audit.Entry) {
	t.Helper()
	w = newWorld(t, dbtest.Open(t, dbtest.Address(t, "postgres")))
	requests := audit.Requests
	requests.Span = db.Day
	if err := requests.Prepare(t.Context(), w.DB, firstDay); err != nil {
		t.Fatal(err)
	}
	list = sample(60)
	insert(t, w.DB, list)
	w.DatabaseDays = 5
	w.now = lastDay.Add(25 * time.Hour)
	w.run()
	if n := w.stored(); n != 60 {
		t.Fatalf("the database has %d entries, want all", n)
	}
	w.now = lastDay.AddDate(0, 0, 10)
	return w, list
}

// partitions lists the partitions of the days of the test.
func (w *world) partitions() string {
	w.t.Helper()
	names, err := db.List(w.t.Context(), w.DB, db.Value[string], "SELECT substr(c.relname, 15) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass('requests') AND c.relname < 'requests_2026_04_02' ORDER BY 1")
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func TestVerifiedDayIsDroppedAsAPartition(t *testing.T) {
	t.Parallel()
	w, _ := dailyWorld(t)
	// No row is deleted: this would fail.
	w.exec("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''a row was deleted''; END'")
	w.exec("CREATE TRIGGER refuse BEFORE DELETE ON requests FOR EACH ROW EXECUTE FUNCTION refuse()")
	want := w.everything()
	w.now = lastDay.AddDate(0, 0, 4) // only the first two days are past their time in the database
	w.run()
	if got := w.everything(); w.partitions() != "04_01" || w.stored() != 20 || !slices.Equal(got, want) {
		t.Errorf("the log differs with two days in the archive; the database has %d entries in %s", w.stored(), w.partitions())
	}
	w.now = lastDay.AddDate(0, 0, 10)
	w.run()
	if got := w.everything(); w.partitions() != "" || w.stored() != 0 || !slices.Equal(got, want) {
		t.Errorf("the log differs in the archive; the database has %d entries in %s", w.stored(), w.partitions())
	}
}

// TestPartitionThatChangedIsNotDropped changes the first day at different moments.
func TestPartitionThatChangedIsNotDropped(t *testing.T) {
	t.Parallel()
	entry := func(t *testing.T, w *world, settled bool) *audit.Entry {
		e := sample(1)[0]
		e.CreatedAt, e.Settled = firstDay.Add(time.Minute), settled
		e.RequestID = idAt(e.CreatedAt)
		insert(t, w.DB, []*audit.Entry{e})
		return e
	}
	amend := func(t *testing.T, w *world, id string) {
		err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := audit.Amend(t.Context(), tx, id, func(e *audit.Entry) { e.Status, e.ErrorCode = 502, "upstream_error" })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(t *testing.T, w *world, list []*audit.Entry){
		"a late entry":    func(t *testing.T, w *world, _ []*audit.Entry) { entry(t, w, true) },
		"a changed entry": func(t *testing.T, w *world, list []*audit.Entry) { amend(t, w, list[0].RequestID) },
	} {
		for when, prefix := range map[string]string{"before": "", "when it is read back": "manifests/2026-03-30", "when its last file is read back": "log/day=2026-03-30/workspace=ws_b"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				w, list := dailyWorld(t)
				var want []string
				var changed bool
				whole := w.storage
				w.storage = &hooked{storage: whole, open: func(key string) error {
					if !changed && strings.HasPrefix(key, prefix) {
						changed = true
						change(t, w, list)
						want = w.everything()
					}
					return nil
				}}
				if prefix == "" {
					changed = true
					change(t, w, list)
					want = w.everything()
				}
				w.run()
				w.storage = whole
				if rec, err := w.find(t.Context(), dayOf(firstDay)); err != nil || rec.generation != 2 {
					t.Errorf("got %+v, %v, want that the day was archived again", rec, err)
				}
				if got := w.everything(); !changed || w.stored() != 0 || w.partitions() != "" || !slices.Equal(got, want) {
					t.Errorf("the log differs in the archive, and the database has %d entries in %s", w.stored(), w.partitions())
				}
			})
		}
	}
	t.Run("after it was read", func(t *testing.T) { // before the lock
		t.Parallel()
		w, list := dailyWorld(t)
		by := &worker{Archive: w.Archive, claim: &nodes.Claim{DB: w.DB, Row: claimRow, Node: "node_1", Now: func() time.Time { return w.now }}}
		if taken, err := by.claim.Take(t.Context()); err != nil || !taken {
			t.Fatal(taken, err)
		}
		rec, err := w.find(t.Context(), dayOf(firstDay))
		if err != nil {
			t.Fatal(err)
		}
		p, err := audit.Requests.OfDay(t.Context(), w.DB, firstDay)
		if err != nil || p == nil {
			t.Fatal(p, err)
		}
		watched, err := p.Watch(t.Context(), w.DB)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := by.storedDigest(t.Context(), rec.day)
		if err != nil || stored.entries != 20 {
			t.Fatal(stored, err)
		}
		amend(t, w, list[0].RequestID)
		if err := watched.Drop(t.Context(), w.DB, func(tx *db.Tx) error { return by.setStateIn(t.Context(), tx, rec.day, dayDropped) }); !errors.Is(err, db.ErrChanged) {
			t.Errorf("got %v, want %v", err, db.ErrChanged)
		}
		if now, err := w.find(t.Context(), rec.day); err != nil || now.state != dayArchived || w.stored() != 60 {
			t.Errorf("got %+v, %v, and %d entries, want all", now, err, w.stored())
		}
	})
	t.Run("an open entry", func(t *testing.T) {
		t.Parallel()
		w, _ := dailyWorld(t)
		var open *audit.Entry
		whole := w.storage
		w.storage = &hooked{storage: whole, open: func(string) error {
			if open == nil {
				open = entry(t, w, false)
			}
			return nil
		}}
		w.run()
		if n := w.stored(); n != 61 {
			t.Errorf("the database has %d entries, want all 61", n)
		}
		w.exec("UPDATE requests SET settled = TRUE")
		w.run()
		if e, err := w.Get(t.Context(), w.DB, visibility.Filter{Tenant: open.Tenant}, open.RequestID); err != nil || w.stored() != 0 {
			t.Errorf("got %v, %v, and the database has %d entries", e, err, w.stored())
		}
	})
	t.Run("an entry that keeps changing", func(t *testing.T) {
		t.Parallel()
		w, list := dailyWorld(t)
		w.storage = &hooked{storage: w.storage, open: func(string) error {
			amend(t, w, list[0].RequestID)
			return nil
		}}
		w.wantRefusal(60, errChanged.Error())
	})
}

// TestDifferenceOfAnyColumnKeepsThePartition changes what no sum shows, in files that are intact.
func TestDifferenceOfAnyColumnKeepsThePartition(t *testing.T) {
	t.Parallel()
	e := sample(1)[0]
	e.InputTokens, e.CachedTokens = nil, number(0)
	sum := func(change func(e *audit.Entry)) (d digest) {
		other := *e
		change(&other)
		d.add(&other)
		return d
	}
	same := sum(func(*audit.Entry) {})
	if same != sum(func(e *audit.Entry) { e.CreatedAt = e.CreatedAt.UTC() }) {
		t.Error("the zone of a time counts")
	}
	for name, change := range map[string]func(e *audit.Entry){
		"a text":                   func(e *audit.Entry) { e.UserAgent += "x" },
		"two texts":                func(e *audit.Entry) { e.Method, e.Path = "POST/", "v1/chat/completions" },
		"a status":                 func(e *audit.Entry) { e.Status++ },
		"a count that is 0":        func(e *audit.Entry) { e.InputTokens = number(0) },
		"a count that is missing":  func(e *audit.Entry) { e.CachedTokens = nil },
		"the columns of one count": func(e *audit.Entry) { e.CachedTokens, e.InputTokens = e.InputTokens, e.CachedTokens },
		"the message of a failure": func(e *audit.Entry) {
			e.Failure = []byte(strings.Replace(string(e.Failure), "Wait", "Go", 1))
		},
	} {
		if same == sum(change) {
			t.Errorf("%s makes no difference", name)
		}
	}
	if both := (digest{}); true {
		both.add(e)
		both.add(e)
		if both == same || both == (digest{}) {
			t.Error("an entry that is there twice makes no difference")
		}
	}
}

// TestInterruptedDropLosesNothing stops it at each read of the archive, and when another node takes over.
func TestInterruptedDropLosesNothing(t *testing.T) {
	t.Parallel()
	w, _ := dailyWorld(t)
	want := w.everything()
	whole := w.storage
	for reads := 0; ; reads++ {
		left := reads
		w.storage = &hooked{storage: whole, open: func(string) error {
			if left--; left < 0 {
				return errBroken
			}
			return nil
		}}
		w.now = w.now.Add(time.Hour) // past the pause after a failure
		err := w.RunOnce(t.Context())
		w.storage = whole
		if got := w.everything(); !slices.Equal(got, want) {
			t.Fatalf("the log differs after failure %d: %v", reads, err)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
	}
	if w.stored() != 0 || w.partitions() != "" {
		t.Errorf("the database has %d entries in %s", w.stored(), w.partitions())
	}

	w, _ = dailyWorld(t)
	w.storage = &hooked{storage: w.storage, open: func(string) error {
		w.exec("UPDATE meta SET value = $2 WHERE name = $1", claimRow, fmt.Sprintf("%020d node_2", w.now.Add(time.Hour).UnixMicro()))
		return nil
	}}
	w.wantRefusal(60, nodes.ErrClaimLost.Error())
}

// TestPartitionInUseIsDroppedLater: a backup delays it without a failure. What was compared isn't compared again.
func TestPartitionInUseIsDroppedLater(t *testing.T) {
	t.Parallel()
	w, _ := dailyWorld(t)
	use := func(do func()) {
		err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
			_, err := db.Count(t.Context(), tx, "requests")
			do()
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	use(w.run)
	if n := w.stored(); n != 60 {
		t.Errorf("%d entries are left, want all", n)
	}
	// The backup begins during the comparison.
	whole := w.storage
	var begin sync.Once
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	reads := map[string]int{}
	w.storage = &hooked{storage: whole, open: func(key string) error {
		reads[key]++
		begin.Do(func() {
			go use(func() {
				close(begun)
				<-end
				close(ended)
			})
			<-begun
		})
		return nil
	}}
	w.run()
	if n := w.stored(); n != 60 {
		t.Errorf("%d entries are left, want all", n)
	}
	close(end)
	<-ended
	w.run()
	if n := w.stored(); n != 0 {
		t.Errorf("the database still has %d entries", n)
	}
	for key, n := range reads {
		if n > 1 {
			t.Errorf("%s was read %d times, want once", key, n)
		}
	}
}

// TestPurgedDayIsDeleted: while the archive was off, the purge deleted some entries of a day.
func TestPurgedDayIsDeleted(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) *world{
		"partition": func(t *testing.T) *world {
			w, _ := dailyWorld(t)
			return w
		},
		"rows": func(t *testing.T) *world {
			w, _ := archivedWorld(t)
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			want := w.everything()
			err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
				_, err := audit.Purge(t.Context(), tx, firstDay.Add(30*time.Hour), 1000) // a day, and a part of the next one
				return err
			})
			if err != nil || w.stored() == 0 || w.stored() == 60 {
				t.Fatalf("%d entries are left (%v), want some", w.stored(), err)
			}
			w.now = lastDay.AddDate(0, 0, 10)
			w.run()
			if got := w.everything(); w.stored() != 0 || !slices.Equal(got, want) {
				t.Errorf("the log differs in the archive, and the database has %d entries", w.stored())
			}
		})
	}
}

// TestUnsentEntryKeepsItsDay: an entry changes while its day is compared, and a log sink hasn't sent the change.
func TestUnsentEntryKeepsItsDay(t *testing.T) {
	t.Parallel()
	w, list := dailyWorld(t)
	whole, changed := w.storage, false
	w.storage = &hooked{storage: whole, open: func(string) error {
		if !changed {
			changed = true
			w.exec("UPDATE requests SET status = 599 WHERE id = $1", list[0].RequestID)
			w.exec("INSERT INTO log_sink_pending (sink, request_id, version) VALUES ('ls_1', $1, 1)", list[0].RequestID)
		}
		return nil
	}}
	w.run()
	if n := w.stored(); n != 60 {
		t.Errorf("%d entries are left before the sink has sent one of them, want all", n)
	}
	w.exec("DELETE FROM log_sink_pending")
	w.run()
	if n := w.stored(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestLateResponseToADropIsNoFailure: PostgreSQL deletes the files of a large partition before it responds.
func TestLateResponseToADropIsNoFailure(t *testing.T) {
	t.Parallel()
	w, _ := dailyWorld(t)
	rec, err := w.find(t.Context(), dayOf(firstDay))
	if err != nil {
		t.Fatal(err)
	}
	inDoubt := fmt.Errorf("commit: %w", db.ErrInDoubt)
	by := &worker{Archive: w.Archive}
	if err := by.confirm(t.Context(), rec.day, inDoubt); !errors.Is(err, db.ErrInDoubt) {
		t.Errorf("got %v for a day that wasn't dropped", err)
	}
	w.run()
	if err := by.confirm(t.Context(), rec.day, inDoubt); err != nil {
		t.Errorf("got %v for a day that was dropped", err)
	}
}

// TestReadsAndWritesContinueWhileDaysAreDropped reads the log across the border, and inserts late entries and such
// of other days.
func TestReadsAndWritesContinueWhileDaysAreDropped(t *testing.T) {
	t.Parallel()
	w, list := dailyWorld(t)
	want := w.all(visibility.Filter{Tenant: tenants[0]}, audit.Filter{Until: lastDay}, db.Page{Limit: 7})
	stop, reading := make(chan struct{}), make(chan struct{}, 1)
	var all sync.WaitGroup
	repeat := func(do func() error) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := do(); err != nil {
					t.Error(err)
					return
				}
				select {
				case reading <- struct{}{}:
				default:
				}
			}
		})
	}
	for _, asc := range []bool{false, true} {
		ordered := slices.Clone(want)
		if asc {
			slices.Reverse(ordered)
		}
		repeat(func() error {
			var got []string
			for page := (db.Page{Limit: 7, Asc: asc}); ; {
				found, err := w.List(t.Context(), w.DB, visibility.Filter{Tenant: tenants[0]}, audit.Filter{Until: lastDay}, page)
				if err != nil {
					return err
				}
				for _, e := range found.Rows {
					got = append(got, show(e))
				}
				if !found.More {
					break
				}
				page.After = found.Cursor
			}
			if !slices.Equal(got, ordered) {
				return fmt.Errorf("the log has %d entries, want %d", len(got), len(ordered))
			}
			return nil
		})
	}
	<-reading
	var added []*audit.Entry
	written := make(chan struct{})
	all.Go(func() {
		defer close(written)
		for i := range 20 {
			e := sample(1)[0]
			e.Tenant = tenants[1+i%2] // the first one is compared
			if i%4 > 0 {
				e.CreatedAt = lastDay.AddDate(0, 0, 9)
			}
			e.RequestID = idAt(e.CreatedAt)
			insert(t, w.DB, []*audit.Entry{e})
			added = append(added, e)
		}
	})
	for done := false; !done; w.now = w.now.Add(time.Hour) {
		select {
		case <-written:
			done = true
		default:
		}
		if err := w.RunOnce(t.Context()); err != nil && !errors.Is(err, errChanged) {
			t.Error(err)
		}
	}
	<-reading
	close(stop)
	all.Wait()
	w.now = w.now.AddDate(0, 0, 10)
	w.run()
	if w.stored() != 0 || w.partitions() != "" {
		t.Errorf("the database has %d entries in %s", w.stored(), w.partitions())
	}
	for _, tenant := range tenants {
		if got := w.all(visibility.Filter{Tenant: tenant}, audit.Filter{}, db.Page{Limit: 100}); len(got) != countOf(tenant, list, added) {
			t.Errorf("%v has %d entries, want %d", tenant, len(got), countOf(tenant, list, added))
		}
	}
}
