-- Responses that are created in the background. A row is deleted when its response ends.
CREATE TABLE background_responses (
  id            TEXT PRIMARY KEY, -- of the response
  workspace_id  TEXT NOT NULL,
  environment   TEXT NOT NULL,
  project       TEXT,
  key_id        TEXT NOT NULL,
  request_id    TEXT NOT NULL,  -- the request that created it, which is charged
  lane          TEXT NOT NULL,
  due_at        BIGINT NOT NULL,
  deadline_at   BIGINT NOT NULL,
  created_at    BIGINT NOT NULL,
  attempts      BIGINT NOT NULL, -- calls to a provider that have started
  request       TEXT NOT NULL,  -- encrypted
  max_output    BIGINT NOT NULL, -- output tokens that the reservation pays for; 0 if it sets no limit
  reserved      BIGINT NOT NULL,
  price_version TEXT NOT NULL,
  accounts      TEXT,           -- that are charged
  model         TEXT NOT NULL,
  provider      TEXT NOT NULL,
  input_tokens  BIGINT NOT NULL, -- estimated
  input_cost    BIGINT NOT NULL, -- of those
  output_tokens BIGINT NOT NULL, -- so far
  cost          BIGINT NOT NULL, -- of the input, and of the output so far
  next_event    BIGINT NOT NULL  -- the next sequence number; 0 if the response isn't streamed
);
CREATE INDEX background_responses_due ON background_responses (lane, due_at, id);

-- queued or in_progress while the response is created in the background, and NULL otherwise.
ALTER TABLE responses ADD COLUMN status TEXT;

-- The events of streamed background responses, several in a row.
CREATE TABLE response_events (
  response_id TEXT NOT NULL,
  last_event  BIGINT NOT NULL, -- the highest sequence number in the row
  content     TEXT NOT NULL,   -- encrypted
  bytes       BIGINT NOT NULL,
  PRIMARY KEY (response_id, last_event)
);
