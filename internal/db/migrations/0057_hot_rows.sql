-- Rows that are updated every second leave room for their next version on the same page, so that no index changes.
ALTER TABLE spend SET (fillfactor = 70); --postgres
ALTER TABLE spend_leases SET (fillfactor = 70); --postgres
ALTER TABLE usage_users SET (fillfactor = 70); --postgres
