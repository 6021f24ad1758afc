-- Routes of workspaces and projects: names for lists of models. models and weights are JSON arrays.
CREATE TABLE workspace_routes (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  project      TEXT,
  name         TEXT NOT NULL,
  models       TEXT NOT NULL,
  strategy     TEXT NOT NULL,
  weights      TEXT,
  timeout_ms   BIGINT NOT NULL,
  created_at   BIGINT NOT NULL,
  created_by   TEXT NOT NULL
);
CREATE UNIQUE INDEX workspace_routes_by_name ON workspace_routes (workspace_id, environment, coalesce(project, ''), name);
