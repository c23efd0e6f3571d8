-- Whose a use is: principal '' is nobody's in particular.
CREATE TABLE learned_by (
	principal TEXT NOT NULL,
	query     TEXT NOT NULL,
	server    TEXT NOT NULL,
	tool      TEXT NOT NULL,
	count     REAL NOT NULL,
	used_at   INTEGER NOT NULL,
	PRIMARY KEY (principal, query, server, tool)
) STRICT, WITHOUT ROWID;
INSERT INTO learned_by SELECT '', query, server, tool, count, used_at FROM learned;
DROP TABLE learned;
ALTER TABLE learned_by RENAME TO learned;
