package main

import (
	"context"

	"turnpike/internal/app"
	"turnpike/internal/db"
	"turnpike/test/chaos/program"
)

// What a log is filled with.
const (
	logEntries = 1_000_000
	logBatch   = 20_000
)

// fillLog adds settled entries of other tenants to the request log.
func fillLog(ctx context.Context, at program.Place) error {
	d, err := app.OpenDatabase(ctx, settings(at))
	if err != nil {
		return err
	}
	defer d.Close()
	for from := int64(0); from < logEntries; from += logBatch {
		err := d.Write(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO requests (id, workspace_id, environment, key_id, key_hint, ip, method, path, user_agent, node_id, created_at, settled,
					status, model, provider, input_tokens, output_tokens, reserved, credits, simulated_credits, usage_source, latency_us, upstream_us)
				WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
				SELECT 'req_01m6b' || CAST(100000000000000000 + i AS TEXT), 'ws_0' || CAST(i % 97 AS TEXT), 'live', 'key_0' || CAST(i % 977 AS TEXT), 'tp_live_…abcd', '192.0.2.1',
					'POST', '/v1/chat/completions', 'bench', 'node_0', 1785542400000000 + i, TRUE, 200, 'gpt-4o-mini', 'openai', 180, 154, 100, 90, 0, 'provider', 5000, 4900 FROM n`,
				from, from+logBatch)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
