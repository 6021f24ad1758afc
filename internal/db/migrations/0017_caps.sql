-- How many things that end by themselves exist: scoped tokens, remembered
-- answers, projects that a key created today. One row per subject, which also
-- serializes those who add to it. counts is a JSON object of how many end in
-- each slice of time. Things that were there before this table aren't counted.
CREATE TABLE expiring_counts (
  id      TEXT PRIMARY KEY,
  counts  TEXT NOT NULL,
  ends_at BIGINT NOT NULL -- when all of them have ended, in microseconds
); --sqlite
) WITH (fillfactor = 50); --postgres

-- Counts the keys in use of a workspace without reading those that ended.
CREATE INDEX keys_in_use ON keys (workspace_id, environment, expires_at) WHERE revoked_at IS NULL;

-- Requests over a rate limit that got no entry of their own in the log.
CREATE TABLE throttled_requests (
  minute       BIGINT NOT NULL,
  key_id       TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  count        BIGINT NOT NULL,
  PRIMARY KEY (minute, key_id)
);
