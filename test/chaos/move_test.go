package chaos

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestMoveToPostgreSQLKeepsEverything moves the data of a killed server. Afterwards its
// keys work, its log continues, and its spending still counts.
func TestMoveToPostgreSQLKeepsEverything(t *testing.T) {
	t.Parallel()
	here := program.Place{Dir: t.TempDir()}
	there := program.Place{Dir: here.Dir, DatabaseURL: dbtest.Empty(t, "postgres")}
	if err := os.WriteFile(filepath.Join(here.Dir, "master.key"), []byte(program.MasterKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	atTheBound := func() int64 { return callTokens }
	settings := writeProviderConfig(t, here, upstream(t, atTheBound, func() time.Duration { return 0 }))
	server := serve(t, here, settings)
	p := newAccount(t, here, server.URL)
	p.setCredits(t, server.URL, 15*callBound)
	if served, _ := p.sendAll(t, []*program.Server{server}, 10); served != 10 {
		t.Fatalf("got %d requests served, want 10", served)
	}
	mustFail(t, there, "another turnpike serve or move is running", "move")
	mustFail(t, here, "missing database", "move")
	server.Kill()

	other := program.Place{Dir: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	serve(t, other).Kill()
	mustFail(t, program.Place{Dir: here.Dir, DatabaseURL: other.DatabaseURL}, "is not empty", "move")

	// If PostgreSQL rejects the final commit, nothing was moved.
	mustRun(t, there, "migrate")
	target := open(t, there)
	exec(t, target, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not today''; END'`)
	exec(t, target, "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON workspaces DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
	mustFail(t, there, "not today", "move")
	for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"workspaces", "create", "anew"}} {
		mustFail(t, there, "has not been moved to PostgreSQL", command...)
	}
	mustRun(t, here, "keys", "list")
	exec(t, target, "DROP TRIGGER late ON workspaces")

	out := mustRun(t, there, "move", "--json")
	var moved struct {
		Tables, Rows int
		To           string
	}
	if err := json.Unmarshal([]byte(out), &moved); err != nil || moved.Tables < 30 || moved.Rows < 10 || moved.To == "" || strings.Contains(moved.To, "@") {
		t.Errorf("move --json printed %s (%v)", out, err)
	}
	for _, command := range [][]string{{"keys", "list"}, {"doctor"}, {"serve", "--listen", "127.0.0.1:0"}} {
		mustFail(t, here, "was moved to PostgreSQL at "+moved.To, command...)
	}
	mustFail(t, there, "was moved to PostgreSQL at "+moved.To, "move")

	server = serve(t, there, settings)
	if served, refused := p.sendAll(t, []*program.Server{server}, 10); served != 5 || refused != 5 {
		t.Errorf("got %d requests served and %d rejected after the move, want 5 served: the budget is for 15 and 10 were served before", served, refused)
	}
	log := export(t, server.URL, p.admin)
	for i := range 10 {
		if mark := fmt.Sprintf("crowd/%d", i); len(log[mark]) != 2 || log[mark][0].status != http.StatusOK {
			t.Errorf("%s: got log entries %v", mark, log[mark])
		}
	}
	stop(t, server)
	checkBalances(t, target)
	if n := count(t, target, "SELECT count(*) FROM requests_default"); n > 0 {
		t.Errorf("got %d log entries outside the monthly partitions, want 0", n)
	}

	mustRun(t, here, "move", "--undo")
	server = serve(t, here, settings)
	if served, _ := p.sendAll(t, []*program.Server{server}, 10); served != 5 {
		t.Errorf("got %d requests served on the old database, want 5", served)
	}
}

// TestMoveSurvivesALostCommitResponse checks that the old database stays locked after a
// lost commit response. The move may have succeeded, so an operator has to check.
func TestMoveSurvivesALostCommitResponse(t *testing.T) {
	longOnly(t, "TestMoveToPostgreSQLKeepsEverything")
	t.Parallel()
	here := program.Place{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(here.Dir, "master.key"), []byte(program.MasterKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, here).Kill()
	there := program.Place{Dir: here.Dir, DatabaseURL: dbtest.Empty(t, "postgres")}
	wire, address := dropResponses(t, there.DatabaseURL)
	wire.after("INSERT INTO workspaces")
	wire.hangUp(true)
	if err := wire.begin(); err != nil {
		t.Fatal(err)
	}
	mustFail(t, program.Place{Dir: here.Dir, DatabaseURL: address}, "the commit got no response. Check with turnpike keys list", "move")
	if n := wire.dropped(); n != 1 {
		t.Fatalf("got %d dropped commit responses, want 1", n)
	}
	mustFail(t, here, "was moved to PostgreSQL", "keys", "list")
	mustRun(t, here, "move", "--undo")
	if old, moved := mustRun(t, here, "keys", "list", "--json"), mustRun(t, there, "keys", "list", "--json"); old != moved || !strings.Contains(old, "key_") {
		t.Errorf("got keys %s in the old database and %s in the new one, want them equal", old, moved)
	}
}

func exec(t *testing.T, d *db.DB, statement string) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), statement)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustRun runs a command that must succeed.
func mustRun(t *testing.T, at program.Place, args ...string) string {
	t.Helper()
	out, errOut, err := binary(t).Run(at, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// mustFail runs a command that must fail with the given reason.
func mustFail(t *testing.T, at program.Place, why string, args ...string) {
	t.Helper()
	out, errOut, err := binary(t).Run(at, args...)
	if err == nil || !strings.Contains(out+errOut, why) {
		t.Errorf("%s: got %v, want an error with %q\n%s%s", strings.Join(args, " "), err, why, out, errOut)
	}
}
