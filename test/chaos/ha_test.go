//go:build chaosha && linux

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// haRounds is how often every fault is repeated. With two kinds of connections, three
// rounds have 24 failures of the primary and 18 killed nodes.
var haRounds = func() int {
	if n, err := strconv.Atoi(os.Getenv("TURNPIKE_HA_ROUNDS")); err == nil {
		return n
	}
	return 3
}()

// tightBudget is exhausted during the test.
const tightBudget = 30

// TestHighAvailability runs three nodes on a PostgreSQL cluster that fails over, under
// a constant load. Nothing that was acknowledged is lost, and no budget is exceeded.
func TestHighAvailability(t *testing.T) {
	t.Run("haproxy and multi-host", func(t *testing.T) {
		c := startHA(t)
		testHA(t, c, [3]string{c.url(), c.url(), c.multiHost()})
	})
	t.Run("pgbouncer", func(t *testing.T) {
		c := startHA(t)
		pooled := c.startPgBouncer(t)
		testHA(t, c, [3]string{pooled, pooled, pooled})
	})
}

func testHA(t *testing.T, c *haCluster, databases [3]string) {
	w := newHAWorld(t, c, databases)
	w.startLoad(t)
	eventually(t, time.Minute, "the load runs", func() bool { return w.served.Load() >= 100 })
	begun, before := time.Now(), w.served.Load()
	for range haRounds {
		w.fail(t, "primary killed (-9)", func() {
			old := c.primary()
			c.kill(old)
			w.waitForOther(t, old)
			c.startPatroni(t, old)
		})
		w.fail(t, "switchover", func() {
			old := c.primary()
			c.switchOver(t, old)
			w.waitForOther(t, old)
		})
		w.partition(t, "primary cut off from etcd", func(m *haMember) []*link { return []*link{m.etcd} })
		w.partition(t, "primary cut off from etcd and the standbys", func(m *haMember) []*link { return []*link{m.etcd, m.replication} })
		w.partition(t, "primary cut off from everything", (*haMember).links)
		w.cutReplication(t)
		w.cutClients(t)
		for i := range w.nodes {
			w.fail(t, "node killed (-9) and restarted", func() {
				w.nodes[i].server.Load().Kill()
				w.serve(t, i)
			})
		}
		w.fail(t, "all nodes restarted in turn", func() {
			for i := range w.nodes {
				stop(t, w.nodes[i].server.Load())
				w.serve(t, i)
			}
		})
	}
	held := float64(w.served.Load()-before) / time.Since(begun).Seconds()
	w.stopLoad()
	t.Logf("recovery times, with %.0f acknowledged model requests per second on average, faults included:\n%s", held, w.table())
	w.check(t)
	w.checkFormerPrimary(t)
}

// haNode is one Turnpike server.
type haNode struct {
	at     program.Place
	args   []string
	server atomic.Pointer[program.Server]

	mu        sync.Mutex
	failed    time.Time // the last failed model request
	recovered time.Time // the first success after that
	expected  time.Time // the begin of the last fault
	served    time.Time // the first success of a request that was sent after that
}

// expect makes recovery wait for a request that is sent from now on.
func (n *haNode) expect(begun time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected, n.served = begun, time.Time{}
}

func (n *haNode) observe(sent time.Time, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if !ok {
		n.failed, n.recovered = now, time.Time{}
		return
	}
	if n.recovered.IsZero() {
		n.recovered = now
	}
	if n.served.IsZero() && sent.After(n.expected) {
		n.served = now
	}
}

func (n *haNode) failedSince(begun time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed.After(begun)
}

// recovery returns when the node served again after its last failure, and whether it
// has served since for some time.
func (n *haNode) recovery() (at time.Time, steady bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	const steadyTime = 6 * time.Second // longer than a request waits for the database
	at = n.recovered
	if n.served.After(at) {
		at = n.served
	}
	return at, !n.recovered.IsZero() && !n.served.IsZero() && time.Since(n.failed) > steadyTime && time.Since(n.served) > steadyTime
}

// haWorld is the nodes, their load and the acknowledged objects.
type haWorld struct {
	c     *haCluster
	nodes [3]*haNode
	hooks *webhookFixture
	rich  *account
	tight string // a key
	test  string // a key

	quit    chan struct{}
	workers sync.WaitGroup
	served  atomic.Int64

	mu       sync.Mutex
	outcomes []*outcome
	created  map[string]string // paths of acknowledged jobs and runs, by Idempotency-Key
	times    map[string][]time.Duration
	faults   []string // in order
}

