-- What is approved of a server outlives the server's rows: a configuration may not name it for a while.
CREATE TABLE approved (
	server   TEXT NOT NULL,
	kind     TEXT NOT NULL,
	name     TEXT NOT NULL,
	hash     TEXT NOT NULL,
	raw      BLOB,
	rejected TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (server, kind, name)
) STRICT, WITHOUT ROWID;
INSERT INTO approved (server, kind, name, hash, raw, rejected) SELECT server, kind, name, hash, raw, rejected FROM pins;
DROP TABLE pins;
ALTER TABLE approved RENAME TO pins;

CREATE TABLE first_listed (
	server TEXT NOT NULL,
	kind   TEXT NOT NULL,
	PRIMARY KEY (server, kind)
) STRICT, WITHOUT ROWID;
INSERT INTO first_listed (server, kind) SELECT server, kind FROM baselines;
DROP TABLE baselines;
ALTER TABLE first_listed RENAME TO baselines;
