-- API keys of clients. hash is the SHA-256 of the key; view '' is any; scopes and groups
-- are JSON lists; times are milliseconds since 1970, UTC: expires 0 is never, used 0 not yet.
CREATE TABLE keys (
	name    TEXT NOT NULL PRIMARY KEY,
	hash    BLOB NOT NULL UNIQUE,
	view    TEXT NOT NULL,
	scopes  TEXT NOT NULL,
	groups  TEXT NOT NULL,
	created INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	used    INTEGER NOT NULL
) STRICT;
