-- What operators manage while the server runs. A definition is a provider, a route or the terms of prices: JSON with the
-- keys of the configuration file, encrypted.
CREATE TABLE definitions (
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  sealed     TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by TEXT NOT NULL,
  PRIMARY KEY (kind, name)
);

-- Credentials of the admin API.
CREATE TABLE admin_credentials (
  id           TEXT PRIMARY KEY,
  name         TEXT NOT NULL,
  hash         TEXT NOT NULL,
  last_four    TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT,
  last_used_at BIGINT,
  revoked_at   BIGINT
);
CREATE UNIQUE INDEX admin_credentials_by_hash ON admin_credentials (hash);

-- People who manage the server in the dashboard.
CREATE TABLE operators (
  user_id    TEXT PRIMARY KEY,
  granted_at BIGINT NOT NULL
);
