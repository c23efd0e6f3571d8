-- How many definitions of the last list were malformed: left out, or served
-- mended. checked is 0 for lists from before definitions were checked.
ALTER TABLE servers ADD COLUMN checked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE servers ADD COLUMN left_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE servers ADD COLUMN mended INTEGER NOT NULL DEFAULT 0;
