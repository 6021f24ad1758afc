-- Where in a scanned repository or log a leaked secret is. The reporter's URL stays in url.
ALTER TABLE leak_reports ADD COLUMN location TEXT;
-- A leaked webhook secret is found by its hint, because endpoints have their secrets encrypted. The old
-- secret of a rotation signs until its grace period ends.
ALTER TABLE endpoints ADD COLUMN old_secret_hint TEXT;
CREATE INDEX endpoints_by_secret_hint ON endpoints (secret_hint);
CREATE INDEX endpoints_by_old_secret_hint ON endpoints (old_secret_hint) WHERE old_secret_hint IS NOT NULL;