func newHAWorld(t *testing.T, c *haCluster, databases [3]string) *haWorld {
	t.Helper()
	w := &haWorld{c: c, quit: make(chan struct{}), created: map[string]string{}, times: map[string][]time.Duration{}}
	provider := upstream(t, func() int64 { return 1 + rand.Int64N(callTokens) }, func() time.Duration { return rand.N(20 * time.Millisecond) })
	bucket := startS3(t)
	for i := range w.nodes {
		at := program.Place{Dir: t.TempDir(), DatabaseURL: databases[i], Env: bucket}
		w.nodes[i] = &haNode{at: at, args: []string{writeProviderConfig(t, at, provider)}, recovered: time.Now()}
		w.serve(t, i)
	}
	at := w.nodes[0].at
	at.DatabaseURL = c.url() // for the test's own connections
	url := w.nodes[0].server.Load().URL
	w.hooks = newWebhookFixture(t, at)
	w.test = w.hooks.key
	w.hooks.inbox(t, url)
	w.rich, w.tight = newAccount(t, at, url), liveKey(t, at, "--budget", fmt.Sprint(tightBudget))
	w.rich.setCredits(t, url, 1_000_000*credits.Credit)
	return w
}

// startS3 starts an S3-compatible server and returns the settings of its bucket.
func startS3(t *testing.T) []string {
	t.Helper()
	dir, port := t.TempDir(), haPort(t)
	if err := os.Mkdir(filepath.Join(dir, "turnpike"), 0o755); err != nil {
		t.Fatal(err)
	}
	const id, secret = "turnpike", "turnpike-secret"
	cmd := osexec.Command(haServer(t, "versitygw"), "--port", fmt.Sprintf("127.0.0.1:%d", port), "--access", id, "--secret", secret, "posix", dir)
	program.EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails only if it has ended
		_ = cmd.Wait()
	})
	return []string{"AWS_ACCESS_KEY_ID=" + id, "AWS_SECRET_ACCESS_KEY=" + secret,
		fmt.Sprintf("TURNPIKE_FILES_URL=s3://turnpike?region=us-east-1&endpoint=http://127.0.0.1:%d&use_path_style=true", port)}
}

// serve starts a node.
func (w *haWorld) serve(t *testing.T, i int) {
	t.Helper()
	w.nodes[i].server.Store(serveHooks(t, w.nodes[i].at, w.nodes[i].args...))
}

// partition cuts links of the primary until another member has replaced it.
func (w *haWorld) partition(t *testing.T, fault string, links func(*haMember) []*link) {
	t.Helper()
	old := w.c.primary()
	w.fail(t, fault, func() {
		for _, l := range links(old) {
			l.cut(t)
		}
		w.waitForOther(t, old)
	}, links(old)...)
}

// cutReplication makes commits wait for standbys that the primary can't reach, until
// Patroni continues without them.
func (w *haWorld) cutReplication(t *testing.T) {
	t.Helper()
	l := w.c.primary().replication
	l.cut(t)
	w.fail(t, "replication cut", func() {}, l)
}

// cutClients makes the primary unreachable for the nodes, without a failover.
func (w *haWorld) cutClients(t *testing.T) {
	t.Helper()
	l, begun := w.c.primary().clients, time.Now()
	l.cut(t)
	eventually(t, time.Minute, "every node has failed", func() bool {
		return !slices.ContainsFunc(w.nodes[:], func(n *haNode) bool { return !n.failedSince(begun) })
	})
	w.fail(t, "primary out of reach (time after it is back)", func() { l.restore(t) })
}

// waitForOther waits until another member is the primary.
func (w *haWorld) waitForOther(t *testing.T, old *haMember) {
	t.Helper()
	eventually(t, 2*time.Minute, "another member is the primary", func() bool {
		now := w.c.primary()
		return now != nil && now != old
	})
}

// fail causes a fault and records how long it takes until every node serves again. Then
// it restores links.
func (w *haWorld) fail(t *testing.T, fault string, cause func(), links ...*link) {
	t.Helper()
	begun := time.Now()
	for _, n := range w.nodes {
		n.expect(begun)
	}
	cause()
	var last time.Duration
	eventually(t, 3*time.Minute, "every node serves after: "+fault, func() bool {
		last = 0
		for _, n := range w.nodes {
			at, steady := n.recovery()
			if !steady {
				return false
			}
			last = max(last, at.Sub(begun))
		}
		return true
	})
	for _, l := range links {
		l.restore(t)
	}
	if w.times[fault] == nil {
		w.faults = append(w.faults, fault)
	}
	w.times[fault] = append(w.times[fault], last)
	t.Logf("%s: recovered after %v", fault, last.Round(10*time.Millisecond))
	w.c.waitUntilHealthy(t)
}

