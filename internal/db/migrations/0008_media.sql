-- Jobs that make pictures, videos and speech, and the pieces that each is
-- worked in: the requests of a batch, the segments of a text, the one render of
-- a video. What is due lies in a lane.
CREATE TABLE media_jobs (
  id             TEXT PRIMARY KEY,
  kind           TEXT NOT NULL,
  workspace_id   TEXT NOT NULL,
  environment    TEXT NOT NULL,
  project        TEXT,
  key_id         TEXT NOT NULL,
  reader         TEXT NOT NULL, -- which scoped tokens may see it; empty for none
  request_id     TEXT NOT NULL, -- that made it, and is charged for it
  lane           TEXT NOT NULL,
  status         TEXT NOT NULL,
  models         TEXT NOT NULL, -- that the caller named, a JSON list
  model          TEXT NOT NULL,
  provider       TEXT,
  input          TEXT NOT NULL, -- what was asked for
  metadata       TEXT NOT NULL,
  total          BIGINT NOT NULL, -- tasks that count
  completed      BIGINT NOT NULL,
  failed         BIGINT NOT NULL,
  progress       BIGINT NOT NULL,
  reserved       BIGINT NOT NULL,
  cost           BIGINT NOT NULL, -- of the tasks so far, and in the end what was charged
  price_version  TEXT NOT NULL,
  output         TEXT, -- what came of it
  error          TEXT,
  created_at     BIGINT NOT NULL,
  started_at     BIGINT,
  deadline_at    BIGINT NOT NULL,
  completed_at   BIGINT
);
CREATE INDEX media_jobs_by_tenant ON media_jobs (workspace_id, environment, kind, id);
CREATE INDEX media_jobs_by_age ON media_jobs (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE media_tasks (
  job_id    TEXT NOT NULL,
  position  BIGINT NOT NULL,
  name      TEXT NOT NULL, -- the caller's own id of a request
  lane      TEXT NOT NULL,
  status    TEXT NOT NULL,
  due_at    BIGINT, -- null when there is nothing to do, or not yet
  attempts  BIGINT NOT NULL, -- how often it was worked
  tries     BIGINT NOT NULL, -- that failed, one after the other
  input     TEXT NOT NULL,
  output    TEXT,
  error     TEXT,
  PRIMARY KEY (job_id, position)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE INDEX media_tasks_due ON media_tasks (lane, due_at, job_id, position) WHERE due_at IS NOT NULL;
