package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/test/chaos/program"
)

// TestRekey changes the master key under a running server: it goes on, and so do
// its keys and webhook secrets when it has started with the new one. The old one
// opens nothing any more.
func TestRekey(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serveHooks(t, at)
		c := newCustomer(t, at)
		c.inbox(t, server.URL)
		goesOn := func(url string) {
			t.Helper()
			c.happen(t, 3)
			c.settle(t, 30*time.Second)
			c.check(t, url)
		}
		goesOn(server.URL)

		old, next := at, at
		if at.DatabaseURL == "" {
			path := filepath.Join(at.Folder, "master.key")
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			old.Env = []string{"TURNPIKE_MASTER_KEY=" + strings.TrimSpace(string(before))}
			refuses(t, program.Place{Folder: at.Folder, Env: []string{"TURNPIKE_NEW_MASTER_KEY=" + program.MasterKey}}, "leave it out", "rekey")
			if out := runs(t, at, "rekey"); !strings.Contains(out, path) {
				t.Errorf("it says %q", out)
			}
		} else {
			other := strings.Repeat("e", 64)
			refuses(t, at, "openssl rand", "rekey")
			changing := program.Place{Folder: at.Folder, DatabaseURL: at.DatabaseURL, Env: []string{"TURNPIKE_NEW_MASTER_KEY=" + other}}
			if out := runs(t, changing, "rekey"); strings.Contains(out, other) || !strings.Contains(out, "every node") {
				t.Errorf("it says %q", out)
			}
			next.Env = []string{"TURNPIKE_MASTER_KEY=" + other}
		}
		goesOn(server.URL)
		stop(t, server)
		for _, command := range [][]string{{"keys", "list"}, {"doctor"}, {"serve", "--listen", "127.0.0.1:0"}} {
			refuses(t, old, "wrong master key", command...)
		}
		goesOn(serveHooks(t, next).URL)
	})
}
