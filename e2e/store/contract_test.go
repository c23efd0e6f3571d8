// Package store_test holds package store to its contract over real PostgreSQL, and tests what only
// PostgreSQL has. It opens stores as others do, and databases beside them.
package store_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"toolfinch/e2e/postgres"
	"toolfinch/internal/await"
	"toolfinch/store"
	. "toolfinch/store/storetest"
)

var (
	pg     = Database{Empty: postgres.Start, Driver: "pgx", Source: func(at string) string { return at }}
	sqlite = Database{Empty: func(t testing.TB) string { return t.TempDir() }, Driver: "sqlite", Source: func(dir string) string { return filepath.Join(dir, "toolfinch.db") }}
)

var quiet = slog.New(slog.DiscardHandler)

func TestPostgreSQLKeepsTheContract(t *testing.T) {
	at := postgres.Start(t)
	if got, err := store.Examine(t.Context(), at); err != nil || got.Known || len(got.Wrong) > 0 {
		t.Errorf("an empty database: %+v, %v", got, err)
	}
	Must(t, Open(t, at).Close())
	migrated := pg
	migrated.Empty = func(t testing.TB) string { return postgres.Copy(t, at) }
	Run(t, migrated)
}

func BenchmarkPostgreSQL(b *testing.B) { Benchmark(b, pg) }

// with returns a URL with another setting.
func with(at, name, value string) string { return at + "&" + url.Values{name: {value}}.Encode() }

// Through PostgreSQL and back, a store is what it was.
func TestCopy(t *testing.T) {
	there, between, here := t.TempDir(), postgres.Start(t), t.TempDir()
	source, middle, target := Open(t, there), Open(t, between), Open(t, here)
	Fill(t, source)
	for _, replace := range []bool{false, true} {
		_, err := store.Copy(t.Context(), source, middle, replace)
		Must(t, err)
		copied, err := store.Copy(t.Context(), middle, target, replace)
		Must(t, err)
		want := Contents(t, sqlite.Open(t, there), copied)
		if got := Contents(t, sqlite.Open(t, here), copied); !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if _, err := store.Copy(t.Context(), source, middle, false); !errors.Is(err, store.ErrNotEmpty) {
			t.Errorf("again: %v", err)
		}
	}
	Works(t, middle) // numbers go on after those that were copied
	// A newer version may add columns while an older one runs beside it.
	pg.Exec(t, between, `ALTER TABLE tools ADD COLUMN later TEXT NOT NULL DEFAULT ''`)
	middle = Open(t, between)
	if _, err := store.Copy(t.Context(), middle, target, true); err == nil || !strings.Contains(err.Error(), "tools: a newer toolfinch has added later") {
		t.Errorf("it is copied without what this version does not know: %v", err)
	}
	if _, err := store.Copy(t.Context(), source, middle, true); err != nil {
		t.Errorf("in place of what is there: %v", err)
	}
}

// A database of each version that ever was, with a row in each of its tables, becomes the newest one, which has the rows.
func TestEveryVersionIsMigratedWithWhatIsInIt(t *testing.T) {
	names, err := filepath.Glob("../../store/migrations/postgres/*.sql")
	Must(t, err)
	for version := 1; version < len(names); version++ {
		at := postgres.Start(t)
		db := pg.Open(t, at)
		_, err := db.Exec(`CREATE TABLE schema_versions (id SERIAL PRIMARY KEY, version_id BIGINT NOT NULL, is_applied BOOLEAN NOT NULL, tstamp TIMESTAMP NOT NULL DEFAULT now());
			INSERT INTO schema_versions (version_id, is_applied) SELECT n, TRUE FROM generate_series(0, ` + fmt.Sprint(version) + `) n`)
		for _, name := range names[:version] {
			text, readErr := os.ReadFile(name)
			Must(t, err, readErr)
			_, err = db.Exec(string(text))
		}
		Must(t, err)
		db.SetMaxOpenConns(1)
		_, err = db.Exec(`SET session_replication_role = replica`) // no reference is checked
		Must(t, err)
		had := Furnish(t, db, `SELECT table_name, column_name, data_type FROM information_schema.columns
			WHERE table_schema = current_schema() AND table_name NOT IN ('schema_versions', 'compatible') ORDER BY table_name, ordinal_position`)
		s := Open(t, at)
		delete(had, "enriched") // which is gone
		delete(had, "history")
		delete(had["tools"], "first_seen")
		delete(had["tools"], "last_seen")
		for table, row := range had {
			WantRow(t, db, table, row)
		}
		Must(t, s.Close(), db.Close())
	}
}

