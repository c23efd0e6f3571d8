-- Savings count the model steps of conversations. The sums before counted lists
-- alone: nothing of them says what the steps read, so they are dropped.
DROP TABLE savings;
CREATE TABLE savings (
	day           TEXT NOT NULL,
	view          TEXT NOT NULL,
	sessions      INTEGER NOT NULL,
	retrievals    INTEGER NOT NULL,
	starts        INTEGER NOT NULL,
	steps         INTEGER NOT NULL,
	appended      INTEGER NOT NULL,
	changed       INTEGER NOT NULL,
	listed        INTEGER NOT NULL,
	relisted      INTEGER NOT NULL,
	answers       INTEGER NOT NULL,
	results       INTEGER NOT NULL,
	reread        INTEGER NOT NULL,
	cached        INTEGER NOT NULL,
	all_steps     INTEGER NOT NULL,
	all_listed    INTEGER NOT NULL,
	all_cached    INTEGER NOT NULL,
	PRIMARY KEY (day, view)
) STRICT, WITHOUT ROWID;
