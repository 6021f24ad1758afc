-- The model that the client asked for, if another one or none was called.
ALTER TABLE requests ADD COLUMN requested_model TEXT;
-- The error of a failed request as JSON: message, parameter, and the limit that refused it.
ALTER TABLE requests ADD COLUMN failure TEXT;
-- The time before the first attempt. Null below a millisecond.
ALTER TABLE requests ADD COLUMN queue_us BIGINT;
-- The time until the first token of a streamed response.
ALTER TABLE requests ADD COLUMN first_token_us BIGINT;
