package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
	"turnpike/test/fakes/s3"
)

var (
	// The IDs of the test are between these days.
	firstDay = time.Date(2026, 3, 30, 0, 0, 0, 0, time.UTC)
	lastDay  = firstDay.AddDate(0, 0, 3)

	tenants = []visibility.Tenant{{WorkspaceID: "ws_a", Environment: "live"}, {WorkspaceID: "ws_a", Environment: "test"}, {WorkspaceID: "ws_b", Environment: "live"}}
)

// world is an archive in a directory, with a clock.
type world struct {
	*Archive
	t   *testing.T
	dir string
	now time.Time
}

func newWorld(t *testing.T, d *db.DB) *world { return newWorldAt(t, d, "") }

// newWorldAt is newWorld with the archive at an address.
func newWorldAt(t *testing.T, d *db.DB, address string) *world {
	w := &world{t: t, dir: t.TempDir(), now: firstDay.Add(47 * time.Hour)}
	a, err := New(Options{DB: d, To: cmp.Or(address, filepath.Join(w.dir, "archive")), Spool: w.dir, Node: "node_1", FinalAfter: 24 * time.Hour, DatabaseDays: 2, Days: 400,
		Now: func() time.Time { return w.now }, GroupRows: 16, FileRows: 64})
	if err != nil {
		t.Fatal(err)
	}
	w.Archive = a
	return w
}

