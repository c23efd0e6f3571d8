-- Parts of the index of words, as package index writes them: what analysis yielded.
CREATE TABLE segments (
	key  BLOB PRIMARY KEY,
	docs INTEGER NOT NULL,
	data BLOB NOT NULL
) STRICT;
