//go:build upgrade

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// upgradePhase is how long the load runs in each state of a cluster.
var upgradePhase = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("TURNPIKE_UPGRADE_PHASE")); err == nil {
		return d
	}
	return 8 * time.Second
}()

// upgradeKills is how often the test kills a migration.
var upgradeKills = func() int {
	if n, err := strconv.Atoi(os.Getenv("TURNPIKE_UPGRADE_KILLS")); err == nil {
		return n
	}
	return 8
}()

// versions are the programs before and after an upgrade.
type versions struct{ old, new program.Binary }

// TestUpgrade upgrades from the commit in test/upgrade/BASE, or in
// TURNPIKE_UPGRADE_BASE, to this one.
func TestUpgrade(t *testing.T) {
	v := buildVersions(t)
	t.Run("rolling", func(t *testing.T) { testRollingUpgrade(t, v) })
	t.Run("in place", func(t *testing.T) { testUpgradeInPlace(t, v) })
}

func buildVersions(t *testing.T) (v versions) {
	t.Helper()
	base := os.Getenv("TURNPIKE_UPGRADE_BASE")
	if base == "" {
		text, err := os.ReadFile("../upgrade/BASE")
		if err != nil {
			t.Fatal(err)
		}
		base = strings.TrimSpace(string(text))
	}
	if out, err := osexec.Command("git", "cat-file", "-e", base+"^{commit}").CombinedOutput(); err != nil {
		t.Fatalf("the commit %s of test/upgrade/BASE is not in this clone; run: git fetch --unshallow (%v)\n%s", base, err, out)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "source.tar")
	for _, step := range [][]string{{"git", "-C", "../..", "archive", "--format=tar", "-o", archive, base}, {"mkdir", filepath.Join(dir, "source")},
		{"tar", "-xf", archive, "-C", filepath.Join(dir, "source")}} {
		if out, err := osexec.Command(step[0], step[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(step, " "), err, out)
		}
	}
	var err error
	if v.old, err = program.BuildSource(filepath.Join(dir, "source"), filepath.Join(dir, "old")); err != nil {
		t.Fatal(err)
	}
	if v.new, err = program.BuildSource("../..", filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	return v
}

// testRollingUpgrade upgrades three nodes on PostgreSQL one after the other under
// load. No request fails, no event is lost, and budgets are exact. Nodes of the old
// version run next to new ones, restart, and replace new ones.
func testRollingUpgrade(t *testing.T, v versions) {
	f := fillRecords(t, v.old, program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Empty(t, "postgres")})
	w := newUpgradeWorld(t, v, f)
	f.api = f.readAPI(t, w.balancer.server.URL)
	restarts := f.schema == len(db.Migrations()) || db.CanRestart(f.schema)
	t.Logf("the old version has schema version %d of %d", f.schema, len(db.Migrations()))

	w.startLoad(t)
	w.phase(t, "three old nodes", func() {})
	var extra *program.Server
	w.phase(t, "a new node next to three old ones", func() {
		w.checkMigrate(t, restarts)
		extra = w.f.serve(t, v.new)
		w.balancer.add(extra.URL)
	})
	if restarts {
		w.phase(t, "an old node restarted", func() { w.replace(t, 2, v.old) })
		w.phase(t, "two new and two old nodes", func() { w.replace(t, 0, v.new) })
		w.phase(t, "rolled back to three old nodes and a new one", func() { w.replace(t, 0, v.old) })
	} else {
		w.checkOldRefuses(t)
	}
	for i := range w.nodes {
		w.phase(t, fmt.Sprintf("node %d of 3 is new", i+1), func() { w.replace(t, i, v.new) })
	}
	w.phase(t, "the additional node stopped", func() {
		w.balancer.drain(extra.URL)
		stop(t, extra)
	})
	w.stopLoad()
	w.check(t)
}

// upgradeWorld is a cluster with a load balancer, its load and the acknowledged
// objects.
type upgradeWorld struct {
	v        versions
	f        *records
	balancer *balancer
	nodes    [3]*program.Server
	rich     *account
	tight    string
	hook     string
	inbox    *httptest.Server

	quit    chan struct{}
	workers sync.WaitGroup

	mu       sync.Mutex
	outcomes []*outcome
	created  []string        // paths of acknowledged jobs and runs
	events   []string        // IDs of acknowledged events
	arrived  map[string]bool // IDs of events that the inbox got
}

