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
