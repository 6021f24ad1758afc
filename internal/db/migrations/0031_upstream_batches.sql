-- Batches that a provider's own batch API runs. Their lines hold reservations until they end.
ALTER TABLE batches ADD COLUMN provider TEXT;            -- whose batch API runs it; NULL if its lines are called one by one
ALTER TABLE batches ADD COLUMN upstream_id TEXT;         -- of the batch at the provider
ALTER TABLE batches ADD COLUMN submitting_at BIGINT;     -- when it was last submitted; the outcome is unknown without upstream_id
ALTER TABLE batches ADD COLUMN upstream_cancel_at BIGINT; -- when the provider was asked to cancel it
ALTER TABLE batches ADD COLUMN accounts TEXT;            -- that its lines are charged to

ALTER TABLE batch_lines ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0;   -- credits that the line's lease holds
ALTER TABLE batch_lines ADD COLUMN max_output BIGINT NOT NULL DEFAULT 0; -- output tokens that those pay for; 0 if they set no limit
