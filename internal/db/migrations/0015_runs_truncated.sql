-- Whether a run's last answer breaks off because it has as many tokens as it may.
ALTER TABLE agent_runs ADD COLUMN truncated BOOLEAN NOT NULL DEFAULT FALSE;
