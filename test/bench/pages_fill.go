package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"turnpike/internal/access"
	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/audit"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/people"
	"turnpike/internal/webhooks"
	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// One workspace that has everything, over a month.
const (
	pagesKeys      = 40
	pagesProjects  = 20
	pagesEndpoints = 20
	pagesModels    = 10
	pagesDays      = 30
	pagesPassword  = "a few words nobody says"
	pagesEmail     = "owner@example.com"
)

// pagesWorld is a database that the dashboard is looked at.
type pagesWorld struct {
	workspace string
	keys      []string
	endpoints []string
	began     time.Time // of the month
	delivered int
	logged    int
}

var (
	pagesEndpointRows = db.NewBulk("endpoints", "", "id text", "workspace_id text", "environment text", "kind text", "url text", "events text",
		"description text", "status text", "secret text", "secret_hint text", "created_at bigint")
	pagesStatRows = db.NewBulk("endpoint_stats", "", "endpoint_id text", "succeeded bigint", "failed bigint", "failed_attempts bigint",
		"last_success_at bigint", "last_failure_at bigint", "last_error text")
	pagesDeliveryRows = db.NewBulk("deliveries", "", "id text", "event_id text", "endpoint_id text", "workspace_id text", "environment text", "type text",
		"status text", "attempts bigint", "tries bigint", "event_at bigint", "created_at bigint", "finished_at bigint")
	pagesAttemptRows = db.NewBulk("attempts", "", "id text", "delivery_id text", "number bigint", "started_at bigint", "duration_us bigint", "dns_us bigint",
		"connect_us bigint", "tls_us bigint", "first_byte_us bigint", "url text", "request_headers text", "status bigint", "response_headers text", "response_body text")
)

// newPagesWorld makes the workspace, its owner, keys, projects and endpoints.
func newPagesWorld(ctx context.Context, at program.Place) (*pagesWorld, error) {
	s, err := app.OpenStore(ctx, settings(at))
	if err != nil {
		return nil, err
	}
	defer s.Close()
	now := time.Now()
	w := &pagesWorld{began: now.AddDate(0, 0, -pagesDays)}
	folk := people.New(s.DB, s.Ring, people.Options{})
	var link *people.Link
	err = s.DB.Write(ctx, func(tx *db.Tx) error {
		t, err := addTenant(ctx, tx, s, "bench")
		if err != nil {
			return err
		}
		w.workspace = t.workspace
		keys := access.NewKeys(s.Ring, time.Now)
		for i := range pagesKeys {
			k := &access.Key{WorkspaceID: w.workspace, Environment: accounts.Live, Name: fmt.Sprintf("service %d", i), Scopes: []string{"*"}}
			if _, err := keys.Create(ctx, tx, access.Caller{Actor: audit.Operator}, k); err != nil {
				return err
			}
			w.keys = append(w.keys, k.ID)
		}
		for i := range pagesProjects {
			p := &accounts.Project{WorkspaceID: w.workspace, Environment: accounts.Live, ID: fmt.Sprintf("project-%d", i)}
			if err := accounts.CreateProject(ctx, tx, p, now); err != nil {
				return err
			}
		}
		if err := w.addEndpoints(ctx, tx, s, now); err != nil {
			return err
		}
		u := &accounts.User{Email: pagesEmail, Name: "The owner", WorkspaceID: w.workspace, Role: accounts.Owner}
		if err := accounts.CreateUser(ctx, tx, u, now); err != nil {
			return err
		}
		link, err = folk.NewPasswordLink(ctx, tx, u.ID, people.WelcomeLimit)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := folk.ResetPassword(ctx, link.Token, pagesPassword, people.Browser{}); err != nil {
		return nil, err
	}
	for _, p := range []db.Partitioned{events.Table, webhooks.Deliveries, webhooks.Attempts, audit.Requests} {
		if err := p.Prepare(ctx, s.DB, now); err != nil {
			return nil, err
		}
	}
	return w, w.fillUsage(ctx, s.DB)
}

func (w *pagesWorld) addEndpoints(ctx context.Context, tx *db.Tx, s *app.Store, now time.Time) error {
	var rows, stats [][]any
	for i := range pagesEndpoints {
		id := ids.New(ids.Endpoint)
		w.endpoints = append(w.endpoints, id)
		rows = append(rows, []any{id, w.workspace, string(accounts.Live), string(webhooks.HTTP), fmt.Sprintf("https://service-%d.example.com/hook", i), `["*"]`, "",
			string(webhooks.Active), s.Ring.Seal([]byte(webhook.NewSecret()), "endpoint "+id), "whsec_…0000", now.UnixMicro()})
		stats = append(stats, []any{id, int64(50_000), int64(500), int64(1_500), now.UnixMicro(), now.UnixMicro(), "503"})
	}
	if _, err := pagesEndpointRows.Write(ctx, tx, rows); err != nil {
		return err
	}
	_, err := pagesStatRows.Write(ctx, tx, stats)
	return err
}

// fillUsage is a month by the hour, key, project and model, as a busy
// workspace has it: it does not grow with the log.
func (w *pagesWorld) fillUsage(ctx context.Context, d *db.DB) error {
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO usage_hours (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
			WITH RECURSIVE n (i) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $3), k (at, id) AS (VALUES `+w.keyValues()+`)
			SELECT $1, 'live', $2 + (n.i / 120) * 3600, k.id, 'project-' || CAST(n.i % 20 AS TEXT), 'model-' || CAST(n.i % 3 AS TEXT), 'openai', 50, 1, 9000, 7000, 4500000, 0
			FROM n JOIN k ON k.at = n.i % 40`,
			w.workspace, w.began.Truncate(time.Hour).Unix(), int64(pagesDays*24*120)) // in seconds, as the rollup is
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO usage_days (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
			SELECT workspace_id, environment, start - start % 86400, key_id, project, model, provider, sum(requests), sum(errors), sum(input_tokens), sum(output_tokens), sum(credits), 0
			FROM usage_hours GROUP BY workspace_id, environment, start - start % 86400, key_id, project, model, provider`)
		return err
	})
}

