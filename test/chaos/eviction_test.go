package chaos

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestDatabaseOutageEvictsNoNode cuts three nodes off from the database for 90 seconds,
// longer than a heartbeat is valid, with open streams on each. No node is evicted, and
// streams that outlast the outage settle at their real cost. CI runs
// nodes.TestDatabaseOutageEvictsNoNode instead, with a test clock.
func TestDatabaseOutageEvictsNoNode(t *testing.T) {
	t.Parallel()
	if !full {
		t.Skip("takes four minutes: part of the long form")
	}
	const outage, streams = 90 * time.Second, 5
	address := dbtest.Address(t, "postgres")
	network, through := newNetwork(t, address)
	at := program.Place{Dir: t.TempDir(), DatabaseURL: address}
	over := make(chan struct{})
	provider := slowStream(t, over)
	settings := writeProviderConfig(t, at, provider)
	var servers []*program.Server
	for range 3 {
		servers = append(servers, serve(t, program.Place{Dir: t.TempDir(), DatabaseURL: through}, settings))
	}
	d := open(t, at)
	p := newAccount(t, at, servers[0].URL)
	p.setCredits(t, servers[0].URL, 1000*callBound)
	before := members(t, d)

	outcomes := make([]*outcome, 3*streams)
	var all sync.WaitGroup
	for i := range outcomes {
		r := p.paidRequest(fmt.Sprintf("outage/%d", i), true)
		r.timeout = 10 * time.Minute
		all.Go(func() { outcomes[i] = call(servers[i%3].URL, r) })
	}
	eventually(t, 30*time.Second, "the streams are open", func() bool {
		return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled AND user_agent LIKE 'outage/%'") == len(outcomes)
	})
	if err := network.cut(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(outage)
	if err := network.restore(); err != nil {
		t.Fatal(err)
	}
	// Another recovery would evict late nodes.
	time.Sleep(100 * time.Second)
	close(over)
	all.Wait()
	for _, o := range outcomes {
		if o.status != http.StatusOK || !o.whole || !strings.HasSuffix(string(o.body), "data: [DONE]\n\n") {
			t.Errorf("got %v, want a stream that outlasts the outage\n%s", o, o.body)
		}
	}
	if after := members(t, d); after != before {
		t.Errorf("got nodes %s after the outage, want %s", after, before)
	}
	for _, s := range servers {
		if o := get(s.URL, "/readyz"); o.status != http.StatusOK {
			t.Errorf("after the outage: got %v, want ready", o)
		}
	}
	stop(t, servers...)
	if n := count(t, d, "SELECT count(*) FROM requests WHERE usage_source = 'recovered'"); n != 0 {
		t.Errorf("got %d recovered requests, want 0", n)
	}
	checkBalances(t, d)
}

// members returns the IDs of all nodes.
func members(t *testing.T, d *db.DB) (ids string) {
	t.Helper()
	if err := d.QueryRow(t.Context(), "SELECT string_agg(id, ' ' ORDER BY id) FROM nodes").Scan(&ids); err != nil {
		t.Fatal(err)
	}
	return ids
}
