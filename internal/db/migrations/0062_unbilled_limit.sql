-- How many unbilled credits a workspace may cause in a month, in percent of its budget or of what it was charged, and
-- the month in which it caused more, with the amounts: see accounts.UnbilledStop. The ledger counts them as the level
-- 'unbilled'.
ALTER TABLE workspaces ADD COLUMN unbilled_limit_percent BIGINT NOT NULL DEFAULT 5;
ALTER TABLE workspaces ADD COLUMN unbilled_stop TEXT;
