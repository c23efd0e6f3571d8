-- What became of definitions that are pinned, in the order of id: what is changed, removed,
-- approved or rejected. at is milliseconds since 1970, UTC; who decided it, '' where the server
-- or the owner of this program did; raw is what was listed until then, NULL for decisions.
CREATE TABLE history (
	id     INTEGER PRIMARY KEY,
	server TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
	kind   TEXT NOT NULL,
	name   TEXT NOT NULL,
	at     INTEGER NOT NULL,
	what   TEXT NOT NULL,
	who    TEXT NOT NULL,
	raw    BLOB
) STRICT;
CREATE INDEX history_by_definition ON history (server, kind, name, id);
