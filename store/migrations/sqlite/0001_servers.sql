-- Times are milliseconds since 1970, UTC. raw and info are bytes as received.
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
