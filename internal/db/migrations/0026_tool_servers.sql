-- MCP servers whose tools a workspace offers to MCP clients and agent runs. headers is encrypted.
CREATE TABLE tool_servers (
  id                       TEXT PRIMARY KEY,
  workspace_id             TEXT NOT NULL,
  environment              TEXT NOT NULL,
  project                  TEXT,
  label                    TEXT NOT NULL,
  description              TEXT NOT NULL,
  url                      TEXT NOT NULL,
  headers                  TEXT,
  require_approval         TEXT NOT NULL,
  allowed_tools            TEXT,
  prices                   TEXT NOT NULL,
  timeout_seconds          BIGINT NOT NULL,
  approval_timeout_seconds BIGINT NOT NULL,
  -- The server's own description of its tools, and the result of the last attempt to read it.
  tools                    TEXT,
  listed_at                BIGINT,
  problem                  TEXT,
  created_at               BIGINT NOT NULL,
  created_by               TEXT NOT NULL
);
CREATE UNIQUE INDEX tool_servers_by_label ON tool_servers (workspace_id, environment, label);

-- The tools that a key may call, as a JSON array; NULL allows all.
ALTER TABLE keys ADD COLUMN allowed_tools TEXT;
