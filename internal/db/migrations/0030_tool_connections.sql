-- Tool servers that a member connects with OAuth. connection has the client and its tokens, and is encrypted.
ALTER TABLE tool_servers ADD COLUMN connection TEXT;
-- NULL for servers that need no connection.
ALTER TABLE tool_servers ADD COLUMN connection_state TEXT;
ALTER TABLE tool_servers ADD COLUMN connected_at BIGINT;
ALTER TABLE tool_servers ADD COLUMN connected_by TEXT;
ALTER TABLE tool_servers ADD COLUMN token_expires_at BIGINT;
-- The lease of the node that renews the token.
ALTER TABLE tool_servers ADD COLUMN renewal_id TEXT;
ALTER TABLE tool_servers ADD COLUMN renewal_until BIGINT;

-- Authorizations that members have started and not completed. pending is encrypted.
CREATE TABLE tool_authorizations (
  state_hash TEXT PRIMARY KEY,
  server_id  TEXT NOT NULL,
  session_id TEXT NOT NULL,
  pending    TEXT NOT NULL,
  expires_at BIGINT NOT NULL
);
CREATE INDEX tool_authorizations_by_expiry ON tool_authorizations (expires_at);
