-- Input tokens that providers read from their caches. Earlier usage counts none.
ALTER TABLE usage_minutes ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_hours ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE usage_days ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