func TestProgramsMigrateAtOnce(t *testing.T) {
	at := postgres.Start(t)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			s, err := store.Open(t.Context(), at, quiet)
			if err == nil {
				err = s.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	Works(t, Open(t, at))
}

// A migration that waits for a lock gives up in time for replicas, and waits for its turn again.
func TestAMigrationIsTriedAgain(t *testing.T) {
	at := postgres.Start(t)
	Open(t, at)
	pg.Exec(t, at, `DELETE FROM schema_versions WHERE version_id = 5; ALTER TABLE segments DROP COLUMN seen_on;
		CREATE SEQUENCE tries;
		CREATE FUNCTION locked() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN IF nextval('tries') < 3 THEN RAISE 'locked' USING ERRCODE = '55P03'; END IF; END$$;
		CREATE EVENT TRIGGER locked ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION locked()`)
	Works(t, Open(t, at))
}

func TestSchemasOfOneDatabaseAreStoresOfTheirOwn(t *testing.T) {
	at := postgres.Start(t)
	one := Open(t, at)
	pg.Exec(t, at, `CREATE SCHEMA other`)
	other := Open(t, with(at, "search_path", "other"))
	Put(t, one, "a", Def(t, "a", `{"name":"x"}`))
	Put(t, other, "b", Def(t, "b", `{"name":"y"}`))
	WantIDs(t, one, "a.x")
	WantIDs(t, other, "b.y")
	for _, s := range []*store.Store{one, other} { // neither waits for the other
		release, err := s.Sealed().Locks().Take(t.Context(), "login/a")
		Must(t, err)
		defer release()
	}
}

// A schema that is made later, and comes first in search_path, does not part replicas.
func TestTablesStayInTheirSchema(t *testing.T) {
	at := with(postgres.Start(t), "search_path", "late,public")
	Put(t, Open(t, at), "a", Def(t, "a", `{"name":"x"}`))
	pg.Exec(t, at, `CREATE SCHEMA late; DELETE FROM schema_versions WHERE version_id IN (2, 5); DROP TABLE segments`)
	WantIDs(t, Open(t, at), "a.x")
	var late string
	Must(t, pg.Open(t, at).QueryRow(`SELECT coalesce(string_agg(tablename, ' '), '') FROM pg_tables WHERE schemaname = 'late'`).Scan(&late))
	if late != "" {
		t.Errorf("%s are in the other schema", late)
	}
}

// What a database lacks is said at the start, and by store check.
func TestDatabasesThatDoNotSuit(t *testing.T) {
	at := postgres.Start(t)
	pg.Exec(t, at, `CREATE SCHEMA lax; CREATE FUNCTION lax.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql RETURN true`)
	u, err := url.Parse(at)
	Must(t, err)
	name := strings.Trim(u.Path, "/")
	pg.Exec(t, at, `CREATE DATABASE latin`+name+` ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0`)
	t.Cleanup(func() { pg.Exec(t, at, `DROP DATABASE latin`+name+` WITH (FORCE)`) })
	for at, want := range map[string]string{
		with(at, "search_path", "lax,pg_catalog,public"): "advisory locks do not keep other sessions out",
		strings.Replace(at, "/"+name, "/latin"+name, 1):  "LATIN1",
	} {
		if _, err := store.Open(t.Context(), at, quiet); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: opened: %v", want, err)
		}
		if got, err := store.Examine(t.Context(), at); err != nil || !strings.Contains(strings.Join(got.Wrong, "\n"), want) {
			t.Errorf("%s: examined: %+v, %v", want, got, err)
		}
	}
}

