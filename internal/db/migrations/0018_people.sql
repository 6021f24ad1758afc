-- The body of a mail may hold a link that signs its reader in, so it is stored
-- sealed and deleted once the mail is finished. body is what older versions
-- wrote. It is NULL while a mail waits sealed: a node of an older version that
-- still runs cannot claim such a mail and leaves it to the others.
UPDATE mails SET body = '' WHERE due_at IS NULL;
ALTER TABLE mails ADD COLUMN sealed_body TEXT;
ALTER TABLE mails ALTER COLUMN body DROP NOT NULL; --postgres
ALTER TABLE mails RENAME COLUMN body TO required_body; --sqlite
ALTER TABLE mails ADD COLUMN body TEXT; --sqlite
UPDATE mails SET body = required_body; --sqlite
ALTER TABLE mails DROP COLUMN required_body; --sqlite

-- Browsers and networks from which a person has signed in: strangers' failed
-- sign-ins do not keep the person out there.
CREATE TABLE sign_in_sources (
  hash    TEXT PRIMARY KEY, -- an HMAC of the person and the browser's token, or the network
  kind    TEXT NOT NULL,    -- device, network
  user_id TEXT NOT NULL REFERENCES users (id),
  seen_at BIGINT NOT NULL   -- the last sign-in
);
CREATE INDEX sign_in_sources_by_user ON sign_in_sources (user_id, kind, seen_at);
CREATE INDEX sign_in_sources_by_age ON sign_in_sources (seen_at);

-- Whether members must prove a second factor, and when a session did.
ALTER TABLE workspaces ADD COLUMN require_second_factor BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE sessions ADD COLUMN second_factor_at BIGINT;
UPDATE sessions SET second_factor_at = created_at WHERE method IN ('totp', 'recovery_code', 'passkey');
