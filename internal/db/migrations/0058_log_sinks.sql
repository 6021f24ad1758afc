-- Where log sinks, such as Kafka, are in the request log. Entries up to position are sent or pending; it is empty before the start.
CREATE TABLE log_sinks (
  name      TEXT PRIMARY KEY,
  position  TEXT NOT NULL,
  sent      BIGINT NOT NULL,
  seen_at   BIGINT NOT NULL,
  failures  BIGINT NOT NULL,
  failed_at BIGINT,
  failure   TEXT
);

-- Entries that a sink sends apart from its position: those that weren't settled, were inserted late or have changed.
CREATE TABLE log_sink_pending (
  sink       TEXT NOT NULL,
  request_id TEXT NOT NULL,
  version    BIGINT NOT NULL,
  PRIMARY KEY (sink, request_id)
);

-- The ID below which each entry that the node inserts is pending. It is empty while there are no sinks.
ALTER TABLE nodes ADD COLUMN log_floor TEXT NOT NULL DEFAULT '';
