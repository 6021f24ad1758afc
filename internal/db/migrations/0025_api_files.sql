-- Files of the Files API. Their bytes are encrypted and stored like those of jobs, under the
-- file's ID as holder; sha256 is the hash of the encrypted bytes.
CREATE TABLE api_files (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  project      TEXT,
  purpose      TEXT NOT NULL,
  filename     TEXT NOT NULL,
  bytes        BIGINT NOT NULL,
  sha256       TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL
);
CREATE INDEX api_files_by_tenant ON api_files (workspace_id, environment, id);
CREATE INDEX api_files_by_workspace ON api_files (workspace_id, bytes);
CREATE INDEX api_files_by_expiry ON api_files (expires_at);
