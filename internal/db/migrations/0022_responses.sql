-- Stored responses of the Responses API, and conversations. content and metadata are encrypted.
CREATE TABLE responses (
  id              TEXT PRIMARY KEY,
  workspace_id    TEXT NOT NULL,
  environment     TEXT NOT NULL,
  project         TEXT,
  reader          TEXT NOT NULL,
  previous_id     TEXT,
  conversation_id TEXT,
  content         TEXT NOT NULL,
  bytes           BIGINT NOT NULL,
  created_at      BIGINT NOT NULL,
  expires_at      BIGINT NOT NULL
);
CREATE INDEX responses_by_expiry ON responses (expires_at, id);
CREATE INDEX responses_by_workspace ON responses (workspace_id, bytes);

-- Items with IDs of a provider. Turnpike's own IDs name their response.
CREATE TABLE response_items (
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  id           TEXT NOT NULL,
  response_id  TEXT NOT NULL,
  PRIMARY KEY (workspace_id, environment, id)
);
CREATE INDEX response_items_by_response ON response_items (response_id);

CREATE TABLE conversations (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  project      TEXT,
  reader       TEXT NOT NULL,
  metadata     TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX conversations_by_expiry ON conversations (expires_at, id);
CREATE INDEX conversations_by_workspace ON conversations (workspace_id);

CREATE TABLE conversation_items (
  conversation_id TEXT NOT NULL,
  position        BIGINT NOT NULL,
  workspace_id    TEXT NOT NULL,
  id              TEXT NOT NULL,
  content         TEXT NOT NULL,
  bytes           BIGINT NOT NULL,
  PRIMARY KEY (conversation_id, position)
);
CREATE INDEX conversation_items_by_id ON conversation_items (conversation_id, id);
CREATE INDEX conversation_items_by_workspace ON conversation_items (workspace_id, bytes);

-- How long responses are stored, in seconds; 0 turns storing off, and NULL is the default.
ALTER TABLE workspaces ADD COLUMN response_retention_seconds BIGINT;
