-- Whether HTTP and MCP tools of test runs are simulated or real; NULL is the
-- server's default.
ALTER TABLE workspaces ADD COLUMN test_tools TEXT;

-- A simulated call sent no request.
ALTER TABLE agent_calls ADD COLUMN simulated BOOLEAN NOT NULL DEFAULT FALSE;

-- HTTP and MCP tool calls that the server has started for the run.
ALTER TABLE agent_runs ADD COLUMN tool_calls BIGINT NOT NULL DEFAULT 0;
