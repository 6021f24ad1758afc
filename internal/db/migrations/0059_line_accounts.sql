-- The accounts that a line of a batch at a provider is charged to. NULL means those of its batch.
ALTER TABLE batch_lines ADD COLUMN accounts TEXT;
