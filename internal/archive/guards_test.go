package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/nodes"
	"turnpike/internal/visibility"
)

// archivedWorld has archived days, whose entries are still in the database and may be deleted now.
func archivedWorld(t *testing.T) (w *world, entries int64) {
	t.Helper()
	w = newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	insert(t, w.DB, sample(60))
	w.DatabaseDays = 5
	w.now = lastDay.Add(25 * time.Hour)
	w.run()
	if n := w.stored(); n != 60 {
		t.Fatalf("the database has %d entries, want all", n)
	}
	w.now = lastDay.AddDate(0, 0, 10)
	return w, 60
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	err := w.DB.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), query, args...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// wantRefusal checks that a run deletes no entry.
func (w *world) wantRefusal(entries int64, want string) {
	w.t.Helper()
	err := w.RunOnce(w.t.Context())
	if err == nil || !strings.Contains(err.Error(), want) || w.stored() != entries {
		w.t.Errorf("%d entries are left, want %d, and got %v, want %q", w.stored(), entries, err, want)
	}
}

// TestVerificationReadsTheEntries replaces a file by one that is intact, has the checksum of the manifest, and lacks
// something.
func TestVerificationReadsTheEntries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(list []*audit.Entry) []*audit.Entry
		want   string
	}{
		"an entry is missing":    {func(list []*audit.Entry) []*audit.Entry { return list[1:] }, "nothing is deleted"},
		"a charge differs":       {func(list []*audit.Entry) []*audit.Entry { list[0].Credits++; return list }, "nothing is deleted"},
		"the last entry differs": {func(list []*audit.Entry) []*audit.Entry { list[len(list)-1].RequestID += "0"; return list }, "nothing is deleted"},
		"another tenant":         {func(list []*audit.Entry) []*audit.Entry { list[0].WorkspaceID = "ws_c"; return list }, "is out of place"},
		"another order":          {func(list []*audit.Entry) []*audit.Entry { slices.Reverse(list); return list }, "is out of place"},
	} {
		t.Run(name, func(t *testing.T) {
			w, entries := archivedWorld(t)
			by := &worker{Archive: w.Archive}
			rec, err := w.find(t.Context(), dayOf(firstDay))
			if err != nil {
				t.Fatal(err)
			}
			files, err := by.currentFiles(t.Context(), rec.day, rec.generation)
			if err != nil {
				t.Fatal(err)
			}
			var list []*audit.Entry
			for e, err := range w.archivedEntries(t.Context(), files[:1]) {
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, e)
			}
			p, err := w.newPart(*files[0])
			if err != nil {
				t.Fatal(err)
			}
			totals, last := files[0].Totals, files[0].LastID
			for _, e := range c.change(list) {
				if err := p.add(e); err != nil {
					t.Fatal(err)
				}
			}
			p.file.Totals, p.file.LastID = totals, last
			if files[0], err = by.store(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			w.exec("UPDATE log_archive_files SET bytes = $2, sha256 = $3 WHERE object = $1", files[0].Object, files[0].Bytes, files[0].SHA256)
			if err := by.writeManifest(t.Context(), newManifest(rec, files)); err != nil {
				t.Fatal(err)
			}
			w.wantRefusal(entries, c.want)
		})
	}
}

// TestManifestMustHaveTheTotalsOfTheDay covers a day that is being deleted: its entries are no longer compared.
func TestManifestMustHaveTheTotalsOfTheDay(t *testing.T) {
	t.Parallel()
	w, entries := archivedWorld(t)
	w.exec("UPDATE log_archive_days SET state = $1, totals = '{}' WHERE day = $2", string(dayDropping), string(dayOf(firstDay)))
	w.wantRefusal(entries, "isn't what was written")
}

// hooked calls functions before it reads and writes.
type hooked struct {
	storage
	write func(key string)
	open  func(key string) error
}

func (h *hooked) Write(ctx context.Context, key string, from *os.File) error {
	if h.write != nil {
		h.write(key)
	}
	return h.storage.Write(ctx, key, from)
}

func (h *hooked) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	if h.open != nil {
		if err := h.open(key); err != nil {
			return nil, err
		}
	}
	return h.storage.Open(ctx, key)
}

