-- What is approved of the tools, prompts and resource templates of servers, and of
-- their instructions, which are of the kind and name 'instructions'. hash is that of
-- the definition as it was listed; '' where nothing was approved. raw is NULL while
-- tools has the same bytes, so that a list that nobody changed is stored once.
-- rejected is the hash of what the owner wants to hear no more of.
CREATE TABLE pins (
	server   TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
	kind     TEXT NOT NULL,
	name     TEXT NOT NULL,
	hash     TEXT NOT NULL,
	raw      BLOB,
	rejected TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (server, kind, name)
) STRICT, WITHOUT ROWID;

-- The kinds of which a server has a baseline: its first complete list of them.
CREATE TABLE baselines (
	server TEXT NOT NULL REFERENCES servers (name) ON DELETE CASCADE,
	kind   TEXT NOT NULL,
	PRIMARY KEY (server, kind)
) STRICT, WITHOUT ROWID;

-- One row: how often the owner has decided something, so that other processes see it.
CREATE TABLE decisions (n INTEGER NOT NULL) STRICT;
INSERT INTO decisions (n) VALUES (0);

-- serverInfo when everything that was listed was approved.
ALTER TABLE servers ADD COLUMN approved_info BLOB;

-- What was known before definitions were pinned is the baseline.
INSERT INTO pins (server, kind, name, hash)
	SELECT t.server, t.kind, t.name, t.hash FROM tools t JOIN servers s ON s.name = t.server WHERE s.checked AND t.kind <> 'resource';
INSERT INTO pins (server, kind, name, hash, raw)
	SELECT name, 'instructions', 'instructions', '', CAST(instructions AS BLOB) FROM servers WHERE checked AND instructions <> '';
INSERT INTO baselines (server, kind)
	SELECT s.name, k.column1 FROM servers s, (VALUES (''), ('prompt'), ('template'), ('instructions')) k
	WHERE s.checked AND EXISTS (SELECT 1 FROM tools t WHERE t.server = s.name);
UPDATE servers SET approved_info = info WHERE checked;
