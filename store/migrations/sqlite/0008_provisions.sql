-- What an owner may call in a gated view. Of an owner, id grows in the order in
-- which the tools were provisioned; of all, with the time of the owner's last
-- change. kind '' is a tool. until is milliseconds since 1970, UTC; 0 is never.
-- tokens are those of the definition, when they were last counted.
CREATE TABLE provisions (
	id     INTEGER PRIMARY KEY,
	view   TEXT NOT NULL,
	owner  TEXT NOT NULL,
	server TEXT NOT NULL,
	kind   TEXT NOT NULL,
	name   TEXT NOT NULL,
	until  INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	UNIQUE (view, owner, server, kind, name)
) STRICT;
CREATE INDEX provisions_by_end ON provisions (until) WHERE until > 0;

-- Counts were of definitions under the names that clients saw, and are now of the
-- definitions alone: they are counted again.
DELETE FROM tokens;
