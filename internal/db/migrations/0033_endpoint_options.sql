-- An object of sealed values by name.
ALTER TABLE endpoints ADD COLUMN headers TEXT;
-- The projects whose events the endpoint gets; NULL for all.
ALTER TABLE endpoints ADD COLUMN projects TEXT;
ALTER TABLE endpoints ADD COLUMN requests_per_second BIGINT;
-- When the endpoint began to fail; NULL again with the next success.
ALTER TABLE endpoint_stats ADD COLUMN failing_at BIGINT;
-- The endpoint that an event is about, which doesn't get it.
ALTER TABLE events ADD COLUMN about TEXT;
ALTER TABLE new_events ADD COLUMN about TEXT;
