-- Lines of a batch that wait or have a reservation. Each read of them scanned all lines that had ended.
CREATE INDEX batch_lines_unfinished ON batch_lines (batch_id, status, position) WHERE status = 'waiting' OR status = 'reserved';

-- Batches that a provider has, which scanned all batches.
CREATE INDEX batches_submitted ON batches (provider, expires_at) WHERE upstream_id IS NOT NULL;

-- Whether a secret of an endpoint was reported before.
CREATE INDEX leak_reports_by_hint ON leak_reports (key_id, hint);

-- Workspaces that have shortened the retention of responses, until all rows have the dates that follow from it.
CREATE TABLE shortened_retentions (
  workspace_id TEXT PRIMARY KEY
);
CREATE INDEX responses_by_retention ON responses (workspace_id, (expires_at - created_at));
CREATE INDEX conversations_by_retention ON conversations (workspace_id, expires_at);