// A newer program may break what an older one runs with: it stores nothing more, and says why.
func TestNewerDatabases(t *testing.T) {
	at := postgres.Start(t)
	var log await.Log
	s, err := store.Open(t.Context(), at, slog.New(slog.NewTextHandler(&log, nil)))
	Must(t, err)
	defer s.Close()
	pg.Exec(t, at, `INSERT INTO schema_versions (version_id, is_applied) VALUES (999, TRUE)`)
	Works(t, Open(t, at)) // a migration that breaks nothing
	pg.Exec(t, at, `UPDATE compatible SET since = 999`)
	newer := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "written by a newer version") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = store.Open(t.Context(), at, quiet)
	newer("open", err)
	_, err = store.OpenReadOnly(t.Context(), at, quiet)
	newer("read only", err)
	await.True(t, func() bool { return s.Health() != nil })
	_, err = s.PutServer(t.Context(), store.Upstream{Name: "a"}, nil, nil)
	newer("a write", err)
	if got := s.Health().Brief(); !store.Transient(err) || !strings.Contains(got, "answers, but could not be used") || strings.Count(log.String(), "cannot be used") != 1 {
		t.Errorf("%s\n%s", got, log.String())
	}
}

func TestADatabaseOfAnOlderVersionIsNotReadWithoutBeingMigrated(t *testing.T) {
	at := postgres.Start(t)
	Open(t, at)
	pg.Exec(t, at, `DELETE FROM schema_versions WHERE version_id = (SELECT max(version_id) FROM schema_versions)`)
	if _, err := store.OpenReadOnly(t.Context(), at, quiet); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("opened: %v", err)
	}
}

// The session of a machine that is gone without a word keeps no lock for long.
func TestSessionsDoNotOutliveTheirMachine(t *testing.T) {
	at := postgres.Start(t)
	s := Open(t, at)
	// Over a socket of the system, values of TCP are shown as 0.
	pg.Exec(t, at, `CREATE TABLE settings (names text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		INSERT INTO settings SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE source = 'session' AND (name LIKE 'tcp%' OR name = 'statement_timeout'); RETURN NULL; END$$;
		CREATE TRIGGER note AFTER INSERT ON servers EXECUTE FUNCTION note()`)
	Put(t, s, "a")
	var set string
	Must(t, pg.Open(t, at).QueryRow(`SELECT names FROM settings`).Scan(&set))
	if set != "statement_timeout tcp_keepalives_count tcp_keepalives_idle tcp_keepalives_interval tcp_user_timeout" {
		t.Errorf("a connection has set %q", set)
	}
}

// A call waits for its result to be kept, and not for who stores a long list.
func TestAnOutputWaitsForNobody(t *testing.T) {
	at := postgres.Start(t)
	s, other := Open(t, at), Open(t, at)
	_, err := other.PutServer(t.Context(), store.Upstream{Name: "a"}, Defs(t, "a", `{"name":"x"}`), &store.Review{Approve: func(store.Unpinned) bool {
		Must(t, s.Outputs().Put(t.Context(), [32]byte{1}, [32]byte{2}, []byte("x"), then, then))
		return true
	}})
	Must(t, err)
}

// What a database refuses that answers otherwise is told until it stores something, and logged once.
func TestADatabaseThatStoresNothing(t *testing.T) {
	at := postgres.Start(t)
	var log await.Log
	s, err := store.Open(t.Context(), at, slog.New(slog.NewTextHandler(&log, nil)))
	Must(t, err)
	defer s.Close()
	pg.Exec(t, at, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no space' USING ERRCODE = '53100'; END$$`)
	for range 2 {
		pg.Exec(t, at, `CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON servers EXECUTE FUNCTION full_disk()`)
		for range 2 {
			_, err := s.PutServer(t.Context(), store.Upstream{Name: "a"}, nil, nil)
			if trouble := s.Trouble(); !store.Transient(err) || store.Level(err) != slog.LevelDebug || s.Health() != nil || trouble == nil || !strings.Contains(trouble.Brief(), "stores nothing") {
				t.Errorf("%v, %v", err, trouble)
			}
		}
		Tools(t, s) // it can be read
		pg.Exec(t, at, `DROP TRIGGER full_disk ON servers`)
		Put(t, s, "a", Def(t, "a", `{"name":"x"}`))
		if trouble := s.Trouble(); trouble != nil {
			t.Errorf("after a write: %v", trouble)
		}
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || strings.Count(got, "stores again") != 1 {
		t.Errorf("the log has\n%s", got)
	}
}
