-- Large results kept to be read in parts. token and owner are SHA-256, id grows
-- with time, expires_at is milliseconds since 1970, UTC; content is the result as
-- it was received. It stands last, so that reading the others does not read it.
CREATE TABLE outputs (
	id         INTEGER PRIMARY KEY,
	token      BLOB NOT NULL UNIQUE,
	owner      BLOB NOT NULL,
	expires_at INTEGER NOT NULL,
	size       INTEGER NOT NULL,
	content    BLOB NOT NULL
) STRICT;
CREATE INDEX outputs_by_owner ON outputs (owner, id, size);
CREATE INDEX outputs_by_age ON outputs (id, size);
CREATE INDEX outputs_by_expiry ON outputs (expires_at);
