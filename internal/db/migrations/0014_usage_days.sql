-- Usage by the day, so that a month of a busy workspace is read at once.
CREATE TABLE usage_days (
  workspace_id      TEXT NOT NULL,
  environment       TEXT NOT NULL,
  start             BIGINT NOT NULL,
  key_id            TEXT NOT NULL,
  project           TEXT NOT NULL,
  model             TEXT NOT NULL,
  provider          TEXT NOT NULL,
  requests          BIGINT NOT NULL,
  errors            BIGINT NOT NULL,
  input_tokens      BIGINT NOT NULL,
  output_tokens     BIGINT NOT NULL,
  credits           BIGINT NOT NULL,
  simulated_credits BIGINT NOT NULL,
  PRIMARY KEY (workspace_id, environment, start, key_id, project, model, provider)
) WITHOUT ROWID; --sqlite
); --postgres
INSERT INTO usage_days (workspace_id, environment, start, key_id, project, model, provider, requests, errors, input_tokens, output_tokens, credits, simulated_credits)
  SELECT workspace_id, environment, start - start % 86400, key_id, project, model, provider,
    sum(requests), sum(errors), sum(input_tokens), sum(output_tokens), sum(credits), sum(simulated_credits)
  FROM usage_hours GROUP BY workspace_id, environment, start - start % 86400, key_id, project, model, provider;
