package chaos

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// returnTime is how long the server may need after the database is back.
const returnTime = 10 * time.Second

// outage is a way to cut off the database.
type outage struct {
	begin, end func() error
}

// TestDatabaseOutageReturns503AndRecovers cuts off the database under load. No request
// hangs, no response is wrong, and the server recovers without a restart.
func TestDatabaseOutageReturns503AndRecovers(t *testing.T) {
	t.Parallel()
	t.Run("postgres dies", func(t *testing.T) {
		t.Parallel()
		cluster, err := dbtest.StartCluster()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cluster.Stop(); err != nil {
				t.Error(err)
			}
		})
		at := program.Place{Dir: t.TempDir(), DatabaseURL: cluster.URL()}
		surviveOutage(t, at, serve(t, at), outage{begin: cluster.Kill, end: cluster.Restart})
	})
	t.Run("postgres is out of reach", func(t *testing.T) {
		t.Parallel()
		network, address := newNetwork(t, dbtest.Address(t, "postgres"))
		at := program.Place{Dir: t.TempDir(), DatabaseURL: address}
		// Noticing a silent connection takes longer.
		surviveOutage(t, at, serve(t, at), outage{begin: network.cut, end: network.restore})
	})
	t.Run("sqlite on a full disk", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Dir: t.TempDir()}
		server := serve(t, at)
		surviveOutage(t, at, server, fullDisk(t, server.Pid()))
	})
}

// surviveOutage checks a server under load during and after an outage.
func surviveOutage(t *testing.T, at program.Place, server *program.Server, away outage) {
	key := newKey(t, at)
	const clients = 24
	load := startLoad(t, server.URL, key, "outage", clients)
	eventually(t, 30*time.Second, "the load runs", func() bool { return load.succeeded(time.Time{}) >= 200 })

	if err := away.begin(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	eventually(t, 30*time.Second, "requests end during the outage", func() bool { return len(load.since(begun)) >= clients/2 })
	during := load.since(begun)
	wrong := &failures{t: t}
	for _, o := range during {
		if o.status != http.StatusServiceUnavailable || o.code() != "storage_unavailable" {
			wrong.add("during the outage: got %v\n%s", o, o.body)
		}
	}
	wrong.done()
	if o := get(server.URL, "/healthz"); o.status != http.StatusOK {
		t.Errorf("got %v from /healthz during the outage, want 200", o)
	}
	// A connection that no request has used may still work for a moment.
	eventually(t, 30*time.Second, "the server is not ready", func() bool { return get(server.URL, "/readyz").status == http.StatusServiceUnavailable })

	ending := time.Now()
	if err := away.end(); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	eventually(t, returnTime, "the server serves again", func() bool { return load.succeeded(ending) >= 100 })
	eventually(t, returnTime, "the server is ready again", func() bool { return get(server.URL, "/readyz").status == http.StatusOK })
	t.Logf("served again %v after the store was back; %d calls during the outage", time.Since(ended).Round(time.Millisecond), len(during))

	outcomes := load.stop()
	checkWhole(t, outcomes)
	checkLogged(t, outcomes, export(t, server.URL, key), acknowledged)
	d := open(t, at)
	eventually(t, returnTime, "all completed requests are settled", func() bool {
		return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled AND user_agent LIKE 'outage/%'") == 0
	})
}

// checkWhole checks that every response is complete, including the end marker of
// streams.
func checkWhole(t *testing.T, outcomes []*outcome) {
	t.Helper()
	wrong := &failures{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		if !o.whole || acknowledged(o) && o.streamed && !strings.HasSuffix(string(o.body), "data: [DONE]\n\n") {
			wrong.add("truncated response: %v\n…%s", o, o.body[max(0, len(o.body)-200):])
		}
	}
}
