-- The claim that has the name of a token's end user, and the limits of its account. NULL if tokens have no end user.
ALTER TABLE federation_rules ADD COLUMN user_claim TEXT;
ALTER TABLE federation_rules ADD COLUMN user_budget BIGINT;
ALTER TABLE federation_rules ADD COLUMN user_window TEXT;
ALTER TABLE federation_rules ADD COLUMN user_requests_per_minute BIGINT;
