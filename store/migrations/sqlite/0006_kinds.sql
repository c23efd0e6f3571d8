-- tools holds definitions of every kind: '' is a tool, others are named.
-- capabilities is as received; interactive says that the server has asked a
-- client something.
CREATE TABLE definitions (
	server     TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
	kind       TEXT NOT NULL DEFAULT '',
	name       TEXT NOT NULL,
	position   INTEGER NOT NULL,
	hash       TEXT NOT NULL,
	first_seen INTEGER NOT NULL,
	last_seen  INTEGER NOT NULL,
	raw        BLOB NOT NULL,
	PRIMARY KEY (server, kind, name)
) STRICT;
INSERT INTO definitions (server, name, position, hash, first_seen, last_seen, raw)
	SELECT server, name, position, hash, first_seen, last_seen, raw FROM tools;
DROP TABLE tools;
ALTER TABLE definitions RENAME TO tools;
CREATE INDEX tools_in_order ON tools (server, kind, position);
CREATE INDEX tools_by_hash ON tools (hash);
ALTER TABLE servers ADD COLUMN capabilities BLOB;
ALTER TABLE servers ADD COLUMN interactive INTEGER NOT NULL DEFAULT 0;
