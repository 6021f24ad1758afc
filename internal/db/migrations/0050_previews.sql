-- The beginning of the prompt or the input, for lists. Null in rows of older versions.
ALTER TABLE agent_runs ADD COLUMN preview TEXT;
ALTER TABLE media_jobs ADD COLUMN preview TEXT;
