-- Vectors by the space they belong to and the SHA-256 of their text; vector is
-- float32, little-endian. seen_on is the last day, since 1970 in UTC, on which
-- it was asked for.
CREATE TABLE spaces (
	id   INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE
) STRICT;
CREATE TABLE vectors (
	space   INTEGER NOT NULL REFERENCES spaces (id) ON DELETE CASCADE,
	key     BLOB NOT NULL,
	seen_on INTEGER NOT NULL,
	vector  BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_by_key ON vectors (space, key);
CREATE INDEX vectors_by_day ON vectors (seen_on);
