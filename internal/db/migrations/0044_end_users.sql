-- The users of a workspace's own product. Their names are the workspace's IDs for them. The log, the ledger and usage refer to the ID.
CREATE TABLE end_users (
  id                           TEXT PRIMARY KEY,
  workspace_id                 TEXT NOT NULL,
  environment                  TEXT NOT NULL,
  name                         TEXT NOT NULL,
  -- Of the scoped token that was created last.
  budget                       BIGINT,
  budget_window                TEXT,
  requests_per_minute          BIGINT,
  -- Set by an admin, in place of the token's.
  override_budget              BIGINT,
  override_window              TEXT,
  override_requests_per_minute BIGINT,
  blocked_at                   BIGINT,
  created_at                   BIGINT NOT NULL,
  seen_at                      BIGINT NOT NULL
);
CREATE UNIQUE INDEX end_users_by_name ON end_users (workspace_id, environment, name);
CREATE INDEX end_users_by_id ON end_users (workspace_id, environment, id);
CREATE INDEX end_users_idle ON end_users (seen_at);

CREATE TABLE end_user_counts (
  workspace_id TEXT PRIMARY KEY,
  users        BIGINT NOT NULL
);

ALTER TABLE scoped_tokens ADD COLUMN end_user_id TEXT;

-- user_field: whether the user in a request's body has an account. The others are the limits of users without their own.
ALTER TABLE workspaces ADD COLUMN user_field BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE workspaces ADD COLUMN user_budget BIGINT;
ALTER TABLE workspaces ADD COLUMN user_window TEXT;
ALTER TABLE workspaces ADD COLUMN user_requests_per_minute BIGINT;
-- A JSON array of percentages. NULL means the workspace's, and no email.
ALTER TABLE workspaces ADD COLUMN user_alert_thresholds TEXT;

ALTER TABLE requests ADD COLUMN end_user_id TEXT;

-- Balances of past windows are purged, except for those of workspaces.
CREATE INDEX spend_by_period ON spend (period) WHERE level <> 'workspace';

-- Usage of users by the day.
CREATE TABLE usage_users (
  workspace_id      TEXT NOT NULL,
  environment       TEXT NOT NULL,
  start             BIGINT NOT NULL,
  end_user_id       TEXT NOT NULL,
  requests          BIGINT NOT NULL,
  errors            BIGINT NOT NULL,
  input_tokens      BIGINT NOT NULL,
  output_tokens     BIGINT NOT NULL,
  cached_tokens     BIGINT NOT NULL,
  credits           BIGINT NOT NULL,
  simulated_credits BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, environment, start, end_user_id)
) WITHOUT ROWID; --sqlite
); --postgres
