-- Deliveries that were due before this time are discarded by a resume that discards.
ALTER TABLE endpoints ADD COLUMN discard_before BIGINT;

-- The server's address in the links of a delivery's body, so that every node sends the same bytes.
ALTER TABLE deliveries ADD COLUMN links_base TEXT;

-- How far the total of a replay is counted. NULL means that it is complete.
ALTER TABLE replays ADD COLUMN counted_to TEXT;
