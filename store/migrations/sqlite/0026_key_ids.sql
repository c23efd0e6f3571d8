-- The principal of a key, which no other key ever is: a key that is made again under a name is
-- another principal. Keys from before stay who they are.
CREATE TABLE identified (
	name    TEXT NOT NULL PRIMARY KEY,
	id      TEXT NOT NULL UNIQUE CHECK (id <> ''),
	hash    BLOB NOT NULL UNIQUE,
	view    TEXT NOT NULL,
	scopes  TEXT NOT NULL,
	groups  TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	used    INTEGER NOT NULL
) STRICT;
INSERT INTO identified SELECT name, 'key|' || name, hash, view, scopes, groups, created, expires, used FROM keys;
DROP TABLE keys;
ALTER TABLE identified RENAME TO keys;
