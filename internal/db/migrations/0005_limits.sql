-- Limits, shared between nodes. All of it is worth a minute at most, so on
-- PostgreSQL it is not written ahead: a crash empties it, and no commit waits
-- for the disk. The embedded database has one server, which keeps them in memory.

-- The buckets of an id. full is when everything would be there again, given what
-- was ever given back, both in nanoseconds, as a unit may be less than a
-- microsecond. Their pages have room, so that an update stays on its page.
CREATE TABLE limit_rates ( --sqlite
CREATE UNLOGGED TABLE limit_rates ( --postgres
  id            TEXT PRIMARY KEY,
  requests_full BIGINT NOT NULL,
  tokens_full   BIGINT NOT NULL,
  tokens_given  BIGINT NOT NULL,
  used_at       BIGINT NOT NULL, -- to the minute: it is in an index
  wanted_at     BIGINT           -- when a node found no place, and others should give back theirs
); --sqlite
) WITH (fillfactor = 50); --postgres
CREATE INDEX limit_rates_by_age ON limit_rates (used_at);
CREATE INDEX limit_rates_wanted ON limit_rates (wanted_at) WHERE wanted_at IS NOT NULL;

-- How many calls of an id a node may have in flight.
CREATE TABLE limit_places ( --sqlite
CREATE UNLOGGED TABLE limit_places ( --postgres
  id      TEXT NOT NULL,
  node_id TEXT NOT NULL,
  places  BIGINT NOT NULL,
  PRIMARY KEY (id, node_id)
);

-- Who holds places: those of a node that does not say so again are free.
CREATE TABLE limit_nodes ( --sqlite
CREATE UNLOGGED TABLE limit_nodes ( --postgres
  node_id     TEXT PRIMARY KEY,
  alive_until BIGINT NOT NULL
);
