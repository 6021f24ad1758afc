-- Events, the endpoints they go to, and the lanes they go by.

-- A lane is whatever must not starve its neighbours. A node leases it, works
-- what is due in it, and gives it back. seq counts what was put in, so that
-- nothing put in during the last look is overlooked.
CREATE TABLE lanes (
  queue       TEXT NOT NULL,
  id          TEXT NOT NULL,
  due_at      BIGINT,
  seq         BIGINT NOT NULL,
  owner       TEXT,
  lease_until BIGINT,
  pinned_to   TEXT, -- the only node that may have it
  PRIMARY KEY (queue, id)
);
CREATE INDEX lanes_due ON lanes (queue, due_at) WHERE owner IS NULL AND due_at IS NOT NULL;
CREATE INDEX lanes_owned ON lanes (queue, owner, id) WHERE owner IS NOT NULL;
CREATE INDEX lanes_leased ON lanes (queue, lease_until) WHERE owner IS NOT NULL;

CREATE TABLE events (
  id           TEXT NOT NULL PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  project      TEXT,
  type         TEXT NOT NULL,
  sample       BOOLEAN NOT NULL,
  created_at   BIGINT NOT NULL,
  body         TEXT NOT NULL -- as it is delivered, byte for byte
); --sqlite
) PARTITION BY RANGE (id); --postgres
CREATE TABLE events_default PARTITION OF events DEFAULT; --postgres
CREATE INDEX events_by_workspace ON events (workspace_id, environment, id);

-- Events that were not fanned out yet, with what that needs to know.
CREATE TABLE new_events (
  event_id     TEXT NOT NULL PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  type         TEXT NOT NULL,
  created_at   BIGINT NOT NULL
) WITHOUT ROWID; --sqlite
); --postgres

CREATE TABLE endpoints (
  id               TEXT PRIMARY KEY,
  workspace_id     TEXT NOT NULL REFERENCES workspaces (id),
  environment      TEXT NOT NULL,
  kind             TEXT NOT NULL,
  url              TEXT,
  events           TEXT NOT NULL,
  description      TEXT NOT NULL,
  status           TEXT NOT NULL,
  paused_reason    TEXT,
  paused_at        BIGINT,
  secret           TEXT NOT NULL, -- sealed
  secret_hint      TEXT NOT NULL,
  old_secret       TEXT,          -- sealed; signs on until its grace ends
  old_secret_until BIGINT,
  mirrors          TEXT,          -- of a tunnel: the endpoint whose events and secret it has
  chore            TEXT,          -- what is still to be done to its held deliveries
  warned_at        BIGINT,        -- when its admins were told that held deliveries expire
  created_at       BIGINT NOT NULL,
  deleted_at       BIGINT,
  disconnected_at  BIGINT
);
CREATE INDEX endpoints_by_workspace ON endpoints (workspace_id, environment, id);
CREATE INDEX endpoints_disconnected ON endpoints (disconnected_at) WHERE disconnected_at IS NOT NULL AND deleted_at IS NULL;

-- Counted as results are written: nobody counts deliveries.
CREATE TABLE endpoint_stats (
  endpoint_id     TEXT PRIMARY KEY,
  succeeded       BIGINT NOT NULL,
  failed          BIGINT NOT NULL,
  failed_attempts BIGINT NOT NULL,
  last_success_at BIGINT,
  last_failure_at BIGINT,
  last_error      TEXT
);

-- The id follows from the event and the endpoint, so that an event has one
-- delivery to an endpoint; a replay may make others.
CREATE TABLE deliveries (
  id           TEXT NOT NULL PRIMARY KEY,
  event_id     TEXT NOT NULL,
  endpoint_id  TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  type         TEXT NOT NULL,
  status       TEXT NOT NULL,
  reason       TEXT,            -- of being discarded
  attempts     BIGINT NOT NULL, -- ever made
  tries        BIGINT NOT NULL, -- made of the present schedule
  due_at       BIGINT,          -- NULL when nothing is to be done
  event_at     BIGINT NOT NULL,
  created_at   BIGINT NOT NULL,
  finished_at  BIGINT
) WITHOUT ROWID; --sqlite
) PARTITION BY RANGE (id); --postgres
CREATE TABLE deliveries_default PARTITION OF deliveries DEFAULT; --postgres
CREATE INDEX deliveries_due ON deliveries (endpoint_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_by_workspace ON deliveries (workspace_id, environment, id);
CREATE INDEX deliveries_by_endpoint ON deliveries (workspace_id, environment, endpoint_id, id);
-- With OR and not with IN: SQLite sees only then that status = 'failed' is among them.
CREATE INDEX deliveries_in_trouble ON deliveries (endpoint_id, status, id) WHERE status = 'held' OR status = 'failed' OR status = 'retrying';
CREATE INDEX deliveries_troubled ON deliveries (workspace_id, environment, status, id) WHERE status = 'held' OR status = 'failed' OR status = 'retrying';

CREATE TABLE attempts (
  id               TEXT NOT NULL,
  delivery_id      TEXT NOT NULL,
  number           BIGINT NOT NULL,
  started_at       BIGINT NOT NULL,
  duration_us      BIGINT NOT NULL,
  dns_us           BIGINT NOT NULL,
  connect_us       BIGINT NOT NULL,
  tls_us           BIGINT NOT NULL,
  first_byte_us    BIGINT NOT NULL,
  url              TEXT,
  address          TEXT,
  request_headers  TEXT NOT NULL,
  status           BIGINT,
  response_headers TEXT,
  response_body    TEXT,
  error_class      TEXT,
  error            TEXT,
  next_retry_at    BIGINT,
  PRIMARY KEY (delivery_id, id)
) WITHOUT ROWID; --sqlite
) PARTITION BY RANGE (delivery_id); --postgres
CREATE TABLE attempts_default PARTITION OF attempts DEFAULT; --postgres

CREATE TABLE replays (
  id           TEXT PRIMARY KEY,
  endpoint_id  TEXT NOT NULL,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  status       TEXT NOT NULL,
  mode         TEXT NOT NULL,
  types        TEXT NOT NULL,
  new_ids      BOOLEAN NOT NULL,
  since        BIGINT NOT NULL,
  until        BIGINT NOT NULL,
  at           TEXT NOT NULL, -- the last id that was looked at
  total        BIGINT NOT NULL,
  done         BIGINT NOT NULL,
  created_at   BIGINT NOT NULL,
  finished_at  BIGINT
);
CREATE INDEX replays_by_workspace ON replays (workspace_id, environment, id);
CREATE INDEX replays_running ON replays (endpoint_id, id) WHERE status = 'running';
