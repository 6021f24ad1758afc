-- Fan-out hands deliveries over as they are, and an endpoint has one tenant.
ALTER TABLE new_events ADD COLUMN sample BOOLEAN NOT NULL DEFAULT FALSE;
DROP INDEX deliveries_by_endpoint;
CREATE INDEX deliveries_by_endpoint ON deliveries (endpoint_id, id);

-- What a workspace may use in a month, and when its admins are told that little
-- is left: an amount, or a share of it in percent.
ALTER TABLE workspaces ADD COLUMN monthly_credits BIGINT;
ALTER TABLE workspaces ADD COLUMN alert_credits BIGINT;
ALTER TABLE workspaces ADD COLUMN alert_percent BIGINT;

-- That billing.credits.low was published; the row goes when the workspace is
-- above its threshold again.
CREATE TABLE credit_alerts (
  workspace_id TEXT NOT NULL,
  period       TEXT NOT NULL,
  fired_at     BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, period)
);

-- What could not be charged, because it was more than had been reserved, and at
-- which prices the rest was.
ALTER TABLE requests ADD COLUMN unbilled_credits BIGINT NOT NULL DEFAULT 0;
ALTER TABLE requests ADD COLUMN price_version TEXT;
ALTER TABLE requests ADD COLUMN cached_tokens BIGINT;

-- Usage by minute and by hour, added up as entries of the log are settled, from
-- which it can be made anew. Days and months are sums of hours.
CREATE TABLE usage_minutes (
  workspace_id      TEXT NOT NULL,
  environment       TEXT NOT NULL,
  start             BIGINT NOT NULL,
  key_id            TEXT NOT NULL,
  project           TEXT NOT NULL,
  model             TEXT NOT NULL,
  provider          TEXT NOT NULL,
  requests          BIGINT NOT NULL,
  errors            BIGINT NOT NULL,
  input_tokens      BIGINT NOT NULL,
  output_tokens     BIGINT NOT NULL,
  credits           BIGINT NOT NULL,
  simulated_credits BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, environment, start, key_id, project, model, provider)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE TABLE usage_hours (
  workspace_id      TEXT NOT NULL,
  environment       TEXT NOT NULL,
  start             BIGINT NOT NULL,
  key_id            TEXT NOT NULL,
  project           TEXT NOT NULL,
  model             TEXT NOT NULL,
  provider          TEXT NOT NULL,
  requests          BIGINT NOT NULL,
  errors            BIGINT NOT NULL,
  input_tokens      BIGINT NOT NULL,
  output_tokens     BIGINT NOT NULL,
  credits           BIGINT NOT NULL,
  simulated_credits BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, environment, start, key_id, project, model, provider)
) WITHOUT ROWID; --sqlite
); --postgres
CREATE INDEX usage_minutes_by_age ON usage_minutes (start);
