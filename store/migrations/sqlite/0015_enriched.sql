-- What the owner's model wrote of tools, by the hash of their definition.
CREATE TABLE enriched (
	hash     TEXT PRIMARY KEY,
	used_for TEXT NOT NULL,
	tags     TEXT NOT NULL, -- a JSON array of texts
	state    TEXT NOT NULL,
	at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
