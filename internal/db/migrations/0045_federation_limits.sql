-- The models that the tokens of a rule may use, and the providers that may run them, as JSON arrays. NULL allows all that the key may use.
ALTER TABLE federation_rules ADD COLUMN allowed_models TEXT;
ALTER TABLE federation_rules ADD COLUMN allowed_providers TEXT;
