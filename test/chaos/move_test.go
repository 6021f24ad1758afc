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

// TestMoveToPostgreSQL moves what a killed server has left: there its keys work,
// its log goes on, and what was spent is spent.
func TestMoveToPostgreSQL(t *testing.T) {
	t.Parallel()
	here := program.Place{Folder: t.TempDir()}
	there := program.Place{Folder: here.Folder, DatabaseURL: dbtest.Empty(t, "postgres")}
	if err := os.WriteFile(filepath.Join(here.Folder, "master.key"), []byte(program.MasterKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	atTheBound := func() int64 { return callTokens }
	settings := metered(t, here, upstream(t, atTheBound, func() time.Duration { return 0 }))
	server := serve(t, here, settings)
	p := newPayer(t, here, server.URL)
	p.setCredits(t, server.URL, 15*callBound)
	if served, _ := p.crowd(t, []*program.Server{server}, 10); served != 10 {
		t.Fatalf("%d of 10 calls were served", served)
	}
	refuses(t, there, "another turnpike serve is running", "move")
	refuses(t, here, "say where to", "move")
	server.Kill()

	other := program.Place{Folder: t.TempDir(), DatabaseURL: dbtest.Address(t, "postgres")}
	serve(t, other).Kill()
	refuses(t, program.Place{Folder: here.Folder, DatabaseURL: other.DatabaseURL}, "is not empty", "move")

	// What PostgreSQL refuses at the very end was not moved.
	runs(t, there, "migrate")
	target := open(t, there)
	exec(t, target, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not today''; END'`)
	exec(t, target, "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON workspaces DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()")
	refuses(t, there, "not today", "move")
	for _, command := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"workspaces", "create", "anew"}} {
		refuses(t, there, "has not been moved to PostgreSQL", command...)
	}
	runs(t, here, "keys", "list")
	exec(t, target, "DROP TRIGGER late ON workspaces")

	out := runs(t, there, "move", "--json")
	var moved struct {
		Tables, Rows int
		To           string
	}
	if err := json.Unmarshal([]byte(out), &moved); err != nil || moved.Tables < 30 || moved.Rows < 10 || moved.To == "" || strings.Contains(moved.To, "@") {
		t.Errorf("move --json printed %s (%v)", out, err)
	}
	for _, command := range [][]string{{"keys", "list"}, {"doctor"}, {"serve", "--listen", "127.0.0.1:0"}} {
		refuses(t, here, "was moved to PostgreSQL at "+moved.To, command...)
	}
	refuses(t, there, "was moved to PostgreSQL at "+moved.To, "move")

	server = serve(t, there, settings)
	if served, refused := p.crowd(t, []*program.Server{server}, 10); served != 5 || refused != 5 {
		t.Errorf("of 15 calls that are paid for 10 were made here, and %d there; %d were refused", served, refused)
	}
	log := export(t, server.URL, p.admin)
	for i := range 10 {
		if mark := fmt.Sprintf("crowd/%d", i); len(log[mark]) != 2 || log[mark][0].status != http.StatusOK {
			t.Errorf("%s is in the log as %v", mark, log[mark])
		}
	}
	stop(t, server)
	checkBooks(t, target)
	if n := count(t, target, "SELECT count(*) FROM requests_default"); n > 0 {
		t.Errorf("%d entries of the log are in no month", n)
	}

	runs(t, here, "move", "--undo")
	server = serve(t, here, settings)
	if served, _ := p.crowd(t, []*program.Server{server}, 10); served != 5 {
		t.Errorf("the old database is not as it was: %d of 10 calls were served", served)
	}
}

// TestMoveWhoseCommitIsNotAnswered: everything may be there, so nothing works on
// the old database until somebody has looked.
func TestMoveWhoseCommitIsNotAnswered(t *testing.T) {
	t.Parallel()
	here := program.Place{Folder: t.TempDir()}
	if err := os.WriteFile(filepath.Join(here.Folder, "master.key"), []byte(program.MasterKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, here).Kill()
	there := program.Place{Folder: here.Folder, DatabaseURL: dbtest.Empty(t, "postgres")}
	wire, address := swallow(t, there.DatabaseURL)
	wire.after("INSERT INTO workspaces")
	wire.hangUp(true)
	if err := wire.begin(); err != nil {
		t.Fatal(err)
	}
	refuses(t, program.Place{Folder: here.Folder, DatabaseURL: address}, "is not known. Look, with turnpike keys list", "move")
	if n := wire.swallowed(); n != 1 {
		t.Fatalf("%d commits were not answered", n)
	}
	refuses(t, here, "was moved to PostgreSQL", "keys", "list")
	runs(t, here, "move", "--undo")
	if old, moved := runs(t, here, "keys", "list", "--json"), runs(t, there, "keys", "list", "--json"); old != moved || !strings.Contains(old, "key_") {
		t.Errorf("the old database has %s, the new one %s", old, moved)
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

// runs runs a command that must succeed.
func runs(t *testing.T, at program.Place, args ...string) string {
	t.Helper()
	out, errOut, err := binary(t).Run(at, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// refuses runs a command that must fail and say why.
func refuses(t *testing.T, at program.Place, why string, args ...string) {
	t.Helper()
	out, errOut, err := binary(t).Run(at, args...)
	if err == nil || !strings.Contains(out+errOut, why) {
		t.Errorf("%s: %v, and not %q\n%s%s", strings.Join(args, " "), err, why, out, errOut)
	}
}
