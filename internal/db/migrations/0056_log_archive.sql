-- The days of the request log in the archive. totals is JSON. Files of a later generation than their day's are incomplete.
CREATE TABLE log_archive_days (
  day         TEXT PRIMARY KEY,
  state       TEXT NOT NULL,
  generation  BIGINT NOT NULL,
  totals      TEXT NOT NULL,
  bytes       BIGINT NOT NULL,
  archived_at BIGINT
);

-- The Parquet files of the archive. The IDs of a tenant's files don't overlap.
CREATE TABLE log_archive_files (
  object       TEXT PRIMARY KEY,
  day          TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  generation   BIGINT NOT NULL,
  first_id     TEXT NOT NULL,
  last_id      TEXT NOT NULL,
  bytes        BIGINT NOT NULL,
  sha256       TEXT NOT NULL,
  totals       TEXT NOT NULL
);
CREATE INDEX log_archive_files_by_day ON log_archive_files (day, workspace_id, environment);
CREATE INDEX log_archive_files_by_first ON log_archive_files (workspace_id, environment, first_id);
CREATE INDEX log_archive_files_by_last ON log_archive_files (workspace_id, environment, last_id);
