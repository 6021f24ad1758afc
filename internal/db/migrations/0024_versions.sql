-- What nodes of different versions must know about each other during an upgrade.

-- The schema version of a node's program and the features that it supports,
-- separated by spaces. Nodes of an older version leave the defaults.
ALTER TABLE nodes ADD COLUMN schema_version BIGINT NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN features TEXT NOT NULL DEFAULT '';

-- Set by a contract migration: programs with a lower schema version no longer work.
ALTER TABLE schema_migrations ADD COLUMN oldest_program BIGINT;