func newUpgradeWorld(t *testing.T, v versions, f *records) *upgradeWorld {
	t.Helper()
	w := &upgradeWorld{v: v, f: f, balancer: newBalancer(t), quit: make(chan struct{}), arrived: map[string]bool{}}
	for i := range w.nodes {
		w.nodes[i] = f.serve(t, v.old)
		w.balancer.add(w.nodes[i].URL)
	}
	url := w.balancer.server.URL
	w.inbox = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var event struct{ ID string }
		if err == nil && json.Unmarshal(body, &event) == nil {
			w.mu.Lock()
			w.arrived[event.ID] = true
			w.mu.Unlock()
		}
	}))
	t.Cleanup(w.inbox.Close)
	w.hook = must(t, url, request{method: "POST", path: "/v1/webhooks", key: f.test, body: fmt.Sprintf(`{"url":%q,"events":["*"]}`, w.inbox.URL)}).text("id")
	key := func(body string) string {
		t.Helper()
		return must(t, url, request{method: "POST", path: "/v1/keys", key: f.live, body: body}).text("value")
	}
	w.rich = &account{key: key(`{"name":"rich","scopes":["*"],"project":"p1","monthly_budget":100000}`)}
	w.tight = key(fmt.Sprintf(`{"name":"tight","scopes":["*"],"monthly_budget":%d}`, upgradeBudget))
	return w
}

// upgradeBudget is exhausted during the test.
const upgradeBudget = 500

// phase changes the cluster and lets the load run.
func (w *upgradeWorld) phase(t *testing.T, name string, change func()) {
	t.Helper()
	change()
	time.Sleep(upgradePhase)
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%s: %d requests so far", name, len(w.outcomes))
}

// replace stops a node as an operator does and starts a version in its place.
func (w *upgradeWorld) replace(t *testing.T, i int, b program.Binary) {
	t.Helper()
	w.balancer.drain(w.nodes[i].URL)
	stop(t, w.nodes[i])
	w.nodes[i] = w.f.serve(t, b)
	w.balancer.add(w.nodes[i].URL)
}

// checkMigrate checks what the new version reports before the upgrade.
func (w *upgradeWorld) checkMigrate(t *testing.T, restarts bool) {
	t.Helper()
	report := command(t, w.v.new, w.f.at, "migrate", "--check")
	pending, _ := report["pending"].([]any)
	old, _ := report["old_nodes"].(map[string]any)
	if len(pending) != len(db.Migrations())-w.f.schema || old["keep_running"] != true || old["can_restart"] != restarts {
		t.Errorf("migrate --check: got %v, want %d migrations, and that old nodes keep running and can restart: %t", report, len(db.Migrations())-w.f.schema, restarts)
	}
}

// checkOldRefuses checks that a version from before the rule doesn't start on the new
// schema.
func (w *upgradeWorld) checkOldRefuses(t *testing.T) {
	t.Helper()
	s, err := w.v.old.Serve(w.f.at, unlimited...)
	if err == nil {
		s.Kill()
	}
	if err == nil || !strings.Contains(err.Error(), "use the newer program") {
		t.Errorf("an old node on the new schema: got %v, want it to refuse", err)
	}
}

func (w *upgradeWorld) startLoad(t *testing.T) {
	t.Helper()
	for i := range 2 {
		w.work(fmt.Sprintf("up-rich/%d", i), 20*time.Millisecond, func(mark string, n int) request { return w.rich.paidRequest(mark, n%2 == 0) }, nil)
		w.work(fmt.Sprintf("up-tight/%d", i), 100*time.Millisecond, func(mark string, _ int) request { return (&account{key: w.tight}).paidRequest(mark, false) }, nil)
	}
	// Most restarts happen during a stream.
	for i := range 3 {
		w.work(fmt.Sprintf("up-stream/%d", i), 10*time.Millisecond, func(mark string, _ int) request {
			return chat(mark, w.f.test, "Slowly. [[sim:length=60]] [[sim:chunk_delay=40ms]]", true)
		}, nil)
	}
	w.work("up-read", 100*time.Millisecond, func(mark string, n int) request {
		paths := []string{"/v1/keys", "/v1/agents/runs", "/v1/deliveries", "/v1/events", "/v1/audit", "/v1/usage", "/v1/videos"}
		return request{mark: mark, method: "GET", path: paths[n%len(paths)], key: w.f.test}
	}, nil)
	w.work("up-token", 200*time.Millisecond, func(mark string, _ int) request {
		return request{mark: mark, method: "POST", path: "/v1/scoped_tokens", key: w.f.test, body: `{"scopes":["models:read"]}`}
	}, nil)
	w.work("up-event", 100*time.Millisecond, func(mark string, _ int) request {
		return request{mark: mark, method: "POST", path: "/v1/webhooks/" + w.hook + "/test", key: w.f.test, body: `{}`}
	}, func(v object) { w.events = append(w.events, v.text("event_id")) })
	w.work("up-job", 300*time.Millisecond, func(mark string, _ int) request {
		return request{mark: mark, method: "POST", path: "/v1/images/batches", key: w.f.test, once: mark, body: `{"requests":[{"custom_id":"a","body":{"prompt":"A lighthouse","size":"64x64"}}]}`}
	}, func(v object) { w.created = append(w.created, "/v1/images/batches/"+v.text("id")) })
	w.work("up-run", 300*time.Millisecond, func(mark string, _ int) request {
		return request{mark: mark, method: "POST", path: "/v1/agents/runs", key: w.f.test, once: mark,
			body: `{"model":"gpt-4o","input":"Refund it. [[sim:script=tool:refund;answer]]","tools":[{"type":"http","name":"refund","url":"https://shop.example.com/refunds"}]}`}
	}, func(v object) { w.created = append(w.created, "/v1/agents/runs/"+v.text("id")) })
	t.Cleanup(w.stopLoad)
}

