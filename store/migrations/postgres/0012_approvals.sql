-- What is approved of a server outlives the server's rows: a configuration may not name it for a while.
ALTER TABLE pins DROP CONSTRAINT pins_server_fkey;
ALTER TABLE baselines DROP CONSTRAINT baselines_server_fkey;
