-- Why a server could not be listed, and when; no row once it was listed again. at is
-- milliseconds since 1970, UTC.
CREATE TABLE failures (
	server TEXT NOT NULL PRIMARY KEY,
	reason TEXT NOT NULL,
	at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
