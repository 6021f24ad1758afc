package dashboard_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/dashboard"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
	"turnpike/test/sampledata"
)

// All pages together read fewer rows than a third of each large table, so none of them slows down as the tables grow.
// PostgreSQL counts the rows.
func TestPagesReadABoundedNumberOfRows(t *testing.T) {
	t.Parallel()
	const (
		// Entries of the log, deliveries and events, each. A page may scan 10,000 of them, and on a busy machine a few
		// pages do, so a third of them is more than five such scans.
		filled = 150_000
		batch  = 5_000 // of one statement, whose time is limited
		first  = 1_000_000_000_000_000
	)
	cfg := sampledata.Config(t, "postgres")
	s := harness.Start(t, cfg, harness.NewClock())
	w := sampledata.Fill(t, s, "acme", func(text string) string { return text })
	b := member(t, s, w.Workspace, accounts.Owner)
	tables := map[string]string{
		"requests": `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id, created_at, settled, status, model, provider, reserved, credits, simulated_credits, latency_us, upstream_us)
			SELECT $1 || i, $2, 'test', $3, 'tp_test_…abcd', '192.0.2.1', 'POST', '/v1/chat/completions', 'test', 'node_0', $4, TRUE, 200, 'gpt-4o', 'openai', 0, 0, 10, 5000, 4900 FROM generate_series($5::bigint, $5::bigint + $6::bigint - 1) AS i`,
		"events": `INSERT INTO events (id, workspace_id, environment, type, sample, created_at, body)
			SELECT $1 || i, $2, 'test', 'agent.run.completed', $3 = '', $4, '{}' FROM generate_series($5::bigint, $5::bigint + $6::bigint - 1) AS i`,
		"deliveries": `INSERT INTO deliveries (id, event_id, endpoint_id, workspace_id, environment, type, status, attempts, tries, event_at, created_at, finished_at)
			SELECT $1 || i, 'evt_0', $3, $2, 'test', 'agent.run.completed', 'succeeded', 1, 1, $4, $4, $4 FROM generate_series($5::bigint, $5::bigint + $6::bigint - 1) AS i`,
	}
	exec := func(query string, args ...any) {
		t.Helper()
		err := s.DB.Write(t.Context(), func(tx *db.Tx) error {
			if err := tx.DisableTimeouts(t.Context()); err != nil { // these statements write many rows
				return err
			}
			_, err := tx.Exec(t.Context(), query, args...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	at := s.Clock.Now().Add(-2 * time.Hour) // the replay of the sample data, which may still run, reads the last hour
	for table, of := range map[string][2]string{"requests": {ids.Request, w.KeyID}, "events": {ids.Event, w.EndpointID}, "deliveries": {ids.Delivery, w.EndpointID}} {
		for from := 0; from < filled; from += batch {
			exec(tables[table], ids.Floor(of[0], at)[:len(of[0])+10], w.Workspace.ID, of[1], at.UnixMicro(), int64(first+from), int64(batch))
		}
		exec("ANALYZE " + table)
	}
	n := 0
	for _, rt := range dashboard.Routes() {
		path, _ := w.Path(t, rt, w.Workspace, accounts.Test)
		if rt.Method == http.MethodGet && rt.Workspace && !rt.Download && !rt.Data && rt.Scope != "content:read" && !strings.HasSuffix(path, "/rotate") {
			b.get(t, path)
			n++
		}
	}
	if n < 50 {
		t.Fatalf("opened %d pages, want all", n)
	}
	// Connections report what they read when they end, which is later than Close.
	if err := s.App.Close(); err != nil {
		t.Fatal(err)
	}
	closed, err := db.Value[string](s.DB.QueryRow(t.Context(), `SELECT clock_timestamp()::text`))
	if err != nil {
		t.Fatal(err)
	}
	s.DB.Close()
	d, err := app.OpenDatabase(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s.Eventually(t, func() bool {
		open, err := db.Value[int64](d.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND backend_start < $1::text::timestamptz`, closed))
		return err == nil && open == 0
	})
	for table := range tables {
		read, err := db.Value[int64](d.QueryRow(t.Context(), `SELECT CAST(COALESCE(sum(seq_tup_read + COALESCE(idx_tup_fetch, 0)), 0) AS BIGINT) FROM pg_stat_user_tables WHERE relname LIKE $1`, table+"%"))
		if err != nil || read == 0 || read >= filled/3 {
			t.Errorf("the pages read %d rows of %s (%v), want fewer than %d", read, table, err, filled/3)
		}
		t.Logf("%d pages read %d rows of %s", n, read, table)
	}
}
