-- The step whose answer breaks off because it has as many tokens as it may; 0 is
-- none. A number and no flag: what a node of an older version answers is not cut
-- because the answer before was.
ALTER TABLE agent_runs ADD COLUMN cut_step BIGINT NOT NULL DEFAULT 0;
