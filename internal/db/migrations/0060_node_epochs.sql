-- Which transactions of a node may still happen: see nodes/epoch.go.
ALTER TABLE nodes ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
