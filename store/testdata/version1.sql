-- A database as version 1 of the schema left it. Do not edit: it is what some
-- users have on their disks.
CREATE TABLE servers (
	name         TEXT PRIMARY KEY,
	era          TEXT NOT NULL,
	info         BLOB,
	instructions TEXT NOT NULL,
	updated_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE tools (
	server     TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
	name       TEXT NOT NULL,
	position   INTEGER NOT NULL,
	hash       TEXT NOT NULL,
	first_seen INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL,
	raw        BLOB NOT NULL,
	PRIMARY KEY (server, name)
) STRICT;
CREATE INDEX tools_in_order ON tools (server, position);
CREATE INDEX tools_by_hash ON tools (hash);
INSERT INTO servers VALUES ('clock', 'legacy', CAST('{"name":"clock","version":"1"}' AS BLOB), 'Tells the time.', 1767225600000);
INSERT INTO tools VALUES ('clock', 'now', 0, '0f49b85f67bcfcf5bac3c78d74425d9ad43189480439e109c5516fed5ffaaccd', 1767225600000, 1767225600000, CAST('{"name":"now"}' AS BLOB));
PRAGMA user_version = 1;