func (w *world) run() {
	w.t.Helper()
	w.now = w.now.Add(time.Second) // past the last claim
	if err := w.RunOnce(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

var bulk = db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "scoped_token_id text", "token_metadata text",
	"ip text", "method text", "path text", "project text", "user_agent text", "node_id text", "created_at bigint", "settled boolean",
	"status bigint", "error_code text", "model text", "provider text", "attempts text", "input_tokens bigint", "output_tokens bigint",
	"reserved bigint", "credits bigint", "simulated_credits bigint", "usage_source text", "latency_us bigint", "upstream_us bigint",
	"unbilled_credits bigint", "price_version text", "cached_tokens bigint", "accounts text", "end_user_id text",
	"requested_model text", "failure text", "queue_us bigint", "first_token_us bigint")

func insert(t *testing.T, d *db.DB, list []*audit.Entry) {
	t.Helper()
	var rows [][]any
	for _, e := range list {
		rows = append(rows, []any{e.RequestID, e.WorkspaceID, string(e.Environment), e.KeyID, e.KeyHint, db.OrNull(e.TokenID), db.OrNull(string(e.TokenMetadata)),
			e.IP, e.Method, e.Path, db.OrNull(e.Project), e.UserAgent, "node_1", e.CreatedAt.UnixMicro(), e.Settled,
			db.NullInt(int64(e.Status)), db.OrNull(e.ErrorCode), db.OrNull(e.Model), db.OrNull(e.Provider), db.OrNull(string(e.Attempts)), db.Number(e.InputTokens), db.Number(e.OutputTokens),
			int64(e.Reserved), int64(e.Credits), int64(e.SimulatedCredits), db.OrNull(e.UsageSource), db.NullInt(e.Latency.Microseconds()), db.NullInt(e.Upstream.Microseconds()),
			int64(e.UnbilledCredits), db.OrNull(e.PriceVersion), db.Number(e.CachedTokens), db.OrNull(string(e.Accounts)), db.OrNull(e.EndUser),
			db.OrNull(e.Requested), db.OrNull(string(e.Failure)), db.NullInt(e.Queue.Microseconds()), db.NullInt(e.FirstToken.Microseconds())})
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := bulk.Write(t.Context(), tx, rows)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// idAt returns an ID with a time. All IDs of a test differ.
func idAt(at time.Time) string {
	return ids.Floor(ids.Request, at)[:len(ids.Request)+16] + ids.New(ids.Request)[len(ids.Request)+16:]
}

func number(n int64) *int64 { return &n }

// sample returns entries of all tenants at random times, with and without each field.
func sample(n int) []*audit.Entry {
	out := make([]*audit.Entry, n)
	for i := range out {
		at := firstDay.Add(time.Duration(i) * lastDay.Sub(firstDay) / time.Duration(n)).Truncate(time.Millisecond)
		tenant := tenants[rand.IntN(len(tenants))]
		e := &audit.Entry{RequestID: idAt(at), Tenant: tenant, KeyID: fmt.Sprintf("key_%s_%d", tenant.Path(), i%3), KeyHint: "tp_…x", IP: "::1", Method: "POST", Path: "/v1/chat/completions",
			UserAgent: "curl", CreatedAt: at, Settled: true, Credits: credits.Micro(i * 1000), UnbilledCredits: credits.Micro(i % 5), SimulatedCredits: credits.Micro(i % 7), Reserved: credits.Micro(i * 2000)}
		if i%2 == 0 {
			e.Model, e.Provider, e.Status, e.Project, e.PriceVersion, e.UsageSource = "gpt", "openai", 200, "shop", "v1", audit.UsageProvider
			e.InputTokens, e.OutputTokens, e.Latency, e.Upstream = number(int64(i)), number(7), 1500*time.Microsecond, 1200*time.Microsecond
			e.Accounts = json.RawMessage(`[["workspace","ws","2026-03"]]`)
		}
		if i%3 == 0 {
			e.Status, e.ErrorCode, e.EndUser, e.Requested, e.TokenID = 429, "rate_limit_exceeded", "eu_1", "auto", "st_1"
			e.Failure = json.RawMessage(`{"message":"Wait.","param":"model","refused_by":{"kind":"requests","level":"key","id":"key_0"}}`)
			e.TokenMetadata, e.Attempts = json.RawMessage(`{"a":"b"}`), json.RawMessage(`[{"ms":1}]`)
			e.CachedTokens, e.Queue, e.FirstToken = number(1), 2*time.Millisecond, 3*time.Millisecond
		}
		out[i] = e
	}
	return out
}

// everything lists the log by pages of different sizes in both directions and with filters.
func (w *world) everything() (out []string) {
	w.t.Helper()
	filters := []audit.Filter{{}, {}, {Model: "gpt"}, {Project: "shop", Status: 200}, {EndUser: "eu_1"}, {Charged: true, Search: audit.Search{Model: "GP*", Error: "rate*"}},
		{Since: firstDay.Add(20 * time.Hour), Until: lastDay.Add(-20 * time.Hour)}}
	for _, t := range tenants {
		filters[1].KeyID = "key_" + t.Path() + "_1" // a key belongs to one tenant
		for n, f := range filters {
			for _, asc := range []bool{false, true} {
				for _, vis := range []visibility.Filter{{Tenant: t}, {Tenant: t, Project: "shop"}} {
					out = append(out, fmt.Sprint(t, n, asc, vis.Project, w.all(vis, f, db.Page{Limit: 20 + rand.IntN(40), Asc: asc})))
				}
			}
		}
	}
	return out
}

// all returns the entries of all pages as JSON.
func (w *world) all(vis visibility.Filter, f audit.Filter, page db.Page) (out []string) {
	w.t.Helper()
	for {
		found, err := w.List(w.t.Context(), w.DB, vis, f, page)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(found.Rows) > page.Limit {
			w.t.Fatalf("a page of %d has %d entries", page.Limit, len(found.Rows))
		}
		for _, e := range found.Rows {
			out = append(out, show(e))
			if len(out)%20 != 0 {
				continue
			}
			one, err := w.Get(w.t.Context(), w.DB, vis, e.RequestID)
			if err != nil || show(one) != show(e) {
				w.t.Fatalf("got %v, %v by its ID, want %v", one, err, e)
			}
		}
		if !found.More {
			return out
		}
		page.After = found.Cursor
	}
}

func show(e *audit.Entry) string {
	shown := *e
	shown.Requested = e.AskedFor()
	shown.CreatedAt = e.CreatedAt.UTC()
	text, _ := json.Marshal(shown)
	return string(text)
}

func (w *world) objects() (out []string) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			path, err = filepath.Rel(w.dir, path)
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

func (w *world) stored() int64 {
	w.t.Helper()
	n, err := db.Count(w.t.Context(), w.DB, "requests")
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func TestLogReadsTheSameFromTheArchive(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		insert(t, d, sample(300))
		want := w.everything()
		w.run()
		if got := w.objects(); len(got) != 0 {
			t.Fatalf("archived before the first day is final: %v", got)
		}
		w.now = lastDay.Add(25 * time.Hour) // all days are final, and two are past their time in the database
		w.run()
		if n := w.stored(); n != 100 {
			t.Errorf("the database has %d entries, want those of the last day", n)
		}
		if got := w.everything(); !slices.Equal(got, want) {
			t.Error("the log differs with two days in the archive")
		}
		w.now = lastDay.AddDate(0, 0, 10)
		w.run()
		if n := w.stored(); n != 0 {
			t.Errorf("the database still has %d entries", n)
		}
		if got := w.everything(); !slices.Equal(got, want) {
			t.Error("the log differs in the archive")
		}
		before := w.objects()
		w.run()
		if got := w.objects(); !slices.Equal(got, before) {
			t.Errorf("a second pass changed the archive from %v to %v", before, got)
		}
		if slices.ContainsFunc(before, func(name string) bool {
			return !strings.HasPrefix(name, "archive/log/day=2026-0") && !strings.HasPrefix(name, "archive/manifests/2026-0")
		}) {
			t.Errorf("got objects %v", before)
		}
		w.now = lastDay.AddDate(0, 0, 500)
		w.run()
		if got := w.objects(); len(got) > 0 {
			t.Errorf("expired, and still there: %v", got)
		}
	})
}

func TestLogReadsTheSameFromABucket(t *testing.T) {
	server := s3.New(t)
	w := newWorldAt(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), server.Address("logs/turnpike"))
	insert(t, w.DB, sample(100))
	want := w.everything()
	w.now = lastDay.AddDate(0, 0, 10)
	w.run()
	if got := w.everything(); w.stored() != 0 || !slices.Equal(got, want) {
		t.Error("the log differs in the bucket")
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
	w.now = lastDay.AddDate(0, 0, 500)
	w.run()
	err := w.storage.Each(t.Context(), "", func(key string) error {
		t.Errorf("expired, and still there: %s", key)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestEntriesChangedAfterArchivingAreArchivedAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		list := sample(300)
		insert(t, d, list)
		w.DatabaseDays = 5
		w.now = lastDay.Add(25 * time.Hour)
		w.run()
		if n := w.stored(); n != 300 {
			t.Fatalf("the database has %d entries, want all", n)
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := audit.Amend(t.Context(), tx, list[10].RequestID, func(e *audit.Entry) { e.Credits += 5 })
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		want := w.everything()
		w.now = lastDay.AddDate(0, 0, 10)
		w.run()
		if got := w.everything(); w.stored() != 0 || !slices.Equal(got, want) {
			t.Error("the log differs in the archive")
		}
		// Entries that arrive for days that are only in the archive, for example of a node with a wrong clock.
		late := sample(30)
		insert(t, d, late)
		w.run()
		if n := w.stored(); n != 0 {
			t.Errorf("%d late entries stay in the database", n)
		}
		for _, tenant := range tenants {
			if got := w.all(visibility.Filter{Tenant: tenant}, audit.Filter{}, db.Page{Limit: 100}); len(got) != countOf(tenant, list, late) {
				t.Errorf("%v has %d entries, want %d", tenant, len(got), countOf(tenant, list, late))
			}
		}
		for _, name := range w.objects() {
			if name == "archive/log/day="+string(dayOf(list[10].CreatedAt))+"/workspace="+list[10].WorkspaceID+"/"+string(list[10].Environment)+"-1-00001.parquet" {
				t.Errorf("%s is left of an earlier generation", name)
			}
		}
	})
}

func countOf(t visibility.Tenant, lists ...[]*audit.Entry) (n int) {
	for _, e := range slices.Concat(lists...) {
		if e.Tenant == t {
			n++
		}
	}
	return n
}

// broken fails after some writes.
type broken struct {
	storage
	writes int
}

var errBroken = errors.New("no more writes")

func (b *broken) Write(ctx context.Context, key string, from *os.File) error {
	if b.writes--; b.writes < 0 {
		return errBroken
	}
	return b.storage.Write(ctx, key, from)
}

func TestArchivingContinuesAfterAnyFailure(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		insert(t, d, sample(300))
		want := w.everything()
		whole := w.storage
		w.now = lastDay.AddDate(0, 0, 10)
		for writes := range 100 {
			w.storage = &broken{whole, writes % 3}
			w.now = w.now.Add(time.Hour) // past the pause after a failure
			err := w.RunOnce(t.Context())
			if writes%4 == 0 || err == nil {
				if got := w.everything(); !slices.Equal(got, want) {
					t.Fatalf("the log differs after failure %d: %v", writes, err)
				}
			}
			if err == nil {
				break
			}
			if failure, failed := ReadFailure(t.Context(), d); !errors.Is(err, errBroken) || failed != nil || failure == nil {
				t.Fatalf("got %v, %v, %v", err, failure, failed)
			}
		}
		if failure, err := ReadFailure(t.Context(), d); w.stored() != 0 || failure != nil || err != nil {
			t.Errorf("%d entries are left after %v, %v", w.stored(), failure, err)
		}
	})
}

func TestNothingIsDeletedIfTheArchiveIsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"a file is gone": os.Remove,
		"a file is cut":  func(path string) error { return os.Truncate(path, 100) },
		"a byte differs": func(path string) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			data[len(data)/2] ^= 1
			return os.WriteFile(path, data, 0o600)
		},
	} {
		for _, kind := range []string{"*.parquet", "*.json"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
				insert(t, w.DB, sample(60))
				w.DatabaseDays = 5
				w.now = lastDay.Add(25 * time.Hour)
				w.run()
				for _, name := range w.objects() {
					if ok, _ := filepath.Match(kind, filepath.Base(name)); ok {
						if err := damage(filepath.Join(w.dir, name)); err != nil {
							t.Fatal(err)
						}
						break
					}
				}
				w.now = lastDay.AddDate(0, 0, 10)
				if err := w.RunOnce(t.Context()); err == nil || w.stored() != 60 {
					t.Errorf("%d entries are left, %v", w.stored(), err)
				}
			})
		}
	}
}

