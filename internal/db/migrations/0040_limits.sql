-- The limits of keys and projects as a JSON array, and a temporary raise of their monthly budget as JSON. NULL means none.
ALTER TABLE keys ADD COLUMN limits TEXT;
ALTER TABLE keys ADD COLUMN temporary_raise TEXT;
ALTER TABLE projects ADD COLUMN limits TEXT;
ALTER TABLE projects ADD COLUMN temporary_raise TEXT;
