-- What became of definitions is in the audit log alone.
DROP TABLE history;
ALTER TABLE tools DROP COLUMN first_seen;
ALTER TABLE tools DROP COLUMN last_seen;
