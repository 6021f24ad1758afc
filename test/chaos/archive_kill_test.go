package chaos

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/chaos/program"
)

// TestKillDuringArchivingLosesAndDuplicatesNothing kills a server again and again while it archives its log, at different
// moments of writing, verifying and deleting. At the end the log has every entry once, and the archive no other file.
func TestKillDuringArchivingLosesAndDuplicatesNothing(t *testing.T) {
	longOnly(t, "archive.TestArchivingContinuesAfterAnyFailure")
	t.Parallel()
	const entries, days = 30_000, 3
	eachEngine(t, func(t *testing.T, at program.Place) {
		at.Env = append(at.Env, "TURNPIKE_AUDIT_ARCHIVE_TO="+filepath.Join(at.Dir, "archive"), "TURNPIKE_AUDIT_RETENTION_DAYS=1")
		server := serve(t, at)
		key := newKey(t, at)
		if o := call(server.URL, request{mark: "first", method: "GET", path: "/v1/models", key: key}); o.status != http.StatusOK {
			t.Fatalf("got %v", o)
		}
		eventually(t, time.Minute, "the request is logged", func() bool { return len(export(t, server.URL, key)) > 0 })
		server.Kill()
		d := open(t, at)
		fillOldLog(t, d, entries, days)

		kills := 0
		for delay := time.Duration(0); ; delay += 40 * time.Millisecond {
			server = serve(t, at)
			gone := time.Now().Add(delay)
			left := func() int { return count(t, d, "SELECT count(*) FROM requests WHERE user_agent = 'old'") }
			for time.Now().Before(gone) && left() > 0 {
				time.Sleep(5 * time.Millisecond)
			}
			if left() == 0 && count(t, d, "SELECT count(*) FROM log_archive_days WHERE state = 'dropped'") >= days {
				break
			}
			server.Kill()
			kills++
			// A dead node's claim lasts two minutes.
			exec(t, d, "DELETE FROM meta WHERE name = 'log_archive_claim'")
		}
		t.Logf("archived after %d kills", kills)
		seen := map[string]bool{}
		for _, e := range export(t, server.URL, key)["old"] {
			if seen[e.id] {
				t.Errorf("the log has %s twice", e.id)
			}
			seen[e.id] = true
		}
		if len(seen) != entries {
			t.Errorf("got %d of %d entries", len(seen), entries)
		}
		listed := count(t, d, "SELECT count(*) FROM log_archive_files")
		files, err := filepath.Glob(filepath.Join(at.Dir, "archive", "log", "*", "*", "*"))
		if err != nil || len(files) != listed {
			t.Errorf("got %d files, want the %d that are listed (%v)", len(files), listed, err)
		}
	})
}

// fillOldLog adds entries of past days, which are copies of the one that is there. On PostgreSQL, the days have
// partitions.
func fillOldLog(t *testing.T, d *db.DB, entries, days int) {
	t.Helper()
	const columns = "workspace_id, environment, key_id, key_hint, ip, method, path, node_id, settled, status, reserved, credits, simulated_credits"
	end := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -5)
	requests := audit.Requests
	requests.Span = db.Day
	if err := requests.Prepare(t.Context(), d, end.AddDate(0, 0, -days)); err != nil {
		t.Fatal(err)
	}
	err := d.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), "CREATE TABLE old_ids (id TEXT, created_at BIGINT)"); err != nil {
			return err
		}
		rows := make([][]any, entries)
		for i := range rows {
			at := end.Add(-time.Duration(i) * time.Duration(days) * 24 * time.Hour / time.Duration(entries))
			rows[i] = []any{ids.Floor(ids.Request, at)[:len(ids.Request)+10] + ids.New(ids.Request)[len(ids.Request)+10:], at.UnixMicro()}
		}
		if _, err := db.NewBulk("old_ids", "", "id text", "created_at bigint").Write(t.Context(), tx, rows); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), "INSERT INTO requests (id, created_at, user_agent, "+columns+") SELECT o.id, o.at, 'old', "+columns+
			" FROM (SELECT id, created_at AS at FROM old_ids) o, (SELECT "+columns+" FROM requests WHERE path = '/v1/models' LIMIT 1) r"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "DROP TABLE old_ids")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
