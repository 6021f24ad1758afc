-- The models that a key, a project or a scoped token may use, and the providers that may run them, as JSON arrays. NULL allows all.
ALTER TABLE keys ADD COLUMN allowed_models TEXT;
ALTER TABLE keys ADD COLUMN allowed_providers TEXT;
ALTER TABLE projects ADD COLUMN allowed_models TEXT;
ALTER TABLE projects ADD COLUMN allowed_providers TEXT;
ALTER TABLE scoped_tokens ADD COLUMN allowed_models TEXT;
ALTER TABLE scoped_tokens ADD COLUMN allowed_providers TEXT;

-- The limits of the scoped token that created the work, as JSON. NULL if it has none.
ALTER TABLE media_jobs ADD COLUMN token_limits TEXT;
ALTER TABLE background_responses ADD COLUMN token_limits TEXT;
