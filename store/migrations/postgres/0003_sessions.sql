-- The sessions of clients of the older protocol revisions, of all replicas: what another
-- replica needs to go on with one. Its ID is not stored.
CREATE TABLE sessions (
	hash       BYTEA PRIMARY KEY,
	home       TEXT COLLATE "C" NOT NULL, -- ID of the replica where it lives, '' for none
	address    TEXT COLLATE "C" NOT NULL, -- of that replica
	view       TEXT COLLATE "C" NOT NULL,
	principal  TEXT COLLATE "C" NOT NULL,
	initialize BYTEA NOT NULL,
	state      BYTEA NOT NULL,
	seen       TIMESTAMPTZ NOT NULL DEFAULT now() -- when its home said last that it is there
);
CREATE INDEX sessions_by_seen ON sessions (seen);
