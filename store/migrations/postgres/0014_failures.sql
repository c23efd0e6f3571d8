-- Why a server could not be listed, and when; no row once it was listed again. at is
-- milliseconds since 1970, UTC.
CREATE TABLE failures (
	server TEXT COLLATE "C" NOT NULL PRIMARY KEY,
	reason TEXT COLLATE "C" NOT NULL,
	at     BIGINT NOT NULL
);
