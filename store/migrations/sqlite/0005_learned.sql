-- What was called after what was asked: count is what the uses counted at
-- used_at, in milliseconds since 1970, UTC; it halves with time.
CREATE TABLE learned (
	query   TEXT NOT NULL,
	server  TEXT NOT NULL,
	tool    TEXT NOT NULL,
	count   REAL NOT NULL,
	used_at INTEGER NOT NULL,
	PRIMARY KEY (query, server, tool)
) STRICT, WITHOUT ROWID;
