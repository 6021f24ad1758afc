// Package logarchive archives a large request log and compares what the API and DuckDB read with what was
// generated. It runs only with a number of entries:
//
//	TURNPIKE_LOG_ENTRIES=10000000 go test -timeout 2h -v ./test/logarchive
package logarchive

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/audit"
	"turnpike/internal/config"
	"turnpike/internal/credits"
	"turnpike/internal/db"
	"turnpike/internal/db/dbtest"
	"turnpike/internal/ids"
	"turnpike/test/harness"
	"turnpike/test/npm"
)

const workspaces = 20

// totals are what is compared of a workspace.
type totals struct {
	Entries, Credits, Input, Output int64
}

// customer is a workspace with a share of the log.
type customer struct {
	*accounts.Workspace
	key, keyID string
	want       totals
	some       []string // request IDs
}

var insert = db.NewBulk("requests", "", "id text", "workspace_id text", "environment text", "key_id text", "key_hint text", "ip text", "method text", "path text", "project text",
	"user_agent text", "node_id text", "created_at bigint", "settled boolean", "status bigint", "model text", "provider text", "input_tokens bigint", "output_tokens bigint",
	"reserved bigint", "credits bigint", "simulated_credits bigint", "usage_source text", "latency_us bigint", "upstream_us bigint", "price_version text", "accounts text", "end_user_id text")

var models = []string{"gpt-5", "gpt-5-mini", "claude-sonnet", "claude-haiku", "gemini-pro", "mistral-large", "text-embedding-3-small"}

// row generates an entry like those of a busy server.
func (c *customer) row(at time.Time) []any {
	in, out := rand.Int64N(4000), rand.Int64N(800)
	cost, latency := in*3+out*15, 200_000+rand.Int64N(5_000_000)
	id := ids.Floor(ids.Request, at)[:len(ids.Request)+10] + ids.New(ids.Request)[len(ids.Request)+10:]
	c.want.Entries, c.want.Credits, c.want.Input, c.want.Output = c.want.Entries+1, c.want.Credits+cost, c.want.Input+in, c.want.Output+out
	if rand.IntN(20_000) == 0 {
		c.some = append(c.some, id)
	}
	project := fmt.Sprintf("project-%d", rand.IntN(8))
	return []any{id, c.ID, "test", c.keyID, "tp_test_…abcd", fmt.Sprintf("203.0.113.%d", rand.IntN(250)), "POST", "/v1/chat/completions", project, "OpenAI/Python 2.8.1", "node_01", at.UnixMicro(), true,
		int64(200), models[rand.IntN(len(models))], "openai", in, out, cost * 4, cost, int64(0), "provider", latency, latency - rand.Int64N(3000), "2026-11-01",
		fmt.Sprintf(`[["workspace",%q,"2026-11"],["project",%q,"2026-11"],["key",%q,"2026-11"]]`, c.ID, project, c.keyID), fmt.Sprintf("eu_%022d", rand.IntN(2000))}
}

func TestArchiveOfManyEntries(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("TURNPIKE_LOG_ENTRIES"))
	if err != nil {
		t.Skip("set TURNPIKE_LOG_ENTRIES, such as to 10000000")
	}
	for _, engine := range dbtest.Engines {
		t.Run(engine, func(t *testing.T) { archiveMany(t, engine, n) })
	}
}

func archiveMany(t *testing.T, engine string, n int) {
	cfg, clock := harness.Config(t, engine), harness.NewClock()
	start := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -2)
	if engine == "postgres" {
		cfg.DatabaseURL = config.SecretURL(durablePostgres(t, start))
	}
	cfg.Limits.ReadsPerMinute, cfg.Limits.WorkspaceReadsPerMinute = 0, 0
	s := harness.Start(t, cfg, clock)
	list := make([]*customer, workspaces)
	for i := range list {
		list[i] = &customer{Workspace: s.Workspace(t, fmt.Sprintf("customer %d", i))}
		list[i].key, list[i].keyID = s.Key(t, list[i].Workspace, accounts.Test)
	}
	begun := time.Now()
	fill(t, s.DB, list, start, n)
	stored := databaseSize(t, s.DB, cfg.Data)
	t.Logf("generated %d entries in %v; the database has %d bytes, %.1f per entry", n, time.Since(begun).Round(time.Second), stored, float64(stored)/float64(n))
	if err := s.App.Close(); err != nil {
		t.Fatal(err)
	}

	to := filepath.Join(t.TempDir(), "archive")
	cfg.Audit.RetentionDays, cfg.Audit.Archive.To = 1, config.SecretURL(to)
	clock.Turn(24 * time.Hour)
	begun = time.Now()
	s = harness.Start(t, cfg, clock)
	reached := func(states string) {
		s.Within(t, time.Hour, func() bool {
			found, err := db.Value[int64](s.DB.QueryRow(t.Context(), "SELECT count(*) FROM log_archive_days WHERE state IN ("+states+")"))
			return err == nil && found > 0
		})
	}
	reached("'archived', 'dropping', 'dropped'")
	archived := time.Since(begun)
	reached("'dropping', 'dropped'")
	bytes := size(t, to)
	verified := time.Since(begun) - archived
	if engine == "postgres" { // it dropped the partition
		s.Within(t, time.Minute, func() bool { return databaseSize(t, s.DB, cfg.Data) < stored/2 })
		t.Logf("then the database has %d bytes", databaseSize(t, s.DB, cfg.Data))
	}
	t.Logf("archived in %v (%.0f per second), and verified in %v; %d bytes, %.1f per entry; at most %s of memory", archived.Round(time.Second), float64(n)/archived.Seconds(),
		verified.Round(time.Second), bytes, float64(bytes)/float64(n), peak())

	begun = time.Now()
	for _, c := range list {
		if got := exported(t, s, c); got != c.want {
			t.Errorf("the API exports %+v of %s, want %+v", got, c.ID, c.want)
		}
	}
	t.Logf("exported all entries as CSV by the API in %v; at most %s of memory", time.Since(begun).Round(time.Second), peak())
	begun, found := time.Now(), 0
	for _, c := range list {
		for _, id := range c.some {
			s.Do(t, harness.Request{Method: "GET", Path: "/v1/audit/" + id, Key: c.key}).Want(t, 200, "")
			found++
		}
	}
	t.Logf("read %d single entries by the API in %v each", found, (time.Since(begun) / time.Duration(max(found, 1))).Round(100*time.Microsecond))
	begun = time.Now()
	byDuckDB := queryDuckDB(t, to)
	t.Logf("queried by DuckDB in %v", time.Since(begun).Round(10*time.Millisecond))
	for _, c := range list {
		if got := byDuckDB[c.ID]; got != c.want {
			t.Errorf("DuckDB reads %+v of %s, want %+v", got, c.ID, c.want)
		}
	}
}

