-- An owner and a name together may be longer than an index takes.
ALTER TABLE provisions DROP CONSTRAINT provisions_view_owner_server_kind_name_key;
CREATE UNIQUE INDEX provisions_by_id ON provisions (view, md5(owner), server, kind, md5(name));
CREATE INDEX provisions_by_owner ON provisions (view, owner);
