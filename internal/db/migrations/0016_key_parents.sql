-- The key that created a key. A child key spends under the budgets and limits of
-- all its ancestors.
ALTER TABLE keys ADD COLUMN parent_key_id TEXT;
UPDATE keys SET parent_key_id = created_by WHERE created_by IN (SELECT id FROM keys);
CREATE INDEX keys_by_parent ON keys (parent_key_id) WHERE parent_key_id IS NOT NULL;

-- Every account that a request is charged to, as a JSON array of
-- [level, ID, period]. NULL in rows from before this migration.
ALTER TABLE requests ADD COLUMN accounts TEXT;
ALTER TABLE media_jobs ADD COLUMN accounts TEXT;
