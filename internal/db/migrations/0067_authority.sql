-- What an admin key may do, from where, and how often. Keys from before may do everything.
ALTER TABLE admin_credentials ADD COLUMN scopes TEXT NOT NULL DEFAULT '["*"]';
ALTER TABLE admin_credentials ADD COLUMN allowed_ips TEXT NOT NULL DEFAULT '[]';
ALTER TABLE admin_credentials ADD COLUMN rate_limit BIGINT NOT NULL DEFAULT 300;

-- Whether requests can leave themselves out of the content log.
ALTER TABLE keys ADD COLUMN content_log_opt_out BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE projects ADD COLUMN content_log_opt_out BOOLEAN NOT NULL DEFAULT FALSE;
