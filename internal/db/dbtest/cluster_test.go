package dbtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"turnpike/internal/db/dbtest"
)

func TestClusterKeepsAddressAndDataAcrossRestartAndKill(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	url := c.URL()
	dir := query(t, url, "SHOW data_directory")
	query(t, url, "CREATE TABLE kept (word TEXT)")
	query(t, url, "INSERT INTO kept VALUES ('before restart')")

	session, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := session.Ping(t.Context()); err == nil {
		t.Error("a session survived the restart of its server")
	}
	query(t, url, "INSERT INTO kept VALUES ('before kill')")

	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		conn.Close(t.Context())
		t.Error("a killed server accepts connections")
	}
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	if got, want := query(t, url, "SELECT string_agg(word, ', ' ORDER BY word) FROM kept"), "before kill, before restart"; got != want {
		t.Errorf("kept %q, want %q", got, want)
	}

	for range 2 {
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	assertGone(t, url, filepath.Dir(dir))
	if err := c.Restart(); err == nil {
		t.Error("a stopped cluster was restarted")
	}
}

func TestClusterCommitsSynchronously(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	for setting, want := range map[string]string{"synchronous_commit": "on", "fsync": "off", "max_connections": "300"} {
		if got := query(t, c.URL(), "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
}

// The process is this test binary, running the helper below.
func TestKilledTestProcessLeavesNoServer(t *testing.T) {
	t.Parallel()
	helper := exec.Command(os.Args[0], "-test.run=^TestHelperUsesServer$")
	helper.Env = append(os.Environ(), helperVariable+"=1", dbtest.URLVariable+"=")
	// A separate process group, killed as a whole, as a shell or CI system does.
	helper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Helper and supervisor share this pipe. It closes when both have exited.
	alive, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	helper.Stderr = theirs
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()

	var url, dir string
	line, err := bufio.NewReader(out).ReadString('\n')
	if _, scanErr := fmt.Sscanf(line, "%s %s\n", &url, &dir); scanErr != nil {
		t.Errorf("the helper said %q: %v", line, errors.Join(err, scanErr))
	}
	if err := syscall.Kill(-helper.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // killed on purpose
	if err := alive.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(alive)
	if err != nil || len(said) != 0 {
		t.Errorf("the supervisor did not end quietly: %q, %v", said, err)
	}
	if !t.Failed() {
		assertGone(t, url, dir)
	}
}

const helperVariable = "TURNPIKE_DBTEST_HELPER"

func TestHelperUsesServer(t *testing.T) {
	if os.Getenv(helperVariable) == "" {
		t.Skip("runs only as the helper process of TestKilledTestProcessLeavesNoServer")
	}
	url := dbtest.URL(t)
	fmt.Println(url, filepath.Dir(query(t, url, "SHOW data_directory")))
	time.Sleep(time.Hour) // until killed; select {} alone would be a deadlock
}

func startCluster(t *testing.T) *dbtest.Cluster {
	t.Helper()
	c, err := dbtest.StartCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// query runs one statement on its own connection and returns its first value.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var value string
	if err := conn.QueryRow(t.Context(), sql).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func assertGone(t *testing.T, url, dir string) {
	t.Helper()
	if !strings.Contains(filepath.Base(dir), "turnpike-postgres-") {
		t.Fatalf("not a cluster's directory: %s", dir)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", dir, err)
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))); err == nil {
		conn.Close()
		t.Errorf("something still answers at %s", url)
	}
}
