-- How many bytes of responses, conversations and files of the Files API a workspace has stored. Triggers keep it, so it follows every
-- program that shares the database, also those of older versions.
CREATE TABLE stored_bytes (
  workspace_id TEXT PRIMARY KEY,
  bytes        BIGINT NOT NULL
);

CREATE TRIGGER responses_inserted AFTER INSERT ON responses BEGIN --sqlite
  INSERT INTO stored_bytes (workspace_id, bytes) VALUES (new.workspace_id, new.bytes) ON CONFLICT (workspace_id) DO UPDATE SET bytes = bytes + excluded.bytes; END; --sqlite
CREATE TRIGGER responses_updated AFTER UPDATE OF bytes ON responses BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes + new.bytes - old.bytes WHERE workspace_id = new.workspace_id; END; --sqlite
CREATE TRIGGER responses_deleted AFTER DELETE ON responses BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes - old.bytes WHERE workspace_id = old.workspace_id; END; --sqlite
CREATE TRIGGER conversation_items_inserted AFTER INSERT ON conversation_items BEGIN --sqlite
  INSERT INTO stored_bytes (workspace_id, bytes) VALUES (new.workspace_id, new.bytes) ON CONFLICT (workspace_id) DO UPDATE SET bytes = bytes + excluded.bytes; END; --sqlite
CREATE TRIGGER conversation_items_updated AFTER UPDATE OF bytes ON conversation_items BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes + new.bytes - old.bytes WHERE workspace_id = new.workspace_id; END; --sqlite
CREATE TRIGGER conversation_items_deleted AFTER DELETE ON conversation_items BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes - old.bytes WHERE workspace_id = old.workspace_id; END; --sqlite
CREATE TRIGGER api_files_inserted AFTER INSERT ON api_files BEGIN --sqlite
  INSERT INTO stored_bytes (workspace_id, bytes) VALUES (new.workspace_id, new.bytes) ON CONFLICT (workspace_id) DO UPDATE SET bytes = bytes + excluded.bytes; END; --sqlite
CREATE TRIGGER api_files_updated AFTER UPDATE OF bytes ON api_files BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes + new.bytes - old.bytes WHERE workspace_id = new.workspace_id; END; --sqlite
CREATE TRIGGER api_files_deleted AFTER DELETE ON api_files BEGIN --sqlite
  UPDATE stored_bytes SET bytes = bytes - old.bytes WHERE workspace_id = old.workspace_id; END; --sqlite

-- Once per statement. Every transaction locks the rows of workspaces in the order of their IDs.
CREATE OR REPLACE FUNCTION count_inserted_bytes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS --postgres
  'BEGIN INSERT INTO stored_bytes AS s (workspace_id, bytes) SELECT workspace_id, sum(bytes) FROM after_rows GROUP BY workspace_id ORDER BY workspace_id --postgres
    ON CONFLICT (workspace_id) DO UPDATE SET bytes = s.bytes + excluded.bytes; RETURN NULL; END'; --postgres
CREATE OR REPLACE FUNCTION count_deleted_bytes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS --postgres
  'BEGIN INSERT INTO stored_bytes AS s (workspace_id, bytes) SELECT workspace_id, -sum(bytes) FROM before_rows GROUP BY workspace_id ORDER BY workspace_id --postgres
    ON CONFLICT (workspace_id) DO UPDATE SET bytes = s.bytes + excluded.bytes; RETURN NULL; END'; --postgres
CREATE OR REPLACE FUNCTION count_updated_bytes() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS --postgres
  'BEGIN INSERT INTO stored_bytes AS s (workspace_id, bytes) SELECT workspace_id, sum(n) --postgres
      FROM (SELECT workspace_id, bytes AS n FROM after_rows UNION ALL SELECT workspace_id, -bytes FROM before_rows) changes --postgres
      GROUP BY workspace_id HAVING sum(n) <> 0 ORDER BY workspace_id --postgres
    ON CONFLICT (workspace_id) DO UPDATE SET bytes = s.bytes + excluded.bytes; RETURN NULL; END'; --postgres

CREATE TRIGGER responses_inserted AFTER INSERT ON responses REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_bytes(); --postgres
CREATE TRIGGER responses_updated AFTER UPDATE ON responses REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_updated_bytes(); --postgres
CREATE TRIGGER responses_deleted AFTER DELETE ON responses REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_bytes(); --postgres
CREATE TRIGGER conversation_items_inserted AFTER INSERT ON conversation_items REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_bytes(); --postgres
CREATE TRIGGER conversation_items_updated AFTER UPDATE ON conversation_items REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_updated_bytes(); --postgres
CREATE TRIGGER conversation_items_deleted AFTER DELETE ON conversation_items REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_bytes(); --postgres
CREATE TRIGGER api_files_inserted AFTER INSERT ON api_files REFERENCING NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_inserted_bytes(); --postgres
CREATE TRIGGER api_files_updated AFTER UPDATE ON api_files REFERENCING OLD TABLE AS before_rows NEW TABLE AS after_rows FOR EACH STATEMENT EXECUTE FUNCTION count_updated_bytes(); --postgres
CREATE TRIGGER api_files_deleted AFTER DELETE ON api_files REFERENCING OLD TABLE AS before_rows FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_bytes(); --postgres

INSERT INTO stored_bytes (workspace_id, bytes) SELECT workspace_id, sum(bytes) FROM (
  SELECT workspace_id, bytes FROM responses UNION ALL SELECT workspace_id, bytes FROM conversation_items UNION ALL SELECT workspace_id, bytes FROM api_files) stored
  GROUP BY workspace_id;

-- What each end user has cost in a month, with what test requests would have cost, in the order in which lists of users show it.
CREATE TABLE usage_user_months (
  workspace_id TEXT NOT NULL,
  environment  TEXT NOT NULL,
  end_user_id  TEXT NOT NULL,
  start        BIGINT NOT NULL,
  cost         BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, environment, end_user_id, start)
) WITHOUT ROWID; --sqlite
) WITH (fillfactor = 70); --postgres
CREATE INDEX usage_user_months_by_cost ON usage_user_months (start, workspace_id, environment, cost DESC, end_user_id);

-- Only the current month is shown.
INSERT INTO usage_user_months (workspace_id, environment, end_user_id, start, cost)
  SELECT t.workspace_id, t.environment, t.end_user_id, m.start, CAST(min(total(t.credits + t.simulated_credits), 1e18) AS INTEGER) --sqlite
  FROM (SELECT CAST(strftime('%s', 'now', 'start of month') AS INTEGER) AS start) m --sqlite
  SELECT t.workspace_id, t.environment, t.end_user_id, m.start, CAST(least(sum(t.credits + t.simulated_credits), 1e18) AS BIGINT) --postgres
  FROM (SELECT CAST(extract(epoch FROM date_trunc('month', now() AT TIME ZONE 'UTC')) AS BIGINT) AS start) m --postgres
  JOIN usage_users t ON t.start >= m.start JOIN end_users u ON u.id = t.end_user_id
  GROUP BY t.workspace_id, t.environment, t.end_user_id, m.start;

-- Lists that sorted all rows of a workspace or key.
CREATE INDEX tool_approvals_by_tenant ON tool_approvals (workspace_id, environment, id);
CREATE INDEX leak_reports_of_key ON leak_reports (key_id, id);
