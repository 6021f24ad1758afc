-- Rules that exchange tokens of OpenID Connect issuers for scoped tokens of a key.
CREATE TABLE federation_rules (
  id              TEXT PRIMARY KEY,
  workspace_id    TEXT NOT NULL REFERENCES workspaces (id),
  environment     TEXT NOT NULL,
  project         TEXT,
  name            TEXT NOT NULL,
  issuer          TEXT NOT NULL,
  audience        TEXT NOT NULL,
  subject         TEXT NOT NULL,
  key_id          TEXT NOT NULL,
  scopes          TEXT NOT NULL,
  grants          TEXT NOT NULL,
  expires_in      BIGINT NOT NULL,
  metadata_claims TEXT NOT NULL,
  created_at      BIGINT NOT NULL,
  created_by      TEXT NOT NULL,
  last_used_at    BIGINT
);
CREATE INDEX federation_rules_by_workspace ON federation_rules (workspace_id, environment, id);
