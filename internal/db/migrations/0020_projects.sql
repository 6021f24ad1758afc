-- What a key that is pinned to a project can see.

-- An endpoint that a pinned key creates gets the events of that project only.
ALTER TABLE endpoints ADD COLUMN project TEXT;
-- Who created an endpoint: only the key that opened a tunnel can resume it.
ALTER TABLE endpoints ADD COLUMN created_by TEXT;
UPDATE endpoints SET created_by = (SELECT min(a.actor) FROM admin_actions a
  WHERE a.workspace_id = endpoints.workspace_id AND a.target = endpoints.id AND a.action = 'webhook.created')
  WHERE kind = 'tunnel' AND deleted_at IS NULL;

-- The project of the action's target, if it has one.
ALTER TABLE admin_actions ADD COLUMN project TEXT;

-- For the lists of pinned keys. Rows without a project are in none of them.
CREATE INDEX agent_runs_by_project ON agent_runs (workspace_id, environment, project, id) WHERE project IS NOT NULL;
CREATE INDEX media_jobs_by_project ON media_jobs (workspace_id, environment, project, kind, id) WHERE project IS NOT NULL;
CREATE INDEX events_by_project ON events (workspace_id, environment, project, id) WHERE project IS NOT NULL;