// work sends requests one after the other until the load stops. It passes the
// acknowledged objects to made.
func (w *upgradeWorld) work(mark string, pause time.Duration, next func(mark string, n int) request, made func(v object)) {
	w.workers.Go(func() {
		c := newClient(w.balancer.server.URL)
		defer c.close()
		for n := 0; ; n++ {
			select {
			case <-w.quit:
				return
			case <-time.After(pause):
			}
			o := c.do(next(fmt.Sprintf("%s/%d", mark, n), n), nil)
			w.mu.Lock()
			w.outcomes = append(w.outcomes, o)
			if v := (object{}); made != nil && o.status == http.StatusOK && json.Unmarshal(o.body, &v) == nil {
				made(v)
			}
			w.mu.Unlock()
		}
	})
}

func (w *upgradeWorld) stopLoad() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	w.workers.Wait()
}

func (w *upgradeWorld) check(t *testing.T) {
	t.Helper()
	url, d := w.balancer.server.URL, open(t, w.f.at)
	served := w.checkOutcomes(t)
	for _, path := range w.created {
		w.f.wait(t, url, path, "completed")
	}
	// Jobs and runs have events too.
	eventually(t, time.Minute, "all events are delivered", func() bool {
		return count(t, d, "SELECT count(*) FROM new_events")+
			count(t, d, "SELECT count(*) FROM deliveries WHERE endpoint_id = $1 AND status <> 'succeeded'", w.hook) == 0
	})
	w.checkEvents(t, d)
	old := w.f.checkAPI(t, url)
	w.f.use(t, url)
	w.checkLog(t, d)
	spent := int64(count(t, d, "SELECT CAST(coalesce(sum(credits), 0) AS BIGINT) FROM requests WHERE user_agent LIKE 'up-tight/%'"))
	if limit := int64(upgradeBudget * credits.Credit); spent > limit {
		t.Errorf("got %d microcredits spent, want at most the budget of %d", spent, limit)
	}
	stop(t, w.nodes[:]...)
	checkBalances(t, d)
	t.Logf("served %d requests, %d jobs and runs and %d events; the balancer retried %v; %d of %d microcredits of the small budget spent; %d old records are unchanged",
		served, len(w.created), len(w.events), w.balancer.retried, spent, int64(upgradeBudget*credits.Credit), old)
}

// checkOutcomes checks that every request succeeded completely.
func (w *upgradeWorld) checkOutcomes(t *testing.T) (served int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range w.outcomes {
		switch {
		case o.status == http.StatusPaymentRequired && strings.HasPrefix(o.mark, "up-tight/") && o.code() == "budget_exceeded":
		case o.status != http.StatusOK || !o.whole:
			wrong.add("got %v, want 200\n%.300s", o, o.body)
		case o.streamed && !bytes.HasSuffix(bytes.TrimSpace(o.body), []byte("data: [DONE]")):
			wrong.add("got an incomplete stream: %v", o)
		default:
			served++
		}
	}
	return served
}

// checkEvents checks that every event of the endpoint's environment arrived.
func (w *upgradeWorld) checkEvents(t *testing.T, d *db.DB) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	stored, err := db.List(t.Context(), d, db.Value[string], "SELECT event_id FROM deliveries WHERE endpoint_id = $1", w.hook)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range w.events {
		if !slices.Contains(stored, id) {
			wrong.add("%s was acknowledged and has no delivery", id)
		}
	}
	for _, id := range stored {
		if !w.arrived[id] {
			wrong.add("%s never arrived", id)
		}
	}
	if finished := len(stored) - len(w.events); finished < len(w.created) {
		wrong.add("got %d events of %d jobs and runs", finished, len(w.created))
	}
}

