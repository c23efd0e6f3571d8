-- The groups in which a server disclosed a definition (the groups extension), for searches.
ALTER TABLE tools ADD COLUMN about TEXT NOT NULL DEFAULT '';
