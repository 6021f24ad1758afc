package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// As many endpoints as a workspace may have, and events that several of them
// subscribe to.
const (
	fillWorkspaces = 10
	fillEndpoints  = 1000 // per workspace
	fillFanout     = 10   // deliveries per event

	// Deliveries are indexed by endpoint, and a transaction touches all
	// endpoints: few large ones are faster than many.
	fillCommit = 250_000
	fillRows   = 10_000 // per statement
	logBatch   = 20_000
)

var (
	endpointRows = db.NewBulk("endpoints", "", "id text", "workspace_id text", "environment text", "kind text", "url text", "events text",
		"description text", "status text", "secret text", "secret_hint text", "created_at bigint")
	laneRows     = db.NewBulk("lanes", "", "queue text", "id text", "due_at bigint", "seq bigint")
	eventRows    = db.NewBulk("events", "", "id text", "workspace_id text", "environment text", "type text", "sample boolean", "created_at bigint", "body text")
	deliveryRows = db.NewBulk("deliveries", "", "id text", "event_id text", "endpoint_id text", "workspace_id text", "environment text", "type text",
		"status text", "attempts bigint", "tries bigint", "due_at bigint", "event_at bigint", "created_at bigint", "finished_at bigint")
	attemptRows = db.NewBulk("attempts", "", "id text", "delivery_id text", "number bigint", "started_at bigint", "duration_us bigint", "dns_us bigint",
		"connect_us bigint", "tls_us bigint", "first_byte_us bigint", "url text", "request_headers text", "status bigint", "response_headers text", "response_body text")
)

// write writes in one transaction, without the time limits of a server's.
func write(ctx context.Context, d *db.DB, fn func(tx *db.Tx)) {
	check(d.Write(ctx, func(tx *db.Tx) (err error) {
		defer recoverFailure(&err)
		check(tx.DisableTimeouts(ctx))
		fn(tx)
		return nil
	}))
}

// analyze collects statistics, as PostgreSQL does by itself a minute later.
func analyze(ctx context.Context, d *db.DB) {
	write(ctx, d, func(tx *db.Tx) { must(tx.Exec(ctx, "ANALYZE")) })
}

func preparePartitions(ctx context.Context, d *db.DB, tables ...db.Partitioned) {
	for _, p := range tables {
		check(p.Prepare(ctx, d, time.Now()))
	}
}

// fillPending writes due deliveries to an empty database and returns one of the
// workspaces and one of its endpoints. The lanes are not due: no server works on
// them until makeDue.
func (b *bench) fillPending(at program.Place, url string, pending int) (a account, endpoint string) {
	s := must(app.OpenStore(b.ctx, settings(at)))
	defer s.Close()
	preparePartitions(b.ctx, s.DB, events.Table, webhooks.Deliveries, webhooks.Attempts)
	now := time.Now()
	endpoints := make([][]delivery, fillWorkspaces)
	for w := range endpoints {
		var rows, lanes [][]any
		write(b.ctx, s.DB, func(tx *db.Tx) {
			a = addAccount(b.ctx, tx, s, liveKey)
			for range fillEndpoints {
				endpoint = ids.New(ids.Endpoint)
				endpoints[w] = append(endpoints[w], delivery{workspace: a.workspace, endpoint: endpoint, state: webhooks.Pending})
				rows = append(rows, []any{endpoint, a.workspace, string(accounts.Live), string(webhooks.HTTP), url, `["*"]`, "", string(webhooks.Active),
					s.Ring.Seal([]byte(webhook.NewSecret()), "endpoint "+endpoint), "whsec_…0000", now.UnixMicro()})
				lanes = append(lanes, []any{webhooks.Queue, endpoint, now.Add(24 * time.Hour).UnixMicro(), int64(1)})
			}
			must(endpointRows.Write(b.ctx, tx, rows))
			must(laneRows.Write(b.ctx, tx, lanes))
		})
	}
	addDeliveries(b.ctx, s.DB, pending, func(i int) delivery { // in turn for each workspace and each of its endpoints
		event := i / fillFanout
		return endpoints[event%fillWorkspaces][(event/fillWorkspaces*fillFanout+i%fillFanout)%fillEndpoints]
	})
	if s.DB.Engine() == "postgres" {
		analyze(b.ctx, s.DB)
	}
	return a, endpoint
}

// delivery is due if it's pending, and finished after one attempt otherwise.
type delivery struct {
	workspace, endpoint string
	state               webhooks.State
}

// addDeliveries writes deliveries with their events and attempts.
func addDeliveries(ctx context.Context, d *db.DB, count int, next func(int) delivery) {
	for done := 0; done < count; done += fillCommit {
		write(ctx, d, func(tx *db.Tx) {
			if d.Engine() == "sqlite" {
				must(tx.Exec(ctx, "PRAGMA cache_size = -1000000")) // KiB: keeps what the transaction touches in memory
			}
			end := min(done+fillCommit, count)
			for from := done; from < end; from += fillRows {
				addRows(ctx, tx, from, min(from+fillRows, end), next)
			}
		})
	}
}

