-- The tools that a client called last by their names in a view, the last first, as a
-- JSON list. principal '' is nobody's in particular; at is milliseconds since 1970, UTC.
CREATE TABLE called (
	view      TEXT NOT NULL,
	principal TEXT NOT NULL,
	client    TEXT NOT NULL,
	names     TEXT NOT NULL,
	at        INTEGER NOT NULL,
	PRIMARY KEY (view, principal, client)
) STRICT, WITHOUT ROWID;
