-- The key of what clients carry from one call to the next, of all replicas.
CREATE TABLE state_key (
	one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one),
	key BYTEA NOT NULL
);
