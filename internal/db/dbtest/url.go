package dbtest

import (
	"os"
	"sync"
	"testing"
)

// URLVariable names the environment variable with the address of a PostgreSQL
// server for the tests. They need the right to create databases.
const URLVariable = "TURNPIKE_TEST_DATABASE_URL"

// processCluster is shared by the tests of a process. Its supervisor stops it
// when the process ends.
var processCluster = sync.OnceValues(StartCluster)

// URL returns the address of a PostgreSQL server: the one in URLVariable, or a
// temporary one that is started on first use. It fails the test if there is
// none: a skipped suite proves nothing.
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
