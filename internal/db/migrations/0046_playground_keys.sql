-- The member whose playground uses the key. Such keys aren't listed, and no one knows their secret.
ALTER TABLE keys ADD COLUMN member_id TEXT;
CREATE INDEX keys_by_member ON keys (workspace_id, member_id, environment) WHERE member_id IS NOT NULL AND revoked_at IS NULL;
