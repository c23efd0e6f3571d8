-- names is now what a client called in its last sessions: a JSON list of {"name", "sessions"},
-- the last called first; bit n of sessions is the n-th session before the last one.
DELETE FROM called;
