package dashboard_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// archivedPages is what the dashboard shows of the request log.
type archivedPages struct {
	lists  [][]string // IDs of the requests, by list
	export string
}

func readLog(t *testing.T, b *browser, made []string) (out archivedPages) {
	t.Helper()
	first := b.get(t, b.in(accounts.Live, "requests")).is(t, 200)
	out.lists = append(out.lists, rowsOf(first), rowsOf(b.get(t, first.link(t, "Older")).is(t, 200)))
	for _, search := range []string{"project:shop", "status:>=400", "model:big ip:192.0.2.9"} {
		out.lists = append(out.lists, rowsOf(b.get(t, b.in(accounts.Live, "requests"+query(search))).is(t, 200)))
	}
	out.export = b.get(t, b.in(accounts.Live, "requests/export.csv"+query("status:200"))).is(t, 200).body
	for _, id := range made[:2] {
		b.get(t, b.in(accounts.Live, "requests/"+id)).shows(t, id, "agent-of-it/1.0")
	}
	// Its neighbors are the next and the last request.
	b.get(t, b.in(accounts.Live, "requests/"+made[1])).shows(t, b.in(accounts.Live, "requests/"+made[0]), b.in(accounts.Live, "requests/"+made[2]))
	b.get(t, b.in(accounts.Live, "billing?month="+ids.Time(made[0]).UTC().Format("2006-01"))).shows(t, b.in(accounts.Live, "requests/"+made[0]))
	return out
}

func (p archivedPages) equal(t *testing.T, want archivedPages) {
	t.Helper()
	for i := range want.lists {
		if !slices.Equal(p.lists[i], want.lists[i]) {
			t.Errorf("list %d: got %v, want %v", i, p.lists[i], want.lists[i])
		}
	}
	if p.export != want.export {
		t.Errorf("export: got\n%.1000s\nwant\n%.1000s", p.export, want.export)
	}
}

func TestArchivedRequestsAreShownAsBefore(t *testing.T) {
	t.Parallel()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			cfg, clock := harness.Config(t, engine), harness.NewClock()
			s := harness.Start(t, cfg, clock)
			w := s.Workspace(t, "acme")
			_, key := s.Key(t, w, accounts.Live)
			b := member(t, s, w, accounts.Owner)
			other := member(t, s, s.Workspace(t, "other"), accounts.Owner)
			list := []entry{{status: 200, project: "shop", credits: 5_000_000}, {status: 429}, {status: 200, model: "big", ip: "192.0.2.9"}}
			for range 60 {
				list = append(list, entry{status: 200, model: "small"})
			}
			for i := range list {
				list[i].workspace, list[i].env, list[i].key, list[i].agent = w, accounts.Live, key, "agent-of-it/1.0"
			}
			made := logs(t, s, list...)
			want := readLog(t, b, made)
			for i, n := range []int{50, 13, 1, 1, 1} {
				if got := len(want.lists[i]); got != n {
					t.Errorf("list %d has %d requests before they are archived, want %d", i, got, n)
				}
			}
			if err := s.App.Close(); err != nil {
				t.Fatal(err)
			}

			cfg.Audit.RetentionDays, cfg.Audit.Archive.To = 2, config.SecretURL(t.TempDir())
			clock.Turn(10 * 24 * time.Hour)
			s = harness.Start(t, cfg, clock)
			s.Within(t, time.Minute, func() bool {
				left, err := db.Value[int64](s.DB.QueryRow(t.Context(), "SELECT count(*) FROM requests WHERE workspace_id = $1", w.ID))
				return err == nil && left == 0
			})
			for _, again := range []*browser{b, other} { // the sessions have expired
				again.s = s
				again.signIn(t)
			}
			readLog(t, b, made).equal(t, want)
			// A pasted ID is found in either environment.
			for _, env := range []accounts.Environment{accounts.Live, accounts.Test} {
				b.get(t, b.in(env, "requests"+query(made[0]))).redirectsTo(t, b.in(accounts.Live, "requests/"+made[0]))
			}
			if got := b.find(t, made[0]); len(got) == 0 || got[0].URL != b.in(accounts.Live, "requests/"+made[0]) {
				t.Errorf("the palette finds %+v", got)
			}
			if got := other.find(t, made[0]); len(got) != 0 {
				t.Errorf("the palette of another workspace finds %+v", got)
			}
			b.get(t, b.in(accounts.Test, "requests/"+made[0])).is(t, 404)
			other.get(t, other.in(accounts.Live, "requests/"+made[0])).is(t, 404)
			other.get(t, other.in(accounts.Live, "requests")).hides(t, made[len(made)-1])
		})
	}
}

// TestRequestsAreReadFromTheReplica freezes a replica: lists and usage stay as they were, and a request's own page is
// current. Without the replica, all of them are.
func TestRequestsAreReadFromTheReplica(t *testing.T) {
	t.Parallel()
	primary, standby := dbtest.StartReplicated(t)
	cfg := harness.Config(t, "sqlite")
	cfg.DatabaseURL, cfg.ReplicaURL, cfg.ReplicaMaxLag = config.SecretURL(primary.URL()), config.SecretURL(standby.URL()), 5*time.Minute
	s := harness.Start(t, cfg, harness.NewClock())
	w := s.Workspace(t, "acme")
	_, key := s.Key(t, w, accounts.Live)
	b := member(t, s, w, accounts.Owner)
	e := entry{workspace: w, env: accounts.Live, key: key, agent: "agent-of-it/1.0", status: 200}
	before := logs(t, s, e)[0]
	list := func() string { return b.get(t, b.in(accounts.Live, "requests")).is(t, 200).body }
	export := func() string { return b.get(t, b.in(accounts.Live, "requests/export.csv")).is(t, 200).body }
	s.Eventually(t, func() bool { return strings.Contains(list(), before) && standby.HasServed(t, "requests") })

	standby.Freeze(t)
	after := logs(t, s, e)[0]
	for name, read := range map[string]func() string{"list": list, "export": export} {
		if text := read(); strings.Contains(text, after) || !strings.Contains(text, before) {
			t.Errorf("with a frozen replica, the %s has the request after it: %t, and the one before it: %t; want only the latter", name, strings.Contains(text, after), strings.Contains(text, before))
		}
	}
	b.get(t, b.in(accounts.Live, "requests/"+after)).shows(t, after, "agent-of-it/1.0")

	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() string{"list": list, "export": export} {
		if !strings.Contains(read(), after) {
			t.Errorf("without the replica, the %s lacks a request", name)
		}
	}
}
