-- How many days the bodies of requests and responses are kept. On a key, NULL means the project's and 0 means not at all.
ALTER TABLE keys ADD COLUMN content_log_days BIGINT;
ALTER TABLE projects ADD COLUMN content_log_days BIGINT;
-- Whether an owner lets the member read them.
ALTER TABLE members ADD COLUMN content_access BOOLEAN NOT NULL DEFAULT FALSE;

-- The bodies of requests and their responses, encrypted.
CREATE TABLE request_contents (
  request_id   TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  end_user_id  TEXT,
  content      TEXT NOT NULL,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX request_contents_expired ON request_contents (expires_at);
CREATE INDEX request_contents_by_user ON request_contents (end_user_id) WHERE end_user_id IS NOT NULL;

-- Deleted end users whose content is still to be deleted.
CREATE TABLE content_deletions (
  end_user_id TEXT PRIMARY KEY,
  deleted_at  BIGINT NOT NULL
);
