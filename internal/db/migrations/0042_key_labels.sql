-- The ID of a key's owner in another system.
ALTER TABLE keys ADD COLUMN external_id TEXT;
-- An object of strings.
ALTER TABLE keys ADD COLUMN metadata TEXT;
CREATE INDEX keys_by_external_id ON keys (workspace_id, environment, external_id) WHERE external_id IS NOT NULL;
