-- Who is there. presence is the key of an advisory lock that a replica holds as long as
-- it is. What it leads follows from other locks of the same connection; leads repeats it
-- for people. servers and policy are hashes, by which replicas see that others are
-- configured otherwise.
CREATE TABLE replicas (
	id         TEXT COLLATE "C" PRIMARY KEY,
	presence   BIGINT NOT NULL,
	name       TEXT NOT NULL,
	address    TEXT NOT NULL,
	version    TEXT NOT NULL,
	servers    TEXT NOT NULL,
	policy     TEXT NOT NULL,
	leads      TEXT NOT NULL, -- a JSON array
	started_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
	seen_at    TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

-- The transaction that changed something last: another number is another state. Rows are
-- never deleted, so that a change is seen by whoever did not listen.
CREATE TABLE changes (
	kind    TEXT COLLATE "C" NOT NULL,
	key     TEXT COLLATE "C" NOT NULL,
	version BIGINT NOT NULL,
	PRIMARY KEY (kind, key)
);

-- Says that something has changed, in the transaction that changes it. What one
-- transaction says twice is heard once.
CREATE FUNCTION toolfinch_changed(of_schema TEXT, of_kind TEXT, of_key TEXT, detail TEXT) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
	payload TEXT;
BEGIN
	IF detail = '' AND EXISTS (SELECT 1 FROM changes WHERE kind = of_kind AND key = of_key AND version = txid_current()) THEN
		RETURN; -- many rows of one list
	END IF;
	INSERT INTO changes AS c VALUES (of_kind, of_key, txid_current())
		ON CONFLICT (kind, key) DO UPDATE SET version = excluded.version WHERE c.version <> excluded.version;
	payload := json_build_object('kind', of_kind, 'key', of_key, 'version', txid_current(), 'detail', detail)::TEXT;
	IF octet_length(payload) > 7900 THEN -- NOTIFY takes 8,000
		payload := json_build_object('kind', of_kind, 'key', of_key, 'version', txid_current(), 'detail', '')::TEXT;
	END IF;
	PERFORM pg_notify('toolfinch_' || md5(of_schema), payload);
END $$;

CREATE FUNCTION toolfinch_server_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM toolfinch_changed(TG_TABLE_SCHEMA, 'server', NEW.name, '');
	RETURN NULL;
END $$;

CREATE FUNCTION toolfinch_listed_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM toolfinch_changed(TG_TABLE_SCHEMA, 'server', COALESCE(NEW.server, OLD.server), '');
	RETURN NULL;
END $$;

CREATE FUNCTION toolfinch_provisions_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM toolfinch_changed(TG_TABLE_SCHEMA, 'provisions', '', json_build_array(COALESCE(NEW.view, OLD.view), COALESCE(NEW.owner, OLD.owner))::TEXT);
	RETURN NULL;
END $$;

CREATE FUNCTION toolfinch_vault_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM toolfinch_changed(TG_TABLE_SCHEMA, 'vault', '', COALESCE(NEW.name, OLD.name));
	RETURN NULL;
END $$;

-- For tables that are read again as a whole: the argument is the kind.
CREATE FUNCTION toolfinch_table_changed() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
	PERFORM toolfinch_changed(TG_TABLE_SCHEMA, TG_ARGV[0], '', '');
	RETURN NULL;
END $$;

CREATE TRIGGER changed_new AFTER INSERT ON servers FOR EACH ROW EXECUTE FUNCTION toolfinch_server_changed();
CREATE TRIGGER changed_other AFTER UPDATE ON servers FOR EACH ROW
	WHEN ((OLD.era, OLD.info, OLD.instructions, OLD.capabilities, OLD.interactive, OLD.checked, OLD.left_out, OLD.mended)
		IS DISTINCT FROM (NEW.era, NEW.info, NEW.instructions, NEW.capabilities, NEW.interactive, NEW.checked, NEW.left_out, NEW.mended))
	EXECUTE FUNCTION toolfinch_server_changed();
CREATE TRIGGER changed_new AFTER INSERT OR DELETE ON tools FOR EACH ROW EXECUTE FUNCTION toolfinch_listed_changed();
CREATE TRIGGER changed_other AFTER UPDATE ON tools FOR EACH ROW
	WHEN (OLD.hash <> NEW.hash OR OLD.position <> NEW.position) EXECUTE FUNCTION toolfinch_listed_changed();
CREATE TRIGGER changed_new AFTER INSERT OR DELETE ON pins FOR EACH ROW EXECUTE FUNCTION toolfinch_listed_changed();
CREATE TRIGGER changed_other AFTER UPDATE ON pins FOR EACH ROW
	WHEN ((OLD.hash, OLD.raw, OLD.rejected) IS DISTINCT FROM (NEW.hash, NEW.raw, NEW.rejected)) EXECUTE FUNCTION toolfinch_listed_changed();
CREATE TRIGGER changed AFTER INSERT OR DELETE ON provisions FOR EACH ROW EXECUTE FUNCTION toolfinch_provisions_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON vault FOR EACH ROW EXECUTE FUNCTION toolfinch_vault_changed();
CREATE TRIGGER changed AFTER INSERT OR DELETE ON keys FOR EACH STATEMENT EXECUTE FUNCTION toolfinch_table_changed('keys');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON learned FOR EACH STATEMENT EXECUTE FUNCTION toolfinch_table_changed('learned');
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON enriched FOR EACH STATEMENT EXECUTE FUNCTION toolfinch_table_changed('enriched');
CREATE TRIGGER changed AFTER INSERT ON vectors FOR EACH STATEMENT EXECUTE FUNCTION toolfinch_table_changed('vectors');