func TestEntriesThatKeepChangingAreNotDeleted(t *testing.T) {
	t.Parallel()
	w, entries := archivedWorld(t)
	first, err := audit.FirstID(t.Context(), w.DB, "")
	if err != nil {
		t.Fatal(err)
	}
	amend := func() { w.exec("UPDATE requests SET credits = credits + 1 WHERE id = $1", first) }
	amend()
	w.storage = &hooked{storage: w.storage, write: func(key string) {
		if strings.HasPrefix(key, "manifests/") { // when the day has been read again
			amend()
		}
	}}
	w.wantRefusal(entries, "the database has")
}

func TestUnreadableManifestIsNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	insert(t, w.DB, sample(60))
	w.now = lastDay.AddDate(0, 0, 10)
	w.storage = &hooked{storage: w.storage, open: func(string) error { return errors.New("no permission") }}
	w.wantRefusal(60, "no permission")
	if got := w.objects(); len(got) > 0 {
		t.Errorf("the archive has %v", got)
	}
}

// TestNodeThatLostItsClaimChangesNothing lets another node take over while this one reads or writes an object.
func TestNodeThatLostItsClaimChangesNothing(t *testing.T) {
	t.Parallel()
	steal := func(w *world) {
		w.exec("UPDATE meta SET value = $2 WHERE name = $1", claimRow, fmt.Sprintf("%020d node_2", w.now.Add(time.Hour).UnixMicro()))
	}
	count := func(w *world, table string) int64 {
		n, err := db.Count(w.t.Context(), w.DB, table)
		if err != nil {
			w.t.Fatal(err)
		}
		return n
	}
	t.Run("while it writes", func(t *testing.T) {
		w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
		insert(t, w.DB, sample(60))
		w.now = lastDay.AddDate(0, 0, 10)
		w.storage = &hooked{storage: w.storage, write: func(string) { steal(w) }}
		w.wantRefusal(60, nodes.ErrClaimLost.Error())
		if n := count(w, "log_archive_files"); n > 0 {
			t.Errorf("it has stored %d files", n)
		}
	})
	t.Run("before it deletes", func(t *testing.T) {
		w, entries := archivedWorld(t)
		w.storage = &hooked{storage: w.storage, open: func(string) error { steal(w); return nil }}
		w.wantRefusal(entries, nodes.ErrClaimLost.Error())
		if n := count(w, "log_archive_days WHERE state <> 'archived'"); n > 0 {
			t.Errorf("it has changed %d days", n)
		}
	})
}

// TestEarlierEntriesAreArchivedFirst adds entries of an earlier day that aren't final yet, so that no day may be deleted.
func TestEarlierEntriesAreArchivedFirst(t *testing.T) {
	t.Parallel()
	w, entries := archivedWorld(t)
	early := sample(1)
	early[0].RequestID, early[0].CreatedAt, early[0].Settled = idAt(firstDay.AddDate(0, 0, -1)), firstDay.AddDate(0, 0, -1), false
	insert(t, w.DB, early)
	w.run()
	if n := w.stored(); n != entries+1 {
		t.Errorf("the database has %d entries, want all %d", n, entries+1)
	}
}

