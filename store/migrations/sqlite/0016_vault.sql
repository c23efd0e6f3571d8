-- Sealed secrets, and under the name 'key' which key has sealed them; the key itself
-- is never here. at is milliseconds since 1970, UTC. The layout of this table does
-- not change: it is read from databases of other versions, too.
CREATE TABLE vault (
	name   TEXT PRIMARY KEY,
	sealed BLOB NOT NULL,
	at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
