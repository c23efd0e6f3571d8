-- Tokens that sessions received, and would have without a choice of tools, by
-- day (2026-11-21, UTC). client '' is whoever is not told apart.
CREATE TABLE savings (
	day           TEXT NOT NULL,
	view          TEXT NOT NULL,
	client        TEXT NOT NULL,
	sessions      INTEGER NOT NULL,
	retrievals    INTEGER NOT NULL,
	full_tokens   INTEGER NOT NULL,
	listed_tokens INTEGER NOT NULL,
	answer_tokens INTEGER NOT NULL,
	PRIMARY KEY (day, view, client)
) STRICT, WITHOUT ROWID;
