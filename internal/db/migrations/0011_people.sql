-- How people prove who they are. A token of any kind is stored as its SHA-256
-- alone: it has 256 random bits, so there is nothing to guess.

-- Who is signed in. created_at is the sign-in's and stays when the token is
-- replaced, so that no session outlives its end.
CREATE TABLE sessions (
  id           TEXT PRIMARY KEY,
  token_hash   TEXT NOT NULL UNIQUE,
  user_id      TEXT NOT NULL REFERENCES users (id),
  method       TEXT NOT NULL, -- of the sign-in: password, totp, recovery_code, passkey, oidc, link
  ip           TEXT NOT NULL,
  user_agent   TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  seen_at      BIGINT NOT NULL, -- to the minute
  confirmed_at BIGINT NOT NULL  -- when the person last proved who they are
);
CREATE INDEX sessions_by_user ON sessions (user_id, id);
CREATE INDEX sessions_by_seen ON sessions (seen_at);
CREATE INDEX sessions_by_age ON sessions (created_at);

-- Sign-ins that are half-way: the password was right, the second factor is missing.
CREATE TABLE half_logins (
  token_hash TEXT PRIMARY KEY,
  user_id    TEXT NOT NULL REFERENCES users (id),
  method     TEXT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX half_logins_by_user ON half_logins (user_id);
CREATE INDEX half_logins_by_end ON half_logins (expires_at);

-- Attempts that did not succeed, by account and by address. They are rows so
-- that nodes count together.
CREATE TABLE login_failures (
  subject       TEXT PRIMARY KEY,
  failures      BIGINT NOT NULL,
  first_at      BIGINT NOT NULL,
  blocked_until BIGINT NOT NULL
);
CREATE INDEX login_failures_by_end ON login_failures (blocked_until);

-- Codes of an authenticator app. The last step that was used is kept, so that a
-- code works once.
CREATE TABLE totp (
  user_id    TEXT PRIMARY KEY REFERENCES users (id),
  secret     TEXT NOT NULL, -- sealed
  enabled_at BIGINT,        -- NULL until a first code has shown that the app has it
  last_step  BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);

CREATE TABLE recovery_codes (
  user_id TEXT NOT NULL REFERENCES users (id),
  hash    TEXT NOT NULL, -- an HMAC with the pepper: a code is short
  used_at BIGINT,
  PRIMARY KEY (user_id, hash)
);

CREATE TABLE passkeys (
  id            TEXT PRIMARY KEY,
  user_id       TEXT NOT NULL REFERENCES users (id),
  credential_id TEXT NOT NULL UNIQUE,
  name          TEXT NOT NULL,
  credential    TEXT NOT NULL, -- sealed: nobody adds one by writing into the table
  created_at    BIGINT NOT NULL,
  last_used_at  BIGINT
);
CREATE INDEX passkeys_by_user ON passkeys (user_id, id);

-- Which account at a provider of OpenID Connect is whose.
CREATE TABLE identities (
  issuer     TEXT NOT NULL,
  subject    TEXT NOT NULL,
  user_id    TEXT NOT NULL REFERENCES users (id),
  created_at BIGINT NOT NULL,
  PRIMARY KEY (issuer, subject),
  UNIQUE (issuer, user_id)
);

-- Exchanges with a browser that have begun: passkey challenges, sign-ins at a
-- provider. Each is answered once.
CREATE TABLE ceremonies (
  token_hash TEXT PRIMARY KEY,
  kind       TEXT NOT NULL,
  user_id    TEXT,
  state      TEXT NOT NULL, -- sealed
  expires_at BIGINT NOT NULL
);
CREATE INDEX ceremonies_by_end ON ceremonies (expires_at);

-- Links that work once: set-up (until it is used) and choosing a password.
CREATE TABLE one_time_links (
  token_hash   TEXT PRIMARY KEY,
  kind         TEXT NOT NULL,
  user_id      TEXT REFERENCES users (id),
  workspace_id TEXT REFERENCES workspaces (id),
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT -- NULL for never
);
CREATE INDEX one_time_links_by_user ON one_time_links (user_id);
CREATE INDEX one_time_links_by_end ON one_time_links (expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE invitations (
  id           TEXT PRIMARY KEY,
  token_hash   TEXT NOT NULL UNIQUE,
  workspace_id TEXT NOT NULL REFERENCES workspaces (id),
  email        TEXT NOT NULL,
  role         TEXT NOT NULL,
  invited_by   TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  expires_at   BIGINT NOT NULL,
  accepted_at  BIGINT,
  revoked_at   BIGINT
);
CREATE INDEX invitations_by_workspace ON invitations (workspace_id, id);
CREATE INDEX invitations_by_email ON invitations (email);
CREATE INDEX invitations_by_end ON invitations (expires_at);
