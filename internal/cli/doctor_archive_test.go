package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"turnpike/internal/app"
	"turnpike/internal/config"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
)

// findingOf returns the finding of a check, which must exist once.
func findingOf(t *testing.T, findings []finding, check string) finding {
	t.Helper()
	var found []finding
	for _, f := range findings {
		if f.Check == check {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d findings of %q in %+v, want 1", len(found), check, findings)
	}
	return found[0]
}

func checkFinding(t *testing.T, got finding, ok bool, want string) {
	t.Helper()
	if got.OK != ok || !strings.Contains(got.Message, want) {
		t.Errorf("got %+v, want ok %t and %q", got, ok, want)
	}
}

// logEntry adds an entry to the request log.
func logEntry(t *testing.T, d *db.DB, at time.Time) {
	t.Helper()
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id, created_at, settled, status, reserved, credits, simulated_credits)
			VALUES ($1, 'ws_a', 'live', 'key_a', 'tp_…', '::1', 'POST', '/v1/chat/completions', '', 'node_x', $2, true, 200, 0, 0, 0)`, ids.Floor(ids.Request, at), at.UnixMicro())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoctorReportsTheLogArchive(t *testing.T) {
	t.Parallel()
	dbtest.EachAddress(t, func(t *testing.T, address string) {
		l := loadProviders(t, "{data: '"+t.TempDir()+"', master_key: "+strings.Repeat("ab", 32)+"}")
		if db.IsPostgresURL(address) {
			l.DatabaseURL = config.SecretURL(address)
		} else {
			l.Data = filepath.Dir(address)
		}
		store, err := app.OpenStore(t.Context(), l.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		check := func() finding {
			t.Helper()
			return findingOf(t, checkArchive(t.Context(), l, store.DB), "log archive")
		}
		archive := func() error {
			t.Helper()
			a, err := app.OpenArchive(store.DB, l.Config, "node_1", time.Now)
			if err != nil {
				t.Fatal(err)
			}
			return a.RunOnce(t.Context())
		}

		if got := checkArchive(t.Context(), l, store.DB); got != nil {
			t.Errorf("without an archive: got %+v, want nothing", got)
		}
		to := filepath.Join(t.TempDir(), "archive")
		l.Audit.Archive.To = config.SecretURL(to)
		checkFinding(t, check(), true, "no day is archived yet")
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("the check leaves %v in the archive (%v)", left, err)
		}

		oldest := time.Now().UTC().AddDate(0, 0, -10)
		logEntry(t, store.DB, oldest)
		checkFinding(t, check(), false, "a day of the request log has been due for ")

		if err := archive(); err != nil {
			t.Fatal(err)
		}
		checkFinding(t, check(), true, "archived until "+oldest.AddDate(0, 0, 1).Format(time.DateOnly)+", 1 entries")

		// A file is where a directory should be.
		blocked := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(blocked, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.Audit.Archive.To = config.SecretURL(blocked)
		checkFinding(t, check(), false, "write to audit.archive.to")
		logEntry(t, store.DB, oldest.AddDate(0, 0, 1))
		if err := archive(); err == nil {
			t.Fatal("archived to a file")
		}
		l.Audit.Archive.To = config.SecretURL(to)
		checkFinding(t, check(), false, "the last attempt to archive failed at ")
	})
}

func TestDoctorReportsTheReplica(t *testing.T) {
	// Not parallel: the database logs about the replica, and other tests read the process's log as the output of their commands.
	primary, standby := dbtest.StartReplicated(t)
	l := loadProviders(t, "{data: '"+t.TempDir()+"', database_url: '"+primary.URL()+"', master_key: "+strings.Repeat("ab", 32)+"}")
	store, err := app.OpenStore(t.Context(), l.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, f := range checkStorage(t.Context(), l) {
		if f.Check == "replica" {
			t.Errorf("without a replica: got %+v", f)
		}
	}
	check := func(url string) finding {
		t.Helper()
		l.ReplicaURL = config.SecretURL(url)
		return findingOf(t, checkStorage(t.Context(), l), "replica")
	}
	checkFinding(t, check(standby.URL()), true, "in use")
	checkFinding(t, check(primary.URL()), true, "unsuitable, so the primary is read instead: it is not a standby: it accepts writes; check database_replica_url")

	standby.Freeze(t)
	logEntry(t, store.DB, time.Now())
	checkFinding(t, check(standby.URL()), true, "so the primary is read instead; check the replication")
	if got := check(standby.URL()); !strings.HasPrefix(got.Message, "lags by more than ") {
		t.Errorf("got %+v, want a replica that lags", got)
	}

	if err := standby.Kill(); err != nil {
		t.Fatal(err)
	}
	checkFinding(t, check(standby.URL()), true, "unreachable, so the primary is read instead: ")
	if bad := failures(checkStorage(t.Context(), l)); bad != nil {
		t.Errorf("a replica that isn't used fails the check: %q", bad)
	}
}
