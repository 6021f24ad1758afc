-- A keyed hash of the settings that a node uses; empty for nodes of an older version.
ALTER TABLE nodes ADD COLUMN config_hash TEXT NOT NULL DEFAULT '';
