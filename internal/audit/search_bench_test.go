package audit

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/internal/visibility"
)

// BenchmarkSearch measures a page and the histogram of the log for each filter. It fills
// the log with TURNPIKE_BENCH_ROWS entries of a month, by default 5 million:
//
//	go test -run '^$' -bench Search -benchtime 100x -timeout 1h ./internal/audit
func BenchmarkSearch(b *testing.B) {
	rows := 5_000_000
	if n, err := strconv.Atoi(os.Getenv("TURNPIKE_BENCH_ROWS")); err == nil {
		rows = n
	}
	one := func(n int64) db.Range { return db.Range{Min: &n} }
	keys := []string{ids.New(ids.Key), ids.New(ids.Key), ids.New(ids.Key)}
	now := time.Now()
	filters := map[string]Filter{
		"none": {}, "key": {KeyID: keys[0]}, "keys": {Search: Search{KeyIDs: keys[:2], Status: one(600)}}, "model": {Search: Search{Model: "none"}}, "model pattern": {Search: Search{Model: "none*"}},
		"status": {Search: Search{Status: one(600)}}, "latency": {Search: Search{Latency: one(60_000_000)}}, "cost": {Search: Search{Cost: one(1_000_000)}}, "error": {Search: Search{Error: "none"}},
		"path": {Search: Search{Path: "/none*"}}, "ip": {Search: Search{IP: "192.0.2.7"}}, "project": {Search: Search{Project: "none"}}, "provider": {Search: Search{Provider: "none"}}, "user": {EndUser: "none"},
		"range": {Since: now.AddDate(0, 0, -7), Until: now.AddDate(0, 0, -6), Search: Search{Model: "none*"}}, "all": {KeyID: keys[0], Search: Search{Model: "n*e", Path: "*none*", Status: one(400), Latency: one(1)}},
	}
	for _, engine := range dbtest.Engines {
		b.Run(engine, func(b *testing.B) {
			d := dbtest.Open(b, dbtest.Address(b, engine))
			vis := visibility.Filter{Tenant: visibility.Tenant{WorkspaceID: "ws", Environment: "live"}}
			fillLog(b, d, keys, rows)
			for _, name := range slices.Sorted(maps.Keys(filters)) {
				f := filters[name]
				b.Run(name, func(b *testing.B) {
					var times []time.Duration
					for b.Loop() {
						begun := time.Now()
						if _, err := List(b.Context(), d, vis, f, db.Page{Limit: 50}); err != nil {
							b.Fatal(err)
						}
						counted := f
						counted.Since, counted.Until = now.Add(-24*time.Hour), now
						if _, err := Count(b.Context(), d, vis, counted, db.Timeline{Start: counted.Since, Step: time.Hour, Steps: 25}); err != nil {
							b.Fatal(err)
						}
						times = append(times, time.Since(begun))
					}
					slices.Sort(times)
					b.ReportMetric(float64(times[len(times)*95/100].Microseconds())/1000, "p95-ms")
				})
			}
		})
	}
}

// fillLog adds entries that are spread over the last month.
func fillLog(b *testing.B, d *db.DB, keys []string, rows int) {
	b.Helper()
	const batch = 50_000
	begin := time.Now().AddDate(0, 0, -30)
	step := 30 * 24 * time.Hour / time.Duration(rows/batch+1)
	for from := 0; from < rows; from += batch {
		at := begin.Add(time.Duration(from/batch) * step)
		err := d.Write(b.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(b.Context(), fmt.Sprintf(`INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, project, user_agent, node_id, created_at, settled,
					status, error_code, model, provider, input_tokens, output_tokens, reserved, credits, simulated_credits, usage_source, latency_us, upstream_us)
				WITH RECURSIVE n (i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %d)
				SELECT $1 || CAST(1000000000000000 + n.i AS TEXT), 'ws', 'live', CASE n.i %% 3 WHEN 0 THEN '%s' WHEN 1 THEN '%s' ELSE '%s' END, 'tp_live_…abcd', '192.0.2.' || CAST(n.i %% 250 AS TEXT),
					'POST', '/v1/chat/completions', 'project-' || CAST(n.i %% 20 AS TEXT), 'bench', 'node_0', $2 + n.i, TRUE, CASE WHEN n.i %% 50 = 0 THEN 502 ELSE 200 END,
					CASE WHEN n.i %% 50 = 0 THEN 'upstream_error' END, 'model-' || CAST(n.i %% 10 AS TEXT), 'openai', 180, 154, 100, 90, 0, 'provider', 5000, 4900 FROM n`, batch, keys[0], keys[1], keys[2]),
				ids.Floor(ids.Request, at)[:len(ids.Request)+10], at.UnixMicro())
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := d.Write(b.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(b.Context(), "ANALYZE")
		return err
	}); err != nil {
		b.Fatal(err)
	}
}
