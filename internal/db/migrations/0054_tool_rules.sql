-- The approval rules of single tools of a tool server as a JSON object, by the tool's name. NULL has none.
ALTER TABLE tool_servers ADD COLUMN tool_rules TEXT;