// TestOnlyVerifiedEntriesAreDeleted changes the log after its comparison with the archive.
func TestOnlyVerifiedEntriesAreDeleted(t *testing.T) {
	t.Parallel()
	late := func(w *world, _ *audit.Entry) {
		list := sample(1)
		list[0].CreatedAt = firstDay.Add(time.Minute)
		list[0].RequestID = idAt(list[0].CreatedAt)
		insert(w.t, w.DB, list)
	}
	amend := func(w *world, e *audit.Entry) {
		err := w.DB.Write(w.t.Context(), func(tx *db.Tx) error {
			_, err := audit.Amend(w.t.Context(), tx, e.RequestID, func(e *audit.Entry) { e.Status, e.ErrorCode = 502, "upstream_error" })
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(w *world, first *audit.Entry)
		when   string // the prefix of the object that is being read
	}{
		"a late entry before it is verified":      {late, "manifests/"},
		"a late entry while it is verified":       {late, "log/"},
		"a changed status before it is verified":  {amend, "manifests/"},
		"a changed status while it is verified":   {amend, "log/"},
		"a changed status before it is compared":  {amend, ""},
		"a late entry before the sums are formed": {late, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				w := newWorld(t, d)
				list := sample(60)
				insert(t, d, list)
				w.DatabaseDays = 5
				w.now = lastDay.Add(25 * time.Hour)
				w.run()
				w.now = lastDay.AddDate(0, 0, 10)
				var want []string
				change := func() {
					c.change(w, list[0])
					want = w.everything()
				}
				whole, changed := w.storage, c.when == ""
				if changed {
					change()
				}
				w.storage = &hooked{storage: whole, open: func(key string) error {
					if !changed && strings.HasPrefix(key, c.when) {
						changed = true
						change()
					}
					return nil
				}}
				w.run()
				w.storage = whole
				if got := w.everything(); w.stored() != 0 || !slices.Equal(got, want) {
					t.Errorf("the log differs in the archive, and the database has %d entries", w.stored())
				}
			})
		})
	}
}

// TestLateEntryOfAWrittenTenantIsKept interrupts the second generation of a day that is only in the archive.
func TestLateEntryOfAWrittenTenantIsKept(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		list := sample(300)
		insert(t, d, list)
		w.now = lastDay.AddDate(0, 0, 10)
		w.run()
		late := sample(30)[:10] // of all tenants, on the first day
		insert(t, d, late[:9])
		whole := w.storage
		w.storage = &broken{whole, 1}
		w.now = w.now.Add(time.Hour)
		if err := w.RunOnce(t.Context()); !errors.Is(err, errBroken) {
			t.Fatalf("got %v, want an interruption after the first file", err)
		}
		w.storage = whole
		late[9].Tenant = tenants[0]
		insert(t, d, late[9:])
		w.now = w.now.Add(time.Hour)
		w.run()
		if n := w.stored(); n != 0 {
			t.Errorf("%d late entries stay in the database", n)
		}
		for _, tenant := range tenants {
			if got := w.all(visibility.Filter{Tenant: tenant}, audit.Filter{}, db.Page{Limit: 100}); len(got) != countOf(tenant, list, late) {
				t.Errorf("%v has %d entries, want %d", tenant, len(got), countOf(tenant, list, late))
			}
		}
	})
}

// TestOpenEntriesStayInTheDatabase covers one that arrives late, for a day that is already archived.
func TestOpenEntriesStayInTheDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when string // the prefix of the object that is being read
		left int64
	}{
		"before the day is compared": {"", 61},
		"after the day was compared": {"manifests/", 41}, // later days wait
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				w := newWorld(t, d)
				insert(t, d, sample(60))
				w.DatabaseDays = 5
				w.now = lastDay.Add(25 * time.Hour)
				w.run()
				open := sample(1)
				open[0].CreatedAt = firstDay.Add(time.Minute)
				open[0].RequestID, open[0].Settled = idAt(open[0].CreatedAt), false
				inserted := false
				arrive := func(key string) error {
					if !inserted && strings.HasPrefix(key, c.when) {
						inserted = true
						insert(t, d, open)
					}
					return nil
				}
				if c.when == "" {
					_ = arrive("")
				}
				w.storage = &hooked{storage: w.storage, open: arrive}
				w.now = lastDay.AddDate(0, 0, 10)
				w.run()
				left, err := audit.FirstOpen(t.Context(), d)
				if err != nil || left != open[0].RequestID || w.stored() != c.left {
					t.Errorf("the database has %d entries, want %d, and %q is open (%v), want %q", w.stored(), c.left, left, err, open[0].RequestID)
				}
				w.exec("UPDATE requests SET settled = TRUE")
				w.run()
				if e, err := w.Get(t.Context(), d, visibility.Filter{Tenant: open[0].Tenant}, open[0].RequestID); err != nil || w.stored() != 0 {
					t.Errorf("got %v, %v, and the database has %d entries", e, err, w.stored())
				}
			})
		})
	}
}
