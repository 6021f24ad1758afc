package chaos

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestReadOnlyDatabaseIsReported makes a database accept only reads, as a demoted
// primary does, while a server uses it.
func TestReadOnlyDatabaseIsReported(t *testing.T) {
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
	server := serve(t, at)
	key := newKey(t, at)
	admin, err := pgx.Connect(t.Context(), cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	setReadOnly := func(value string) {
		for _, statement := range []string{"ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
			if _, err := admin.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	setReadOnly("on")
	checkReadOnlyIsReported(t, at, server)
	setReadOnly("off")
	eventually(t, returnTime, "the server is ready again", func() bool { return get(server.URL, "/readyz").status == http.StatusOK })
	serves(t, server.URL, key)
}

// checkReadOnlyIsReported checks what a server and the commands say about a database
// that accepts only reads.
func checkReadOnlyIsReported(t *testing.T, at program.Place, server *program.Server) {
	t.Helper()
	eventually(t, 30*time.Second, "/readyz says that the database accepts only reads", func() bool {
		o := get(server.URL, "/readyz")
		return o.status == http.StatusServiceUnavailable && strings.Contains(string(o.body), "accepts only reads")
	})
	if o := get(server.URL, "/healthz"); o.status != http.StatusOK {
		t.Errorf("got %v from /healthz, want 200", o)
	}
	const remedy = "check that database_url leads to the primary"
	if out, errOut, err := binary(t).Run(at, "doctor"); err == nil || !strings.Contains(out+errOut, remedy) {
		t.Errorf("doctor: got %v, want a failure that says %q\n%s\n%s", err, remedy, out, errOut)
	}
	other := at
	other.Dir = t.TempDir()
	if second, err := binary(t).Serve(other); err == nil {
		second.Kill()
		t.Error("a server started on a database that accepts only reads")
	} else if !strings.Contains(err.Error(), remedy) {
		t.Errorf("serve: got %v, want it to say %q", err, remedy)
	}
	if out, errOut, err := binary(t).Run(at, "keys", "create", "--env", "test"); err == nil || !strings.Contains(errOut, remedy) {
		t.Errorf("keys create: got %v, want a failure that says %q\n%s\n%s", err, remedy, out, errOut)
	}
}