// checkLog compares the responses with the log.
func (w *upgradeWorld) checkLog(t *testing.T, d *db.DB) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	type logged struct {
		id      string
		status  int64
		settled bool
	}
	byMark := map[string][]logged{}
	rows, err := d.Query(t.Context(), "SELECT user_agent, id, coalesce(status, 0), settled FROM requests WHERE user_agent LIKE 'up-%'")
	err = db.Each(rows, err, func(r db.Row) error {
		var mark string
		var l logged
		err := r.Scan(&mark, &l.id, &l.status, &l.settled)
		byMark[mark] = append(byMark[mark], l)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range w.outcomes {
		found := slices.DeleteFunc(slices.Clone(byMark[o.mark]), func(l logged) bool { return l.status == http.StatusServiceUnavailable })
		if len(found) != 1 || found[0].id != o.id || found[0].status != int64(o.status) || !found[0].settled {
			wrong.add("got log entries %+v, want one of %v", byMark[o.mark], o)
		}
	}
}

// testUpgradeInPlace upgrades a database on SQLite, with a server that stopped, and
// with one that was killed.
func testUpgradeInPlace(t *testing.T, v versions) {
	f := fillRecords(t, v.old, program.Place{Dir: t.TempDir()})
	server := f.serve(t, v.old)
	f.api = f.readAPI(t, server.URL)
	stop(t, server)
	f.withDatabase(t, func(d *db.DB) { f.rows, f.columns = readRows(t, d, nil) })

	t.Run("stopped", func(t *testing.T) {
		g := f.copyTo(t)
		report := command(t, v.new, g.at, "migrate", "--check")
		applied := command(t, v.new, g.at, "migrate")
		pending, _ := report["pending"].([]any)
		if done, _ := applied["applied"].([]any); len(done) != len(pending) || len(done) != len(db.Migrations())-f.schema {
			t.Errorf("got %d migrations applied and %d announced, want %d", len(done), len(pending), len(db.Migrations())-f.schema)
		}
		rows := g.checkRows(t, open(t, g.at))
		server := g.serve(t, v.new)
		objects := g.checkAPI(t, server.URL)
		if f.schema == len(db.Migrations()) || db.CanRestart(f.schema) {
			stop(t, server)
			back := g.serve(t, v.old)
			g.checkAPI(t, back.URL)
			stop(t, back)
			server = g.serve(t, v.new)
		}
		g.use(t, server.URL)
		g.checkMoney(t, server)
		t.Logf("%d rows and %d objects are unchanged", rows, objects)
	})
	t.Run("killed server", func(t *testing.T) {
		g := f.copyTo(t)
		delivery, job := g.interrupt(t, v.old)
		server := g.serve(t, v.new)
		g.checkAPI(t, server.URL)
		g.wait(t, server.URL, job, "completed")
		g.wait(t, server.URL, delivery, "succeeded")
		if n := count(t, open(t, g.at), "SELECT count(*) FROM requests WHERE user_agent = 'interrupted' AND settled AND usage_source = 'recovered'"); n != 1 {
			t.Errorf("got %d recovered requests, want 1", n)
		}
		g.use(t, server.URL)
		g.checkMoney(t, server)
	})
	t.Run("killed migration", func(t *testing.T) { f.killMigrations(t, v) })
}

// copyTo returns the records in another directory.
func (f *records) copyTo(t *testing.T) *records {
	t.Helper()
	f.broken.Store(true)
	g := *f
	g.at.Dir = filepath.Join(t.TempDir(), "data")
	if out, err := osexec.Command("cp", "-a", f.at.Dir, g.at.Dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the data directory: %v\n%s", err, out)
	}
	return &g
}

// checkMoney stops the server and compares balances with the log.
func (f *records) checkMoney(t *testing.T, server *program.Server) {
	t.Helper()
	stop(t, server)
	checkBalances(t, open(t, f.at))
}

// killMigrations kills migrations at random moments. Afterward the upgrade succeeds
// and nothing is lost.
func (f *records) killMigrations(t *testing.T, v versions) {
	begun := time.Now()
	command(t, v.new, f.copyTo(t).at, "migrate")
	whole := time.Since(begun)
	interrupted := 0
	for range upgradeKills {
		g := f.copyTo(t)
		killed, err := v.new.RunFor(g.at, rand.N(whole), "migrate")
		if err != nil {
			t.Fatal(err)
		}
		if killed {
			interrupted++
		}
		have, _, err := open(t, g.at).SchemaVersion(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		applied := command(t, v.new, g.at, "migrate")
		if done, _ := applied["applied"].([]any); len(done) != len(db.Migrations())-have {
			t.Errorf("got %v applied after a killed migration at schema version %d", done, have)
		}
		g.checkRows(t, open(t, g.at))
		server := g.serve(t, v.new)
		g.checkAPI(t, server.URL)
		stop(t, server)
	}
	t.Logf("%d of %d migrations were killed before they ended", interrupted, upgradeKills)
}