// table lists the recovery times by fault.
func (w *haWorld) table() string {
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "fault\tcount\tmedian\tworst")
	for _, fault := range w.faults {
		list := slices.Sorted(slices.Values(w.times[fault]))
		fmt.Fprintf(tw, "%s\t%d\t%.1fs\t%.1fs\n", fault, len(list), list[len(list)/2].Seconds(), list[len(list)-1].Seconds())
	}
	_ = tw.Flush() // a strings.Builder doesn't fail
	return out.String()
}

// haPause is the pause of a worker between two requests.
const haPause = 40 * time.Millisecond

func (w *haWorld) startLoad(t *testing.T) {
	t.Helper()
	for i, n := range w.nodes {
		for k := range 3 {
			key, mark := w.rich.key, fmt.Sprintf("ha-rich/%d.%d", i, k)
			if k == 2 {
				key, mark = w.tight, fmt.Sprintf("ha-tight/%d", i)
			}
			w.workers.Go(func() { w.sendPaid(n, key, mark) })
		}
	}
	w.workers.Go(func() {
		w.create("/v1/images/batches", `{"model":"gpt-image-1.5","requests":[{"custom_id":"a","body":{"prompt":"A lighthouse"}}]}`)
	})
	w.workers.Go(func() {
		w.create("/v1/agents/runs", `{"model":"gpt-4o-mini","input":"Say yes."}`)
	})
	stopEvents := w.hooks.stream(t, 200*time.Millisecond, 2)
	w.workers.Go(func() {
		<-w.quit
		stopEvents()
	})
	t.Cleanup(w.stopLoad)
}

func (w *haWorld) stopLoad() {
	select {
	case <-w.quit:
	default:
		close(w.quit)
	}
	w.workers.Wait()
}

// running pauses a worker, and returns false once the load is stopped.
func (w *haWorld) running(pause time.Duration) bool {
	select {
	case <-w.quit:
		return false
	case <-time.After(pause):
		return true
	}
}

// sendPaid sends model requests to a node, one after the other.
func (w *haWorld) sendPaid(n *haNode, key, mark string) {
	account := &account{key: key}
	c := newClient(n.server.Load().URL)
	defer func() { c.close() }()
	for w.running(haPause) {
		if address := strings.TrimPrefix(n.server.Load().URL, "http://"); c.address != address {
			c.close()
			c = newClient("http://" + address)
		}
		sent := time.Now()
		o := c.do(account.paidRequest(mark, false), nil)
		if o.status == http.StatusPaymentRequired {
			continue // the budget is exhausted
		}
		n.observe(sent, acknowledged(o))
		if acknowledged(o) {
			w.served.Add(1)
		}
		o.body = nil
		w.mu.Lock()
		w.outcomes = append(w.outcomes, o)
		w.mu.Unlock()
	}
}

// create creates objects and retries each with its Idempotency-Key until a node
// accepts it.
func (w *haWorld) create(path, body string) {
	client := &http.Client{Timeout: callTimeout}
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s-%d", filepath.Base(path), i)
		for attempt := 0; ; attempt++ {
			if !w.running(100 * time.Millisecond) {
				return
			}
			id, ok := w.createOnce(client, w.nodes[(i+attempt)%len(w.nodes)].server.Load().URL+path, key, body)
			if ok {
				w.mu.Lock()
				w.created[key] = path + "/" + id
				w.mu.Unlock()
				break
			}
		}
	}
}

func (w *haWorld) createOnce(client *http.Client, url, key, body string) (id string, ok bool) {
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return "", false
	}
	req.Header.Set("Authorization", "Bearer "+w.test)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return "", false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	var made struct{ ID string }
	if err != nil || res.StatusCode >= 300 || json.Unmarshal(text, &made) != nil || made.ID == "" {
		return "", false
	}
	return made.ID, true
}

