-- Batches of model requests, and the lines of their input files. A line's position is its number;
-- position 0 is the work on the batch itself: validating, expiring, writing the results.
CREATE TABLE batches (
  id               TEXT PRIMARY KEY,
  workspace_id     TEXT NOT NULL,
  environment      TEXT NOT NULL,
  project          TEXT,
  key_id           TEXT NOT NULL,
  lane             TEXT NOT NULL,
  status           TEXT NOT NULL,
  endpoint         TEXT NOT NULL,
  options          TEXT NOT NULL, -- of its requests: the client's address and headers
  input_file_id    TEXT NOT NULL,
  input_sha256     TEXT NOT NULL,
  input_bytes      BIGINT NOT NULL,
  output_life      BIGINT NOT NULL, -- microseconds until its results expire
  metadata         TEXT NOT NULL,
  total            BIGINT NOT NULL,
  completed        BIGINT NOT NULL,
  failed           BIGINT NOT NULL,
  cancelled        BIGINT NOT NULL,
  expired          BIGINT NOT NULL,
  loaded           BOOLEAN NOT NULL, -- all of its lines are stored
  input_tokens     BIGINT NOT NULL,
  output_tokens    BIGINT NOT NULL,
  cost             BIGINT NOT NULL,
  output_file_id   TEXT,
  error_file_id    TEXT,
  errors           TEXT, -- of its input, a JSON list
  created_at       BIGINT NOT NULL,
  in_progress_at   BIGINT,
  expires_at       BIGINT NOT NULL,
  finalizing_at    BIGINT,
  cancelling_at    BIGINT,
  ended_at         BIGINT
);
CREATE INDEX batches_by_tenant ON batches (workspace_id, environment, id);
CREATE INDEX batches_by_age ON batches (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE batch_lines (
  batch_id   TEXT NOT NULL,
  position   BIGINT NOT NULL,
  lane       TEXT NOT NULL,
  status     TEXT NOT NULL,
  due_at     BIGINT, -- null when there is nothing to do
  attempts   BIGINT NOT NULL, -- how often it was started
  tries      BIGINT NOT NULL, -- that failed, one after the other
  custom_id  TEXT NOT NULL,
  start_at   BIGINT NOT NULL, -- where the line is in the input
  length     BIGINT NOT NULL,
  request_id TEXT, -- of the call in progress
  output     TEXT, -- encrypted
  PRIMARY KEY (batch_id, position)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE INDEX batch_lines_due ON batch_lines (lane, due_at, batch_id, position) WHERE due_at IS NOT NULL;
