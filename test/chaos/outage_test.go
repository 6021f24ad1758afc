package chaos

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// returnTime is how long after the store is back the server may need to serve.
const returnTime = 10 * time.Second

// outage is a way for the store to be away.
type outage struct {
	begin, end func() error
}

// TestStorageOutageAnswers503AndRecovers takes the store away under load.
// Nobody hangs, nobody is lied to, and the server comes back by itself.
func TestStorageOutageAnswers503AndRecovers(t *testing.T) {
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
		at := program.Place{Folder: t.TempDir(), DatabaseURL: cluster.URL()}
		endure(t, at, serve(t, at), outage{begin: cluster.Kill, end: cluster.Restart})
	})
	t.Run("postgres is out of reach", func(t *testing.T) {
		t.Parallel()
		network, address := wire(t, dbtest.Address(t, "postgres"))
		at := program.Place{Folder: t.TempDir(), DatabaseURL: address}
		// Silence takes its time to be told from slowness.
		endure(t, at, serve(t, at), outage{begin: network.cut, end: network.mend})
	})
	t.Run("sqlite on a full disk", func(t *testing.T) {
		t.Parallel()
		at := program.Place{Folder: t.TempDir()}
		server := serve(t, at)
		endure(t, at, server, fullDisk(t, server.Pid()))
	})
}

// endure puts a server under load through an outage.
func endure(t *testing.T, at program.Place, server *program.Server, away outage) {
	key := newKey(t, at)
	const clients = 24
	load := startLoad(t, server.URL, key, "outage", clients)
	eventually(t, 30*time.Second, "the load runs", func() bool { return load.succeeded(time.Time{}) >= 200 })

	if err := away.begin(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	eventually(t, 30*time.Second, "calls end during the outage", func() bool { return len(load.since(begun)) >= clients/2 })
	during := load.since(begun)
	wrong := &complaints{t: t}
	for _, o := range during {
		if o.status != http.StatusServiceUnavailable || o.code() != "storage_unavailable" {
			wrong.add("while the store was away: %v\n%s", o, o.body)
		}
	}
	wrong.done()
	if o := get(server.URL, "/healthz"); o.status != http.StatusOK {
		t.Errorf("the process is well, but /healthz: %v", o)
	}
	if o := get(server.URL, "/readyz"); o.status != http.StatusServiceUnavailable {
		t.Errorf("the store is away, but /readyz: %v", o)
	}

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
	eventually(t, returnTime, "what was answered is settled", func() bool {
		return count(t, d, "SELECT count(*) FROM requests WHERE NOT settled AND user_agent LIKE 'outage/%'") == 0
	})
}

// checkWhole sees that every answer came to its end, streams with their mark
// of it.
func checkWhole(t *testing.T, outcomes []*outcome) {
	t.Helper()
	wrong := &complaints{t: t}
	defer wrong.done()
	for _, o := range outcomes {
		if !o.whole || acknowledged(o) && o.streamed && !strings.HasSuffix(string(o.body), "data: [DONE]\n\n") {
			wrong.add("cut short: %v\n…%s", o, o.body[max(0, len(o.body)-200):])
		}
	}
}
