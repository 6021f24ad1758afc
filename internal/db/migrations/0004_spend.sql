-- The books: what an account has spent in a month, and what of its budget is
-- handed out to nodes. leased is the sum of the nodes' leases.
CREATE TABLE spend (
  level      TEXT NOT NULL,
  account_id TEXT NOT NULL,
  period     TEXT NOT NULL, -- YYYY-MM, UTC
  settled    BIGINT NOT NULL,
  leased     BIGINT NOT NULL,
  PRIMARY KEY (level, account_id, period)
);

CREATE TABLE spend_leases (
  node_id    TEXT NOT NULL,
  level      TEXT NOT NULL,
  account_id TEXT NOT NULL,
  period     TEXT NOT NULL,
  granted    BIGINT NOT NULL,
  PRIMARY KEY (node_id, level, account_id, period)
);