// keyValues are the keys with their numbers, as rows of a statement.
func (w *pagesWorld) keyValues() string {
	rows := make([]string, len(w.keys))
	for i, id := range w.keys {
		rows[i] = fmt.Sprintf("(%d, '%s')", i, id)
	}
	return strings.Join(rows, ", ")
}

// grow fills up to that many deliveries and entries of the log.
func (w *pagesWorld) grow(ctx context.Context, at program.Place, size pagesSize) error {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return err
	}
	defer d.Close()
	step := (size.logged - w.logged) / pagesDays
	for day := range pagesDays {
		if err := w.logDay(ctx, d, day, step); err != nil {
			return fmt.Errorf("fill the log: %w", err)
		}
	}
	w.logged = size.logged
	if err := w.deliver(ctx, d, size.delivered-w.delivered); err != nil {
		return fmt.Errorf("fill the deliveries: %w", err)
	}
	w.delivered = size.delivered
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "ANALYZE") // as PostgreSQL does by itself a minute later
		return err
	})
}

// logDay adds entries of one day. Their ids begin with its time, as ids do.
func (w *pagesWorld) logDay(ctx context.Context, d *db.DB, day, count int) error {
	begin := w.began.AddDate(0, 0, day).Add(time.Duration(w.logged) * time.Millisecond)
	prefix := ids.Floor(ids.Request, begin)[:len(ids.Request)+10]
	for from := 0; from < count; from += logBatch {
		err := d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, project, user_agent, node_id, created_at, settled,
					status, error_code, model, provider, input_tokens, output_tokens, reserved, credits, simulated_credits, usage_source, latency_us, upstream_us)
				WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2), k (at, id) AS (VALUES `+w.keyValues()+`)
				SELECT $3 || CAST(1000000000000000 + n.i AS TEXT), $4, 'live', k.id, 'tp_live_…abcd', '192.0.2.' || CAST(n.i % 250 AS TEXT),
					'POST', '/v1/chat/completions', 'project-' || CAST(n.i % 20 AS TEXT), 'bench', 'node_0', $5 + n.i, TRUE,
					CASE WHEN n.i % 50 = 0 THEN 502 WHEN n.i % 20 = 0 THEN 429 ELSE 200 END, CASE WHEN n.i % 50 = 0 THEN 'upstream_error' WHEN n.i % 20 = 0 THEN 'rate_limit_exceeded' END,
					'model-' || CAST(n.i % 10 AS TEXT), 'openai', 180, 154, 100, 90, 0, 'provider', 5000, 4900
				FROM n JOIN k ON k.at = n.i % 40`,
				int64(from), int64(min(from+logBatch, count)), prefix, w.workspace, begin.UnixMicro())
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// deliver adds deliveries: most have succeeded, one in fifty has failed.
func (w *pagesWorld) deliver(ctx context.Context, d *db.DB, count int) error {
	for done := 0; done < count; {
		end := min(done+fillCommit, count)
		err := d.Write(ctx, func(tx *db.Tx) error {
			if err := enlargeCache(ctx, tx, d); err != nil {
				return err
			}
			for ; done < end; done += fillRows {
				if err := w.deliverSome(ctx, tx, done, min(fillRows, end-done)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		done = end
	}
	return nil
}

func (w *pagesWorld) deliverSome(ctx context.Context, tx *db.Tx, from, count int) error {
	var eventRows, rows, attempts [][]any
	now := time.Now().UnixMicro()
	event := ""
	for i := from; i < from+count; i++ {
		if i%fillFanout == 0 || event == "" {
			event = ids.New(ids.Event)
			eventRows = append(eventRows, []any{event, w.workspace, string(accounts.Live), string(events.AgentRunCompleted), false, now, `{"id":"` + event + `","type":"agent.run.completed","data":{}}`})
		}
		state, status := webhooks.Succeeded, int64(200)
		if i%50 == 0 {
			state, status = webhooks.Failed, 503
		}
		id := ids.New(ids.Delivery)
		rows = append(rows, []any{id, event, w.endpoints[i%len(w.endpoints)], w.workspace, string(accounts.Live), string(events.AgentRunCompleted), string(state),
			int64(1), int64(1), now, now, now})
		attempts = append(attempts, []any{ids.New(ids.Attempt), id, int64(1), now, int64(5000), int64(0), int64(100), int64(300), int64(4000),
			"https://service.example.com/hook", `{"Content-Type":["application/json"]}`, status, `{"Content-Type":["text/plain"]}`, "done"})
	}
	for _, fill := range []struct {
		into *db.Bulk
		rows [][]any
	}{{fillEventRows, eventRows}, {pagesDeliveryRows, rows}, {pagesAttemptRows, attempts}} {
		if _, err := fill.into.Write(ctx, tx, fill.rows); err != nil {
			return err
		}
	}
	return nil
}
