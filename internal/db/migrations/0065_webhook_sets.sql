-- Deliveries that were due before this time are discarded by a resume that discards.
ALTER TABLE endpoints ADD COLUMN discard_before BIGINT;

-- The server's address in the links of a delivery's body, so that every node sends the same bytes.
ALTER TABLE deliveries ADD COLUMN links_base TEXT;

-- How far the total of a replay is counted. NULL means that it is complete.
ALTER TABLE replays ADD COLUMN counted_to TEXT;

-- Events whose fan-out failed. They are retried one by one.
CREATE TABLE parked_events (
  event_id TEXT PRIMARY KEY,
  failures BIGINT NOT NULL,
  retry_at BIGINT NOT NULL,
  error    TEXT NOT NULL
);
CREATE INDEX parked_events_due ON parked_events (retry_at);