// check compares the acknowledged requests, objects and events with the database.
func (w *haWorld) check(t *testing.T) {
	t.Helper()
	url, d := w.nodes[0].server.Load().URL, w.hooks.d
	w.checkCreated(t, url)
	w.hooks.waitUntilDelivered(t, 3*time.Minute)
	events := w.checkEvents(t)
	// Killed nodes are evicted after a minute. Then their requests are recovered, and after that their leases.
	eventually(t, 5*time.Minute, "all requests are settled", func() bool {
		return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled") == 0 && count(t, d, "SELECT count(*) FROM nodes") == len(w.nodes) &&
			count(t, d, "SELECT count(*) FROM spend_leases WHERE node_id NOT IN (SELECT id FROM nodes)") == 0
	})
	acked := w.checkRequests(t, d)
	if spent := int64(count(t, d, "SELECT coalesce(sum(credits), 0) FROM requests WHERE user_agent LIKE 'ha-tight/%'")); spent > int64(tightBudget*credits.Credit) {
		t.Errorf("got %d microcredits spent, want at most the budget of %d", spent, tightBudget*credits.Credit)
	}
	if alerts := count(t, d, "SELECT count(*) FROM events WHERE environment = 'live' AND type IN ('budget.threshold_reached', 'budget.exceeded')"); alerts != 4 {
		t.Errorf("got %d alerts of the budget, want one for 50, 80, 95 and 100%%", alerts)
	}
	for _, n := range w.nodes {
		stop(t, n.server.Load())
	}
	checkBalances(t, d)
	t.Logf("checked %d acknowledged model requests, %d jobs and runs, and %d events", acked, len(w.created), events)
}

// checkFormerPrimary checks what is reported about a primary that has become a standby,
// by a node with the address of that one server.
func (w *haWorld) checkFormerPrimary(t *testing.T) {
	t.Helper()
	old := w.c.primary()
	at := w.nodes[0].at
	at.DatabaseURL = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", old.clients.address)
	server := serve(t, at)
	w.c.switchOver(t, old)
	w.waitForOther(t, old)
	w.c.waitUntilHealthy(t)
	checkReadOnlyIsReported(t, at, server)
}

// checkCreated waits until every acknowledged job and run is completed.
func (w *haWorld) checkCreated(t *testing.T, url string) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for key, path := range w.created {
		var seen struct{ Status string }
		eventually(t, 3*time.Minute, path+" ends", func() bool {
			o := call(url, request{mark: "check", method: "GET", path: path, key: w.test})
			return o.status == http.StatusOK && json.Unmarshal(o.body, &seen) == nil && slices.Contains([]string{"completed", "failed", "cancelled", "incomplete"}, seen.Status)
		})
		if seen.Status != "completed" {
			wrong.add("%s (%s): got status %s, want completed", path, key, seen.Status)
		}
	}
	// A retry returns the object of the first attempt. Two are not acknowledged when the load ends.
	if n := count(t, w.hooks.d, "SELECT (SELECT count(*) FROM media_jobs) + (SELECT count(*) FROM agent_runs)"); n > len(w.created)+2 {
		wrong.add("got %d jobs and runs, want at most %d", n, len(w.created)+2)
	}
}

// checkEvents checks that every event arrived. Signed URLs in the body of a job's
// event differ from the stored ones, so it doesn't compare bodies.
func (w *haWorld) checkEvents(t *testing.T) (n int) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	stored := w.hooks.storedEvents(t)
	w.hooks.checkStored(wrong, stored)
	box := w.hooks.inboxes[0]
	for id, e := range stored {
		isAlert := strings.HasPrefix(string(e.kind), "budget.") // of live, which has no endpoint
		if !isAlert && !box.has(id) {
			wrong.add("%s never arrived", id)
		}
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	for _, complaint := range box.wrong {
		wrong.add("%s", complaint)
	}
	return len(stored)
}

// checkRequests compares the responses with the log.
func (w *haWorld) checkRequests(t *testing.T, d *db.DB) (acked int) {
	t.Helper()
	type logged struct {
		status, credits int64
		source          string
	}
	log := map[string]logged{}
	rows, err := d.Query(t.Context(), "SELECT id, coalesce(status, 0), credits, coalesce(usage_source, '') FROM requests WHERE user_agent LIKE 'ha-%'")
	err = db.Each(rows, err, func(r db.Row) error {
		var id string
		var l logged
		err := r.Scan(&id, &l.status, &l.credits, &l.source)
		log[id] = l
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range w.outcomes {
		l, found := log[o.id]
		switch {
		case acknowledged(o):
			acked++
			if !found || l.credits == 0 || l.status != http.StatusOK && l.source != "recovered" {
				wrong.add("acknowledged, but logged as %+v (found %t): %v", l, found, o)
			}
		case o.status != 0 && found && l.status == http.StatusOK:
			wrong.add("logged as served: %v", o)
		case o.status != 0 && o.status != http.StatusServiceUnavailable:
			wrong.add("unexpected response: %v", o)
		}
	}
	return acked
}
