-- What the commits of a node charge and count, until its next posting adds it to the ledger and to usage. postings is JSON.
CREATE TABLE spend_journal (
  node_id  TEXT NOT NULL,
  seq      BIGINT NOT NULL,
  postings TEXT NOT NULL,
  PRIMARY KEY (node_id, seq)
);
