package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// TestRekeyChangesTheMasterKey changes the master key under a running server, which
// keeps working. After a restart with the new master key, keys and webhook secrets
// still work. The old master key is rejected.
func TestRekeyChangesTheMasterKey(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serveHooks(t, at)
		c := newWebhookFixture(t, at)
		c.inbox(t, server.URL)
		goesOn := func(url string) {
			t.Helper()
			c.publishNow(t, 3)
			c.waitUntilDelivered(t, 30*time.Second)
			c.check(t, url)
		}
		goesOn(server.URL)

		old, next := at, at
		if at.DatabaseURL == "" {
			path := filepath.Join(at.Dir, "master.key")
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			old.Env = []string{"TURNPIKE_MASTER_KEY=" + strings.TrimSpace(string(before))}
			mustFail(t, program.Place{Dir: at.Dir, Env: []string{"TURNPIKE_NEW_MASTER_KEY=" + program.MasterKey}}, "unset it", "rekey")
			if out := mustRun(t, at, "rekey"); !strings.Contains(out, path) {
				t.Errorf("it says %q", out)
			}
		} else {
			other := strings.Repeat("e", 64)
			mustFail(t, at, "openssl rand", "rekey")
			changing := program.Place{Dir: at.Dir, DatabaseURL: at.DatabaseURL, Env: []string{"TURNPIKE_NEW_MASTER_KEY=" + other}}
			if out := mustRun(t, changing, "rekey"); strings.Contains(out, other) || !strings.Contains(out, "every node") {
				t.Errorf("it says %q", out)
			}
			next.Env = []string{"TURNPIKE_MASTER_KEY=" + other}
		}
		goesOn(server.URL)
		stop(t, server)
		for _, command := range [][]string{{"keys", "list"}, {"doctor"}, {"serve", "--listen", "127.0.0.1:0"}} {
			mustFail(t, old, "wrong master key", command...)
		}
		goesOn(serveHooks(t, next).URL)
	})
}
