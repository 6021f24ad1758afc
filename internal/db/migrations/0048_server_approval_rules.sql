-- The approval rules of a tool server as JSON. NULL has the defaults.
ALTER TABLE tool_servers ADD COLUMN approval_rules TEXT;
-- Who has approved a call that needs two approvers, as a JSON array.
ALTER TABLE tool_approvals ADD COLUMN approved_by TEXT;