// durablePostgres starts a server with PostgreSQL's default settings, and creates partitions as if Turnpike had run
// with an archive when the entries were new.
func durablePostgres(t *testing.T, start time.Time) (address string) {
	t.Helper()
	cluster, err := dbtest.StartDurableCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	requests := audit.Requests
	requests.Span = db.Day
	if err := requests.Prepare(t.Context(), dbtest.Open(t, cluster.URL()), start); err != nil {
		t.Fatal(err)
	}
	return cluster.URL()
}

// fill inserts n entries of a day, in the order of their IDs.
func fill(t *testing.T, d *db.DB, list []*customer, start time.Time, n int) {
	t.Helper()
	const batch = 5000
	for at := 0; at < n; at += batch {
		rows := make([][]any, min(batch, n-at))
		for i := range rows {
			// The first workspaces have most of the entries.
			c := list[min(rand.IntN(workspaces), rand.IntN(workspaces))]
			rows[i] = c.row(start.Add(time.Duration(float64(24*time.Hour) * float64(at+i) / float64(n))))
		}
		err := d.Write(t.Context(), func(tx *db.Tx) error {
			_, err := insert.Write(t.Context(), tx, rows)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// exported reads the log of a workspace as CSV.
func exported(t *testing.T, s *harness.Server, c *customer) (sum totals) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/audit?format=csv&key="+c.keyID+"&end="+strconv.FormatInt(time.Now().UTC().Truncate(24*time.Hour).Unix(), 10), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	r := csv.NewReader(bufio.NewReaderSize(res.Body, 1<<20))
	r.ReuseRecord = true
	columns := map[string]int{}
	last := ""
	for {
		row, err := r.Read()
		if err == io.EOF {
			return sum
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(columns) == 0 {
			for i, name := range row {
				columns[strings.Clone(name)] = i
			}
			continue
		}
		if id := row[0]; last != "" && id >= last {
			t.Fatalf("%s follows %s", id, last)
		}
		last = strings.Clone(row[0])
		cost, err := credits.Parse(row[columns["credits"]])
		if err != nil {
			t.Fatal(err)
		}
		in, _ := strconv.ParseInt(row[columns["input_tokens"]], 10, 64)
		out, _ := strconv.ParseInt(row[columns["output_tokens"]], 10, 64)
		sum.Entries, sum.Credits, sum.Input, sum.Output = sum.Entries+1, sum.Credits+int64(cost), sum.Input+in, sum.Output+out
	}
}

const duckdb = `const { DuckDBInstance } = require('@duckdb/node-api');
(async () => {
  const c = await (await DuckDBInstance.create(':memory:')).connect();
  const r = await c.runAndReadAll("SELECT workspace, count(DISTINCT request_id), sum(credit_micros), sum(input_tokens), sum(output_tokens), count(*) FROM read_parquet('" + process.argv[2] + "/log/*/*/*.parquet', hive_partitioning = true) WHERE workspace = workspace_id AND created_at >= '2026-01-01' GROUP BY workspace");
  console.log(JSON.stringify(r.getRowsJson()));
})().catch(e => { console.error(e); process.exit(1); });`

// queryDuckDB returns the totals by workspace.
func queryDuckDB(t *testing.T, archive string) map[string]totals {
	t.Helper()
	modules, err := npm.Install("@duckdb/node-api")
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "query.cjs")
	if err := os.WriteFile(script, []byte(duckdb), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", script, archive)
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("DuckDB: %v", err)
	}
	var rows [][]string
	if err := json.Unmarshal(out, &rows); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	sums := map[string]totals{}
	for _, row := range rows {
		var n [5]int64
		for i := range n {
			if n[i], err = strconv.ParseInt(row[i+1], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if n[0] != n[4] {
			t.Errorf("%s has %d entries, of which %d differ", row[0], n[4], n[0])
		}
		sums[row[0]] = totals{n[0], n[1], n[2], n[3]}
	}
	return sums
}

// databaseSize returns the size of the database.
func databaseSize(t *testing.T, d *db.DB, data string) int64 {
	t.Helper()
	if d.Engine() == "sqlite" {
		return size(t, data)
	}
	n, err := db.Value[int64](d.QueryRow(t.Context(), "SELECT pg_database_size(current_database())"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// size returns the size of the files in a directory.
func size(t *testing.T, dir string) (total int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// peak returns the largest memory of this process so far, where the kernel reports it.
func peak() string {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "?"
}
