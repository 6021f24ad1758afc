-- What becomes of a key that a workspace sends in a prompt or in metadata: off,
-- report or revoke.
ALTER TABLE workspaces ADD COLUMN leak_policy TEXT NOT NULL DEFAULT 'off';
