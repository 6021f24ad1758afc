-- The transactions that have changed a watched partition on PostgreSQL, and the mark of the watch. See db.Partition.Watch.
CREATE TABLE partition_changes (
  change TEXT PRIMARY KEY
);

CREATE OR REPLACE FUNCTION record_partition_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS --postgres
  'BEGIN INSERT INTO partition_changes (change) VALUES (txid_current()::text) ON CONFLICT (change) DO NOTHING; RETURN NULL; END'; --postgres
