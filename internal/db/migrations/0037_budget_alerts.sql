-- When a budget's spending alerts people: percentages of the budget as a JSON array. NULL means the workspace's, and 50, 80 and 95 for a workspace.
ALTER TABLE workspaces ADD COLUMN alert_thresholds TEXT;
ALTER TABLE projects ADD COLUMN alert_thresholds TEXT;
ALTER TABLE keys ADD COLUMN alert_thresholds TEXT;
ALTER TABLE keys ADD COLUMN alert_email TEXT; -- gets the key's alerts, in addition to owners and admins

-- Alerts that were published, so that each is published once per period and budget. 100 percent means that the budget is exceeded.
CREATE TABLE budget_alerts (
  level      TEXT NOT NULL,
  account_id TEXT NOT NULL,
  period     TEXT NOT NULL,
  budget     BIGINT NOT NULL,
  percent    BIGINT NOT NULL,
  fired_at   BIGINT NOT NULL,
  PRIMARY KEY (level, account_id, period, budget, percent)
);
CREATE INDEX budget_alerts_by_time ON budget_alerts (fired_at);

-- Where a workspace's notifications go, in addition to email: an incoming webhook, such as Slack's. Its URL is a secret.
CREATE TABLE notification_settings (
  workspace_id   TEXT PRIMARY KEY,
  sealed_url     TEXT,
  url_hint       TEXT,
  format         TEXT,
  omit_arguments BOOLEAN NOT NULL DEFAULT FALSE, -- of tool calls that need an approval
  last_sent_at   BIGINT,
  last_error     TEXT -- of the last attempt; NULL if it succeeded
);

-- Messages to incoming webhooks that aren't sent yet, and reminders.
CREATE TABLE notifications (
  id           TEXT PRIMARY KEY,
  workspace_id TEXT NOT NULL,
  lane         TEXT NOT NULL,
  kind         TEXT NOT NULL,
  sealed_body  TEXT NOT NULL,
  created_at   BIGINT NOT NULL,
  due_at       BIGINT NOT NULL,
  attempts     BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX notifications_due ON notifications (lane, due_at, id);
