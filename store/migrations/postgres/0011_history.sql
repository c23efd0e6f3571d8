-- What became of definitions is in the audit log alone.
DROP TABLE history;
ALTER TABLE tools DROP COLUMN first_seen, DROP COLUMN last_seen;
-- Programs before this one write all of these.
UPDATE compatible SET since = 11;
