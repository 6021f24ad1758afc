-- The cost of tool calls in agent runs. request_id is the log entry of a call in progress that has a price.
ALTER TABLE agent_calls ADD COLUMN request_id TEXT;
ALTER TABLE agent_calls ADD COLUMN credits BIGINT NOT NULL DEFAULT 0;
