-- The ground: tenants, people, keys, projects, the request log.
-- Times are microseconds since 1970 in UTC, amounts microcredits, JSON is text.
-- A line that ends in a double dash and an engine's name is for that engine alone.

CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value TEXT NOT NULL
);

-- Who runs: one row per process that serves, kept alive by a heartbeat.
CREATE TABLE nodes (
  id         TEXT PRIMARY KEY,
  started_at BIGINT NOT NULL,
  seen_at    BIGINT NOT NULL
);

CREATE TABLE workspaces (
  id                     TEXT PRIMARY KEY,
  name                   TEXT NOT NULL UNIQUE,
  strict_projects        BOOLEAN NOT NULL,
  default_project_budget BIGINT,
  rotation_grace_seconds BIGINT NOT NULL,
  created_at             BIGINT NOT NULL
);

CREATE TABLE users (
  id            TEXT PRIMARY KEY,
  email         TEXT NOT NULL UNIQUE,
  name          TEXT NOT NULL,
  password_hash TEXT,
  created_at    BIGINT NOT NULL
);

CREATE TABLE members (
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  user_id      TEXT NOT NULL REFERENCES users (id),
  role         TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, user_id)
);
CREATE INDEX members_by_user ON members (user_id);

CREATE TABLE projects (
  workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
  environment    TEXT NOT NULL,
  id             TEXT NOT NULL,
  name           TEXT NOT NULL,
  monthly_budget BIGINT,
  created_at     BIGINT NOT NULL,
  archived_at    BIGINT,
  PRIMARY KEY (workspace_id, environment, id)
);
CREATE INDEX projects_by_age ON projects (workspace_id, environment, created_at, id);

CREATE TABLE keys (
  id             TEXT PRIMARY KEY,
  workspace_id   TEXT NOT NULL REFERENCES workspaces (id),
  environment    TEXT NOT NULL,
  name           TEXT NOT NULL,
  prefix         TEXT NOT NULL,
  scopes         TEXT NOT NULL,
  monthly_budget BIGINT,
  project        TEXT,
  allowed_ips    TEXT NOT NULL,
  rate_limit     BIGINT,
  created_at     BIGINT NOT NULL,
  created_by     TEXT NOT NULL,
  expires_at     BIGINT,
  revoked_at     BIGINT,
  last_used_at   BIGINT,
  last_used_ip   TEXT
);
CREATE INDEX keys_by_workspace ON keys (workspace_id, environment, id);

-- A key has one secret, and during a rotation's grace two. The hash is an HMAC
-- with a pepper that is not in the database. The current secret's retires_at
-- is NULL, a previous one's is the end of its grace.
CREATE TABLE key_secrets (
  hash         TEXT PRIMARY KEY,
  key_id       TEXT NOT NULL REFERENCES keys (id),
  last_four    TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  retires_at   BIGINT,
  last_used_at BIGINT
);
CREATE INDEX key_secrets_by_key ON key_secrets (key_id);
CREATE UNIQUE INDEX key_secrets_current ON key_secrets (key_id) WHERE retires_at IS NULL;

CREATE TABLE scoped_tokens (
  id            TEXT PRIMARY KEY,
  hash          TEXT UNIQUE, -- NULL once it has expired
  key_id        TEXT NOT NULL REFERENCES keys (id),
  workspace_id  TEXT NOT NULL,
  environment   TEXT NOT NULL,
  scopes        TEXT NOT NULL,
  project       TEXT,
  metadata      TEXT NOT NULL,
  metadata_hash TEXT NOT NULL, -- equal metadata, equal hash, whatever the order of its fields
  created_at    BIGINT NOT NULL,
  expires_at    BIGINT NOT NULL,
  revoked_at    BIGINT
);
CREATE INDEX scoped_tokens_by_key ON scoped_tokens (key_id, id);
CREATE INDEX scoped_tokens_to_forget ON scoped_tokens (expires_at) WHERE hash IS NOT NULL;

-- One row per authenticated request. It is written as an intent (settled is
-- false) before the first byte of the answer leaves, and settled at the end.
CREATE TABLE requests (
  id                TEXT NOT NULL PRIMARY KEY,
  workspace_id      TEXT NOT NULL,
  environment       TEXT NOT NULL,
  key_id            TEXT NOT NULL,
  key_hint          TEXT NOT NULL,
  scoped_token_id   TEXT,
  token_metadata    TEXT,
  ip                TEXT NOT NULL,
  method            TEXT NOT NULL,
  path              TEXT NOT NULL,
  project           TEXT,
  user_agent        TEXT NOT NULL,
  node_id           TEXT NOT NULL,
  created_at        BIGINT NOT NULL,
  settled           BOOLEAN NOT NULL,
  status            BIGINT,
  error_code        TEXT,
  model             TEXT,
  provider          TEXT,
  attempts          TEXT,
  input_tokens      BIGINT,
  output_tokens     BIGINT,
  reserved          BIGINT NOT NULL,
  credits           BIGINT NOT NULL,
  simulated_credits BIGINT NOT NULL,
  usage_source      TEXT,
  latency_us        BIGINT,
  upstream_us       BIGINT
) WITHOUT ROWID; --sqlite
) PARTITION BY RANGE (id); --postgres
CREATE TABLE requests_default PARTITION OF requests DEFAULT; --postgres
CREATE INDEX requests_by_workspace ON requests (workspace_id, environment, id);
CREATE INDEX requests_by_key ON requests (key_id, id);
CREATE INDEX requests_open ON requests (node_id) WHERE NOT settled;

-- Keys that were refused, counted by address and minute: there is no tenant to
-- attribute them to, and an attacker must not be able to fill the log.
CREATE TABLE refused_keys (
  minute BIGINT NOT NULL,
  ip     TEXT NOT NULL,
  count  BIGINT NOT NULL,
  PRIMARY KEY (minute, ip)
);

-- Who changed what: written in the transaction of the change.
CREATE TABLE admin_actions (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT,
  actor        TEXT NOT NULL,
  action       TEXT NOT NULL,
  target       TEXT NOT NULL,
  detail       TEXT NOT NULL,
  ip           TEXT,
  request_id   TEXT,
  created_at   BIGINT NOT NULL
);
CREATE INDEX admin_actions_by_workspace ON admin_actions (workspace_id, id);

-- Answers to requests with an Idempotency-Key, sealed: they may hold secrets.
CREATE TABLE idempotency (
  principal   TEXT NOT NULL,
  method      TEXT NOT NULL,
  path_hash   TEXT NOT NULL,
  idem_key    TEXT NOT NULL,
  body_hash   TEXT NOT NULL,
  status      BIGINT NOT NULL,
  answer      TEXT NOT NULL,
  created_at  BIGINT NOT NULL,
  PRIMARY KEY (principal, method, path_hash, idem_key)
);
CREATE INDEX idempotency_by_age ON idempotency (created_at);
