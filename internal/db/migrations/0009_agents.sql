-- Agent runs: what each is to do and how far it is, the conversation with its
-- model, its steps, the calls of tools that they ask for, and a log of what
-- happened, for whoever watches.
CREATE TABLE agent_runs (
  id              TEXT PRIMARY KEY,
  workspace_id    TEXT NOT NULL,
  environment     TEXT NOT NULL,
  project         TEXT,
  key_id          TEXT NOT NULL,
  reader          TEXT NOT NULL, -- which scoped tokens may see it; empty for none
  request_id      TEXT NOT NULL,
  lane            TEXT NOT NULL,
  status          TEXT NOT NULL,
  model           TEXT NOT NULL,
  orders          TEXT NOT NULL, -- instructions, limits of time, checks
  specs           TEXT NOT NULL, -- the tools as they were given, without their secrets
  secrets         TEXT,          -- of them, encrypted
  tools           TEXT,          -- what the model can call; null until it was asked for
  metadata        TEXT NOT NULL,
  max_steps       BIGINT NOT NULL,
  steps_used      BIGINT NOT NULL,
  revisions       BIGINT NOT NULL,
  budget          BIGINT,
  input_tokens    BIGINT NOT NULL,
  output_tokens   BIGINT NOT NULL,
  credits         BIGINT NOT NULL,
  answer          TEXT, -- the model's last words
  result          TEXT,
  error           TEXT,
  turn            BIGINT NOT NULL, -- how often it was worked: a guard against two who do
  tries           BIGINT NOT NULL, -- that failed, one after the other
  due_at          BIGINT, -- when it is worked again, or its time is up; null when it has ended
  worked_us       BIGINT NOT NULL, -- how long it was at work
  messages        BIGINT NOT NULL, -- of the conversation
  logged          BIGINT NOT NULL, -- entries of its log
  created_at      BIGINT NOT NULL,
  started_at      BIGINT,
  completed_at    BIGINT
);
CREATE INDEX agent_runs_by_tenant ON agent_runs (workspace_id, environment, id);
CREATE INDEX agent_runs_due ON agent_runs (lane, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX agent_runs_by_age ON agent_runs (completed_at) WHERE completed_at IS NOT NULL;

CREATE TABLE agent_messages (
  run_id    TEXT NOT NULL,
  position  BIGINT NOT NULL,
  message   TEXT NOT NULL,
  PRIMARY KEY (run_id, position)
) WITHOUT ROWID; --sqlite
); --postgres

CREATE TABLE agent_steps (
  run_id        TEXT NOT NULL,
  number        BIGINT NOT NULL,
  id            TEXT NOT NULL,
  request_id    TEXT NOT NULL, -- its entry in the request log
  status        TEXT NOT NULL,
  model         TEXT,
  provider      TEXT,
  input_tokens  BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL,
  credits       BIGINT NOT NULL,
  text          TEXT,
  error         TEXT,
  created_at    BIGINT NOT NULL,
  completed_at  BIGINT,
  PRIMARY KEY (run_id, number)
) WITHOUT ROWID; --sqlite
); --postgres

CREATE TABLE agent_calls (
  run_id         TEXT NOT NULL,
  step           BIGINT NOT NULL,
  position       BIGINT NOT NULL,
  id             TEXT NOT NULL,
  tool           TEXT NOT NULL,
  kind           TEXT NOT NULL,
  arguments      TEXT NOT NULL,
  arguments_hash TEXT NOT NULL,
  status         TEXT NOT NULL,
  approval_id    TEXT,
  expires_at     BIGINT, -- of a decision, or of the customer's output
  note           TEXT,   -- why it asks for approval, if not because its tool does
  decision       TEXT,
  decided_by     TEXT,
  decided_at     BIGINT,
  reason         TEXT,
  output         TEXT,
  is_error       BOOLEAN NOT NULL,
  started_at     BIGINT,
  finished_at    BIGINT,
  PRIMARY KEY (run_id, step, position)
) WITHOUT ROWID; --sqlite
); --postgres

CREATE TABLE agent_events (
  run_id     TEXT NOT NULL,
  seq        BIGINT NOT NULL,
  type       TEXT NOT NULL,
  data       TEXT NOT NULL,
  created_at BIGINT NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID; --sqlite
); --postgres
