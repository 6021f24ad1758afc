package dbtest

import (
	"os"
	"sync"
	"testing"
)

// URLVariable names the environment variable with the address of a PostgreSQL
// server that the tests may use; they need the right to create databases.
const URLVariable = "TURNPIKE_TEST_DATABASE_URL"

// processCluster is shared by the tests of one process. Nothing stops it: its
// supervisor does when the process ends.
var processCluster = sync.OnceValues(StartCluster)

// URL returns the address of a PostgreSQL server: the one in URLVariable, else a
// throw-away one of this test process, started on first use. It never skips: a
// test that cannot have its server fails, because a suite that passes without
// one has shown nothing.
func URL(t testing.TB) string {
	t.Helper()
	url, err := serverURL()
	if err != nil {
		t.Fatalf("this test needs PostgreSQL: %v", err)
	}
	return url
}

func serverURL() (string, error) {
	if url := os.Getenv(URLVariable); url != "" {
		return url, nil
	}
	cluster, err := processCluster()
	if err != nil {
		return "", err
	}
	return cluster.URL(), nil
}
