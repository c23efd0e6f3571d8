-- The principal of a key, which no other key ever is: a key that is made again under a name is
-- another principal. Keys from before stay who they are. A program that does not know of this
-- column can make no keys.
ALTER TABLE keys ADD COLUMN id TEXT COLLATE "C";
UPDATE keys SET id = 'key|' || name;
ALTER TABLE keys ALTER COLUMN id SET NOT NULL, ADD UNIQUE (id), ADD CHECK (id <> '');
