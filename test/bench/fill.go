package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"turnpike/internal/accounts"
	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/internal/events"
	"turnpike/internal/ids"
	"turnpike/internal/webhooks"
	"turnpike/test/chaos/program"
	"turnpike/webhook"
)

// A customer of every size: as many endpoints as a workspace may have, and
// events that several of them want.
const (
	fillWorkspaces = 10
	fillEndpoints  = 1000 // per workspace
	fillFanout     = 10   // deliveries of an event

	// Deliveries lie in their indexes by endpoint: a transaction touches all
	// of those, so few large ones are faster than many.
	fillCommit = 250_000
	fillRows   = 10_000 // of a statement
)

var (
	fillEndpointRows = db.NewBulk("endpoints", "", "id text", "workspace_id text", "environment text", "kind text", "url text", "events text",
		"description text", "status text", "secret text", "secret_hint text", "created_at bigint")
	fillEventRows    = db.NewBulk("events", "", "id text", "workspace_id text", "environment text", "type text", "sample boolean", "created_at bigint", "body text")
	fillDeliveryRows = db.NewBulk("deliveries", "", "id text", "event_id text", "endpoint_id text", "workspace_id text", "environment text", "type text",
		"status text", "attempts bigint", "tries bigint", "due_at bigint", "event_at bigint", "created_at bigint")
	fillLaneRows = db.NewBulk("lanes", "", "queue text", "id text", "due_at bigint", "seq bigint")
)

// filled is a database with many deliveries that wait.
type filled struct {
	tenant          // one of the workspaces
	endpoint string // one of its endpoints
}

// fill puts that many due deliveries into an empty database, past everything
// that would take its time over them. Their lanes are not due: nobody touches
// them until release.
func fill(ctx context.Context, at program.Place, url string, pending int) (f filled, err error) {
	s, err := app.OpenStore(ctx, settings(at))
	if err != nil {
		return f, err
	}
	defer s.Close()
	now := time.Now()
	for _, p := range []db.Partitioned{events.Table, webhooks.Deliveries, webhooks.Attempts} {
		if err := p.Prepare(ctx, s.DB, now); err != nil {
			return f, err
		}
	}
	endpoints := make(map[string][]string, fillWorkspaces) // by workspace
	var workspaces []string
	for i := range fillWorkspaces {
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			t, err := addTenant(ctx, tx, s, fmt.Sprintf("bench %d", i))
			if err != nil {
				return err
			}
			f.tenant = t
			workspaces = append(workspaces, t.workspace)
			endpoints[t.workspace], err = fillWorkspace(ctx, tx, s, t.workspace, url, now)
			return err
		})
		if err != nil {
			return f, fmt.Errorf("make endpoints: %w", err)
		}
	}
	f.endpoint = endpoints[f.workspace][0]
	for done := 0; done < pending; {
		end := min(done+fillCommit, pending)
		err := s.DB.Write(ctx, func(tx *db.Tx) error {
			if err := enlargeCache(ctx, tx, s.DB); err != nil {
				return err
			}
			for ; done < end; done += fillRows {
				if err := fillDeliveries(ctx, tx, workspaces, endpoints, done, min(fillRows, end-done)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return f, fmt.Errorf("make deliveries: %w", err)
		}
		done = end
	}
	if s.DB.Engine() == "postgres" {
		// As it does by itself a minute later.
		err = s.DB.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, "ANALYZE")
			return err
		})
	}
	return f, err
}

// enlargeCache keeps what a transaction of ours touches in memory.
func enlargeCache(ctx context.Context, tx *db.Tx, d *db.DB) error {
	if d.Engine() != "sqlite" {
		return nil
	}
	_, err := tx.Exec(ctx, "PRAGMA cache_size = -1000000") // KiB
	return err
}

// fillWorkspace makes a workspace's endpoints.
func fillWorkspace(ctx context.Context, tx *db.Tx, s *app.Store, workspace, url string, now time.Time) (names []string, err error) {
	rows, lanes := make([][]any, fillEndpoints), make([][]any, fillEndpoints)
	later := now.Add(24 * time.Hour).UnixMicro()
	for i := range rows {
		id := ids.New(ids.Endpoint)
		names = append(names, id)
		rows[i] = []any{id, workspace, string(accounts.Live), string(webhooks.HTTP), url, `["*"]`, "", string(webhooks.Active),
			s.Ring.Seal([]byte(webhook.NewSecret()), "endpoint "+id), "whsec_…0000", now.UnixMicro()}
		lanes[i] = []any{webhooks.Queue, id, later, int64(1)}
	}
	if _, err := fillEndpointRows.Write(ctx, tx, rows); err != nil {
		return nil, err
	}
	_, err = fillLaneRows.Write(ctx, tx, lanes)
	return names, err
}

// fillDeliveries makes n deliveries, of which done are there already, and
// their events: from workspace to workspace, and in each from endpoint to
// endpoint.
func fillDeliveries(ctx context.Context, tx *db.Tx, workspaces []string, endpoints map[string][]string, done, n int) error {
	var eventRows, rows [][]any
	for i := done; i < done+n; i += fillFanout {
		nth := i / fillFanout
		workspace := workspaces[nth%len(workspaces)]
		now := time.Now()
		event := ids.New(ids.Event)
		body, err := json.Marshal(map[string]any{"id": event, "object": "event", "type": events.AgentRunCompleted, "created_at": now.Unix(),
			"environment": accounts.Live, "workspace": workspace, "project": nil, "data": events.Sample(events.AgentRunCompleted, now)})
		if err != nil {
			return err
		}
		eventRows = append(eventRows, []any{event, workspace, string(accounts.Live), string(events.AgentRunCompleted), false, now.UnixMicro(), string(body)})
		for k := range min(fillFanout, done+n-i) {
			endpoint := endpoints[workspace][(nth/len(workspaces)*fillFanout+k)%fillEndpoints]
			rows = append(rows, []any{ids.New(ids.Delivery), event, endpoint, workspace, string(accounts.Live), string(events.AgentRunCompleted),
				string(webhooks.Pending), int64(0), int64(0), now.UnixMicro(), now.UnixMicro(), now.UnixMicro()})
		}
	}
	if _, err := fillEventRows.Write(ctx, tx, eventRows); err != nil {
		return err
	}
	_, err := fillDeliveryRows.Write(ctx, tx, rows)
	return err
}

// release makes the lanes due that have something.
func release(ctx context.Context, at program.Place) error {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE lanes SET due_at = $1 WHERE EXISTS (SELECT 1 FROM deliveries WHERE endpoint_id = lanes.id AND due_at IS NOT NULL)", time.Now().UnixMicro())
		return err
	})
}
