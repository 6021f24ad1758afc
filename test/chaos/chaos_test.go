// Package chaos crashes the real program, its database and its disk, and checks that no
// acknowledged data is lost.
package chaos

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
	"turnpike/test/smoke"
)

// full selects the long form of the tests, which `make chaos` runs.
var full = os.Getenv("TURNPIKE_CHAOS") == "full"

func TestMain(m *testing.M) {
	smoke.Only(TestBudgetIsExactAfterKill9, TestBudgetIsExactAfterKill9BeforeCostsArePosted, TestEachMonthGetsExactlyItsBudgetWhenItChangesUnderLoad,
		TestEveryAnsweredCallIsLoggedAfterKill9, TestEveryEventIsDeliveredDespiteKill9, TestRunSurvivesKill9, TestHostileInputsTakeBoundedMemory)
	program.Main(m)
}

// longOnly skips the test in the short form, which CI runs. cheaper names the tests
// that check the same guarantee there.
func longOnly(t *testing.T, cheaper string) {
	t.Helper()
	if !full {
		t.Skip("long form only; in CI: " + cheaper)
	}
}

func binary(t *testing.T) program.Binary {
	t.Helper()
	b, err := program.Self()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// eachEngine runs fn with an empty database of each engine.
func eachEngine(t *testing.T, fn func(t *testing.T, at program.Place)) {
	t.Helper()
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := program.Place{Dir: t.TempDir()}
			if engine == "postgres" {
				at.DatabaseURL = dbtest.Address(t, engine)
			}
			fn(t, at)
		})
	}
}

// unlimited removes the rate limits, so that every request has an entry in the log.
var unlimited = []string{"--limits-live-requests-per-minute", "0", "--limits-test-requests-per-minute", "0",
	"--limits-reads-per-minute", "0", "--limits-workspace-reads-per-minute", "0",
	"--limits-writes-per-minute", "0", "--limits-workspace-writes-per-minute", "0"}

// serve starts a server and kills it when the test ends.
func serve(t *testing.T, at program.Place, args ...string) *program.Server {
	t.Helper()
	return serveWith(t, at, slices.Concat(unlimited, args)...)
}

// serveWith is serve with the default limits.
func serveWith(t *testing.T, at program.Place, args ...string) *program.Server {
	t.Helper()
	s, err := binary(t).Serve(at, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("end of the server log:\n%s", s.Log())
		}
	})
	return s
}

// newKey creates a test key with the CLI.
func newKey(t *testing.T, at program.Place) string {
	t.Helper()
	out, errOut, err := binary(t).Run(at, "keys", "create", "--env", "test", "--json")
	if err != nil {
		t.Fatalf("keys create: %v\n%s", err, errOut)
	}
	var key struct{ Value string }
	if err := json.Unmarshal([]byte(out), &key); err != nil || key.Value == "" {
		t.Fatalf("keys create --json printed no value (%v):\n%s", err, out)
	}
	return key.Value
}

// open opens the database that a server may be using.
func open(t *testing.T, at program.Place) *db.DB {
	t.Helper()
	address := at.DatabaseURL
	if address == "" {
		address = filepath.Join(at.Dir, "turnpike.db")
	}
	d, err := db.Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func count(t *testing.T, d *db.DB, query string, args ...any) int {
	t.Helper()
	var n int64
	if err := d.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// evict removes a node from the cluster, as other nodes do after a minute without its
// heartbeats.
func evict(t *testing.T, d *db.DB, id string) {
	t.Helper()
	if err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), "DELETE FROM nodes WHERE id = $1", id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// evictAll evicts every node, when all of them are dead.
func evictAll(t *testing.T, d *db.DB) {
	t.Helper()
	rows, err := d.Query(t.Context(), "SELECT id FROM nodes")
	ids, err := db.All(rows, err, func(r db.Row) (id string, err error) {
		err = r.Scan(&id)
		return id, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		evict(t, d, id)
	}
}

// eventually polls a condition of another process.
func eventually(t *testing.T, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("timed out after %v waiting until %s", patience, what)
		}
	}
}