// TestArchiveOfAnotherDatabaseIsKept covers a restored backup that is older than the archive, and two servers with
// one archive.
func TestArchiveOfAnotherDatabaseIsKept(t *testing.T) {
	t.Parallel()
	first := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	insert(t, first.DB, sample(60))
	first.now = lastDay.Add(25 * time.Hour)
	first.run()
	before, read := first.objects(), first.everything()

	second := newWorldAt(t, dbtest.Open(t, dbtest.Address(t, "sqlite")), filepath.Join(first.dir, "archive"))
	insert(t, second.DB, sample(20))
	second.now = lastDay.AddDate(0, 0, 10)
	err := second.RunOnce(t.Context())
	if err == nil || !strings.Contains(err.Error(), "audit.archive.to") || second.stored() != 20 || !slices.Equal(first.objects(), before) {
		t.Errorf("got %v, %d entries are left, and the archive has %v", err, second.stored(), first.objects())
	}
	if got := first.everything(); !slices.Equal(got, read) {
		t.Errorf("got %v, want %v", got, read)
	}
}

func TestEntriesSurviveTheirFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, dbtest.Address(t, "sqlite")))
	list := sample(40)
	p, err := w.newPart(file{Object: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := p.add(e); err != nil {
			t.Fatal(err)
		}
	}
	f, err := (&worker{Archive: w.Archive}).store(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for e, err := range w.archivedEntries(t.Context(), []*file{f}) {
		want := *list[i]
		want.Requested = want.AskedFor()
		if err != nil || !reflect.DeepEqual(*e, want) {
			t.Fatalf("got %+v, %v, want %+v", e, err, want)
		}
		i++
	}
}
