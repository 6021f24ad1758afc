-- Decisions that change a call of an MCP client, encrypted: other arguments, or an answer that the client gets instead of the tool's result.
ALTER TABLE tool_approvals ADD COLUMN edited_arguments TEXT;
ALTER TABLE tool_approvals ADD COLUMN response TEXT;
