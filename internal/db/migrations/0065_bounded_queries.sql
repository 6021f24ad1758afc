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
