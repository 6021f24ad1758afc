-- Approvals of calls that MCP clients make. arguments is encrypted.
CREATE TABLE tool_approvals (
  id              TEXT PRIMARY KEY,
  workspace_id    TEXT NOT NULL,
  environment     TEXT NOT NULL,
  project         TEXT,
  key_id          TEXT NOT NULL,
  key_hint        TEXT NOT NULL,
  server_id       TEXT NOT NULL,
  tool            TEXT NOT NULL,
  arguments       TEXT NOT NULL,
  arguments_hash  TEXT NOT NULL,
  status          TEXT NOT NULL,
  request_id      TEXT NOT NULL,
  created_at      BIGINT NOT NULL,
  -- Until when a person can decide, and after an approval, until when the call can be made.
  expires_at      BIGINT NOT NULL,
  decided_at      BIGINT,
  decided_by      TEXT,
  reason          TEXT,
  used_request_id TEXT
);
-- A call has at most one open approval.
CREATE UNIQUE INDEX tool_approvals_open ON tool_approvals (key_id, server_id, tool, arguments_hash) WHERE status IN ('pending', 'approved');
CREATE INDEX tool_approvals_by_status ON tool_approvals (workspace_id, environment, status, id);
