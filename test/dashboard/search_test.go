package dashboard_test

import (
	"strings"
	"testing"

	"turnpike/internal/accounts"
	"turnpike/internal/db"
	"turnpike/internal/ids"
	"turnpike/test/harness"
)

// TestLongSearchesAreNotLive: a filter that scans thousands of rows isn't repeated.
func TestLongSearchesAreNotLive(t *testing.T) {
	t.Parallel()
	// The scan limit itself is tested on both engines elsewhere.
	harness.OnSQLite(t, func(t *testing.T, s *harness.Server) {
		b := member(t, s, s.Workspace(t, "acme"), accounts.Viewer)
		at := s.Clock.Now().UnixMicro()
		fill := func(table, prefix string, fixed map[string]any) {
			t.Helper()
			columns := []string{"id text", "workspace_id text", "environment text", "created_at bigint"}
			var values []any
			for name, value := range fixed {
				kind := " text"
				switch value.(type) {
				case int64:
					kind = " bigint"
				case bool:
					kind = " boolean"
				}
				columns, values = append(columns, name+kind), append(values, value)
			}
			rows := make([][]any, 10_001)
			for i := range rows {
				rows[i] = append([]any{ids.New(prefix), b.workspace.ID, "test", at}, values...)
			}
			b.write(t, func(tx *db.Tx) error {
				_, err := db.NewBulk(table, "", columns...).Write(t.Context(), tx, rows)
				return err
			})
		}
		none := int64(0)
		fill("events", ids.Event, map[string]any{"type": "billing.credits.low", "sample": false, "body": "{}"})
		fill("deliveries", ids.Delivery, map[string]any{"event_id": "evt", "endpoint_id": "wh", "type": "billing.credits.low", "status": "discarded", "attempts": none, "tries": none, "event_at": at})
		fill("media_jobs", ids.ImageBatch, map[string]any{"kind": "image", "key_id": "key", "reader": "", "request_id": "req", "lane": "", "status": "completed", "models": "[]", "model": "m",
			"input": "{}", "metadata": "{}", "total": none, "completed": none, "failed": none, "progress": none, "reserved": none, "cost": none, "price_version": "", "deadline_at": none})
		fill("batches", ids.Batch, map[string]any{"key_id": "key", "lane": "", "status": "completed", "endpoint": "/v1/responses", "options": "{}", "input_file_id": "file", "input_sha256": "",
			"input_bytes": none, "output_life": none, "metadata": "{}", "total": none, "completed": none, "failed": none, "cancelled": none, "expired": none, "loaded": true, "input_tokens": none,
			"output_tokens": none, "cost": none, "expires_at": none})
		fill("agent_runs", ids.Run, map[string]any{"key_id": "key", "reader": "", "request_id": "req", "lane": "", "status": "completed", "model": "m", "orders": "{}", "specs": "[]",
			"metadata": "{}", "max_steps": none, "steps_used": none, "revisions": none, "input_tokens": none, "output_tokens": none, "credits": none, "turn": none, "tries": none,
			"worked_us": none, "messages": none, "logged": none})
		for list, filter := range map[string]string{"events": "event:key.auto_revoked", "deliveries": "status:succeeded", "jobs/images": "status:failed", "jobs/batches": "status:expired", "runs": "status:failed"} {
			const live = "<body data-live"
			b.get(t, b.in(accounts.Test, list)).shows(t, live)
			a := b.get(t, b.in(accounts.Test, list+query(filter))).is(t, 200).hides(t, live, ">Live</span>")
			if !strings.Contains(a.body, "after=") {
				t.Errorf("%s does not go on:\n%s", a.path, a.main())
			}
			// A search by index is live.
			if list == "runs" {
				b.get(t, b.in(accounts.Test, "runs"+query("status:awaiting_approval"))).shows(t, live)
			}
		}
	})
}
