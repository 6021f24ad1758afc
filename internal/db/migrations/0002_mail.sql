-- Mail on its way out, and what became of it.
CREATE TABLE mails (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  kind         TEXT NOT NULL,
  recipient    TEXT NOT NULL,
  subject      TEXT NOT NULL,
  body         TEXT NOT NULL,
  once         TEXT UNIQUE, -- a hash of what must be mailed once; NULL for what may repeat
  status       TEXT NOT NULL, -- waiting, sent, failed, logged
  created_at   BIGINT NOT NULL,
  due_at       BIGINT, -- the next attempt; while one runs, when its claim ends; NULL once finished
  attempts     BIGINT NOT NULL,
  last_error   TEXT,
  sent_at      BIGINT
);
CREATE INDEX mails_due ON mails (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX mails_by_workspace ON mails (workspace_id, id);
CREATE INDEX mails_finished ON mails (created_at) WHERE due_at IS NULL;
