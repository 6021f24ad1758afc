package chaos

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// reloadNode is a server with a configuration file.
type reloadNode struct {
	*program.Server
	at   program.Place
	file string
	load *load
}

func startReloadNode(t *testing.T, address string) *reloadNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "tp") // shorter than t.TempDir, because it contains a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &reloadNode{at: program.Place{Dir: dir, DatabaseURL: address}, file: filepath.Join(dir, "turnpike.yaml")}
	n.write(t, "1MiB")
	n.Server = serve(t, n.at, "--config", n.file)
	return n
}

func (n *reloadNode) write(t *testing.T, bodyBytes string) {
	t.Helper()
	if err := os.WriteFile(n.file, []byte("limits: {body_bytes: "+bodyBytes+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload applies a limit that the next requests show.
func (n *reloadNode) reload(t *testing.T, bodyBytes string) {
	t.Helper()
	n.write(t, bodyBytes)
	// The watcher may have been faster.
	if out := mustRun(t, n.at, "reload"); !strings.Contains(out, "Applied limits.body_bytes.") && !strings.Contains(out, "has changed") {
		t.Errorf("turnpike reload printed %q", out)
	}
}

func (n *reloadNode) accepts(t *testing.T, key string, want bool) {
	t.Helper()
	o := call(n.URL, request{mark: "large", method: "POST", path: "/v1/scoped_tokens", key: key, body: fmt.Sprintf(`{"scopes":["models:read"],"reader":%q}`, strings.Repeat("x", 2000))})
	if got := o.status != http.StatusRequestEntityTooLarge; got != want {
		t.Errorf("got status %d for a body of 2 kB, want it accepted: %t", o.status, want)
	}
}

// TestReloadOnEachNode reloads the nodes of a cluster one after another, under load.
func TestReloadOnEachNode(t *testing.T) {
	t.Parallel()
	address := dbtest.Address(t, "postgres")
	first, second := startReloadNode(t, address), startReloadNode(t, address)
	key := newKey(t, first.at)
	for _, n := range []*reloadNode{first, second} {
		n.load = startLoad(t, n.URL, key, filepath.Base(n.at.Dir), 4)
	}
	for _, n := range []*reloadNode{first, second} {
		eventually(t, time.Minute, "there is load", func() bool { return n.load.succeeded(time.Time{}) >= 20 })
	}
	doctor := func(want string) {
		t.Helper()
		out, _, _ := binary(t).Run(first.at, "doctor") // other checks may fail
		if !strings.Contains(out, want) {
			t.Errorf("doctor printed\n%s\nwant %q", out, want)
		}
	}
	doctor("all running nodes have the same settings")
	first.reload(t, "1KiB")
	first.accepts(t, key, false)
	second.accepts(t, key, true)
	doctor("the nodes have different settings")
	second.reload(t, "1KiB")
	second.accepts(t, key, false)
	doctor("all running nodes have the same settings")

	// A bad file on one node changes nothing there.
	second.write(t, "many")
	mustFail(t, second.at, second.file+":1", "reload")
	second.accepts(t, key, false)
	doctor("all running nodes have the same settings")

	for _, n := range []*reloadNode{first, second} {
		for _, o := range n.load.stop() {
			if !acknowledged(o) {
				t.Errorf("a request failed during the reloads: %v", o)
			}
		}
	}
}
