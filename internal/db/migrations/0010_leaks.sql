-- Reports of leaked keys, for whoever looks after a workspace's security. The
-- secret is nowhere in them. A report about something that is not ours leaves
-- no row.
CREATE TABLE leak_reports (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  key_id       TEXT NOT NULL, -- of a token, its parent's
  token_id     TEXT,
  hint         TEXT NOT NULL,
  source       TEXT NOT NULL,
  url          TEXT,
  outcome      TEXT NOT NULL,
  reported_at  BIGINT NOT NULL
);
CREATE INDEX leak_reports_by_workspace ON leak_reports (workspace_id, environment, id);
CREATE INDEX leak_reports_by_key ON leak_reports (key_id);
