-- Files, and who holds them. Their bytes lie in a folder or in a bucket, under
-- workspace, environment and hash.
CREATE TABLE files (
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  sha256       TEXT NOT NULL,
  bytes        BIGINT NOT NULL,
  content_type TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL, -- 0 when nobody holds it any more
  PRIMARY KEY (workspace_id, environment, sha256)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE INDEX files_by_expiry ON files (expires_at);

-- A holder is a job. A file that two of them made is there once, for both.
CREATE TABLE file_uses (
  holder       TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  sha256       TEXT NOT NULL,
  PRIMARY KEY (holder, workspace_id, environment, sha256)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE INDEX file_uses_by_file ON file_uses (workspace_id, environment, sha256);

-- From when the links in a delivery's body count, if not from its making: its
-- last replay, or the moment its endpoint was resumed.
ALTER TABLE deliveries ADD COLUMN links_at BIGINT;
