-- Savings are added up by day and view; clients are not told apart.
CREATE TABLE savings_by_view (
	day           TEXT NOT NULL,
	view          TEXT NOT NULL,
	sessions      INTEGER NOT NULL,
	retrievals    INTEGER NOT NULL,
	full_tokens   INTEGER NOT NULL,
	listed_tokens INTEGER NOT NULL,
	answer_tokens INTEGER NOT NULL,
	PRIMARY KEY (day, view)
) STRICT, WITHOUT ROWID;

INSERT INTO savings_by_view
	SELECT day, view, sum(sessions), sum(retrievals), sum(full_tokens), sum(listed_tokens), sum(answer_tokens)
	FROM savings GROUP BY day, view;

DROP TABLE savings;
ALTER TABLE savings_by_view RENAME TO savings;
