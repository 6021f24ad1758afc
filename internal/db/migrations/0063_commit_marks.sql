-- The last commit of each group of writes. A commit without a response has happened if its mark is stored. See db/doubt.go.
CREATE TABLE commit_marks (
  id TEXT PRIMARY KEY,
  mark BIGINT NOT NULL,
  stored_at BIGINT NOT NULL
);
