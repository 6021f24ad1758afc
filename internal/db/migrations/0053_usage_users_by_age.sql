-- Usage of users is purged by its age.
CREATE INDEX usage_users_by_age ON usage_users (start);