func addRows(ctx context.Context, tx *db.Tx, from, to int, next func(int) delivery) {
	var owners, rows, attempts [][]any
	now := time.Now()
	micros, kind := now.UnixMicro(), string(events.AgentRunCompleted)
	body := string(must(json.Marshal(map[string]any{"id": "EVENT", "object": "event", "type": kind, "created_at": now.Unix(), "environment": accounts.Live,
		"workspace": "WORKSPACE", "project": nil, "data": events.Sample(events.AgentRunCompleted, now)})))
	event := ""
	for i := from; i < to; i++ {
		one := next(i)
		if i%fillFanout == 0 {
			event = ids.New(ids.Event)
			owners = append(owners, []any{event, one.workspace, string(accounts.Live), kind, false, micros,
				strings.NewReplacer("EVENT", event, "WORKSPACE", one.workspace).Replace(body)})
		}
		id := ids.New(ids.Delivery)
		tried, due, finished := int64(0), any(micros), any(nil)
		if one.state != webhooks.Pending {
			tried, due, finished = 1, nil, micros
			status := int64(200)
			if one.state == webhooks.Failed {
				status = 503
			}
			attempts = append(attempts, []any{ids.New(ids.Attempt), id, int64(1), micros, int64(5000), int64(0), int64(100), int64(300), int64(4000),
				"https://service.example.com/hook", `{"Content-Type":"application/json"}`, status, `{"Content-Type":"text/plain"}`, "done"})
		}
		rows = append(rows, []any{id, event, one.endpoint, one.workspace, string(accounts.Live), kind, string(one.state), tried, tried, due, micros, micros, finished})
	}
	must(eventRows.Write(ctx, tx, owners))
	must(deliveryRows.Write(ctx, tx, rows))
	must(attemptRows.Write(ctx, tx, attempts))
}

// makeDue makes the lanes due that have deliveries.
func (b *bench) makeDue(at program.Place) {
	d := must(app.OpenDatabase(b.ctx, settings(at)))
	defer d.Close()
	write(b.ctx, d, func(tx *db.Tx) {
		must(tx.Exec(b.ctx, "UPDATE lanes SET due_at = $1 WHERE queue = $2 AND EXISTS (SELECT 1 FROM deliveries WHERE endpoint_id = lanes.id AND due_at IS NOT NULL)",
			time.Now().UnixMicro(), webhooks.Queue))
	})
}

// logEntriesOf are entries of the request log with the given numbers.
type logEntriesOf struct {
	workspace string
	keys      []string
	begin     time.Time
	from, to  int
}

// addLogEntries adds completed entries. Their IDs begin with their time, as IDs do.
func addLogEntries(ctx context.Context, d *db.DB, e logEntriesOf) {
	prefix := ids.Floor(ids.Request, e.begin)[:len(ids.Request)+10]
	write(ctx, d, func(tx *db.Tx) {
		must(tx.Exec(ctx, `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, project, user_agent, node_id, created_at, settled,
				status, error_code, model, provider, input_tokens, output_tokens, reserved, credits, simulated_credits, usage_source, latency_us, upstream_us)
			`+withKeys(e.keys, e.from, e.to)+`
			SELECT $1 || CAST(1000000000000000 + n.i AS TEXT), $2, 'live', n.key_id, 'tp_live_…abcd', '192.0.2.' || CAST(n.i % 250 AS TEXT),
				'POST', '/v1/chat/completions', 'project-' || CAST(n.i % 20 AS TEXT), 'bench', 'node_0', $3 + n.i, TRUE,
				CASE WHEN n.i % 50 = 0 THEN 502 WHEN n.i % 20 = 0 THEN 429 ELSE 200 END, CASE WHEN n.i % 50 = 0 THEN 'upstream_error' WHEN n.i % 20 = 0 THEN 'rate_limit_exceeded' END,
				'model-' || CAST(n.i % 10 AS TEXT), 'openai', 180, 154, 100, 90, 0, 'provider', 5000, 4900
			FROM n`, prefix, e.workspace, e.begin.UnixMicro()))
	})
}

// withKeys begins a statement with the rows n: numbers from one up to another, each
// with the key that follows in turn. Every key counts up in its own steps: joining
// numbers with keys would compare all of them.
func withKeys(keys []string, from, to int) string {
	rows := make([]string, len(keys))
	for i, id := range keys {
		rows[i] = fmt.Sprintf("(CAST(%d AS BIGINT), '%s')", from+i, id)
	}
	return fmt.Sprintf(`WITH RECURSIVE first (i, key_id) AS (VALUES %s),
		n (i, key_id) AS (SELECT i, key_id FROM first WHERE i < %[3]d UNION ALL SELECT i + %[2]d, key_id FROM n WHERE i + %[2]d < %[3]d)`, strings.Join(rows, ", "), len(keys), to)
}
