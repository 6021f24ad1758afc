package chaos

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"turnpike/internal/db/dbtest"
	"turnpike/test/chaos/program"
)

// TestBackupUnderLoadHasEveryAcknowledgedRequest backs up a busy server and
// restores it. Everything acknowledged before the start of the backup is there, a
// corrupt byte is detected, and the restored server waits for its operator.
func TestBackupUnderLoadHasEveryAcknowledgedRequest(t *testing.T) {
	longOnly(t, "backup.TestBackupCanBeFetchedFromEveryLocation, backup.TestOneCorruptByteIsDetected")
	t.Parallel()
	clients, enough := 16, 300
	if full {
		clients, enough = 64, 20_000
	}
	eachEngine(t, func(t *testing.T, at program.Place) {
		server := serve(t, at)
		key := newKey(t, at)
		l := startLoad(t, server.URL, key, "backup", clients)
		loaded := time.Now()
		// A slow machine backs up after a minute of what it can serve.
		eventually(t, 5*time.Minute, "there is load", func() bool {
			n := l.succeeded(time.Time{})
			return n >= enough || n >= 300 && time.Since(loaded) > time.Minute
		})
		before := slices.DeleteFunc(l.since(time.Time{}), func(o *outcome) bool { return !acknowledged(o) })
		to := filepath.Join(t.TempDir(), "backups")
		begun := time.Now()
		mustRun(t, at, "backup", "--to", to)
		took := time.Since(begun)
		during := l.succeeded(begun)
		l.stop()
		t.Logf("%d requests acknowledged before the backup (%.0f per second) and %d during its %v (%.0f per second)",
			len(before), float64(len(before))/begun.Sub(loaded).Seconds(), during, took, float64(during)/took.Seconds())

		restored := program.Place{Dir: t.TempDir()}
		if at.DatabaseURL != "" {
			restored.DatabaseURL = dbtest.Empty(t, "postgres")
		} else {
			mustFail(t, restored, "backups don't contain the master key", "restore", "--from", to)
			copyFile(t, filepath.Join(at.Dir, "master.key"), filepath.Join(restored.Dir, "master.key"))
		}
		stranger := restored
		stranger.Env = []string{"TURNPIKE_MASTER_KEY=" + strings.Repeat("ab", 32)}
		mustFail(t, stranger, "wrong master key", "restore", "--from", to)
		mustFail(t, restored, "missing backup", "restore")
		mustFail(t, restored, "no complete backup", "restore", "--from", t.TempDir())
		mustFail(t, at, "missing location", "backup")
		corruptByte(t, to, func() {
			mustFail(t, restored, "is corrupt", "restore", "--from", to, "--check")
			mustFail(t, restored, "is corrupt", "restore", "--from", to)
		})
		if left, err := filepath.Glob(filepath.Join(restored.Dir, "*restore*")); err != nil || len(left) > 0 {
			t.Errorf("a failed restore left %v (%v)", left, err)
		}
		mustRun(t, restored, "restore", "--from", to)
		restoreToOtherEngine(t, at, to, len(before))
		server.Kill()
		occupied := "already has a database"
		if at.DatabaseURL != "" {
			occupied = "is not empty"
		}
		mustFail(t, at, occupied, "restore", "--from", to)

		next := serveWith(t, restored)
		for _, path := range []string{"/v1/models", "/openai/v1/models", "/mcp", "/readyz"} {
			if o := call(next.URL, request{mark: "held", method: "GET", path: path, key: key}); o.status != http.StatusServiceUnavailable || !strings.Contains(string(o.body), "restored from a backup") && path != "/readyz" {
				t.Errorf("got %v for %s from a held server, want 503", o, path)
			}
		}
		mustFail(t, restored, "the server is held", "doctor")
		if out := mustRun(t, restored, "restore", "--resume"); !strings.Contains(out, "Resumed") {
			t.Errorf("restore --resume printed %q", out)
		}
		if out := mustRun(t, restored, "restore", "--resume"); !strings.Contains(out, "not held") {
			t.Errorf("a second restore --resume printed %q", out)
		}
		eventually(t, time.Minute, "the server resumes", func() bool {
			return call(next.URL, request{mark: "resumed", method: "GET", path: "/v1/models", key: key}).status == http.StatusOK
		})
		checkLogged(t, before, export(t, next.URL, key), acknowledged)
		d := open(t, restored)
		for _, table := range []string{"scoped_tokens", "sessions"} {
			if n := count(t, d, "SELECT count(*) FROM "+table); n > 0 {
				t.Errorf("got %d rows of %s after the restore, want 0", n, table)
			}
		}
		if n := count(t, d, "SELECT count(*) FROM nodes"); n != 1 {
			t.Errorf("got %d nodes, want the new one", n)
		}
	})
}

// restoreToOtherEngine restores a backup of SQLite to PostgreSQL, or the reverse.
func restoreToOtherEngine(t *testing.T, at program.Place, from string, acknowledged int) {
	t.Helper()
	other, key := program.Place{Dir: t.TempDir()}, program.MasterKey
	if at.DatabaseURL == "" {
		other.DatabaseURL = dbtest.Empty(t, "postgres")
		text, err := os.ReadFile(filepath.Join(at.Dir, "master.key"))
		if err != nil {
			t.Fatal(err)
		}
		key = strings.TrimSpace(string(text))
	}
	other.Env = []string{"TURNPIKE_MASTER_KEY=" + key}
	mustRun(t, other, "restore", "--from", from)
	if n := count(t, open(t, other), "SELECT count(*) FROM requests"); n < acknowledged {
		t.Errorf("got %d requests on the other engine, want at least %d", n, acknowledged)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// corruptByte changes a byte in the middle of a backup's database while fn runs.
func corruptByte(t *testing.T, to string, fn func()) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(to, "*", "turnpike.db"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("got databases %v (%v), want one", paths, err)
	}
	flip := func() {
		data, err := os.ReadFile(paths[0])
		if err == nil {
			data[len(data)/2] ^= 1
			err = os.WriteFile(paths[0], data, 0o600)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("change a byte: %w", err))
		}
	}
	flip()
	fn()
	flip()
}
