-- Runs that wait for a person, whom the dashboard tells on every visit.
CREATE INDEX agent_runs_awaiting ON agent_runs (workspace_id, environment, id) WHERE status = 'awaiting_approval';
