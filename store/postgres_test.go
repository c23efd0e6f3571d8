package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"toolfinch/internal/await"
	"toolfinch/internal/leeway"
	"toolfinch/internal/postgres"
	"toolfinch/tool"
)

func TestProgramsMigrateAtOnce(t *testing.T) {
	url := postgres.Start(t)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			s, err := Open(t.Context(), url, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	works(t, open(t, url))
}

// A migration does not have replicas wait for long that use what it changes, and waits for its turn again.
func TestAMigrationWaitsForReaders(t *testing.T) {
	t.Parallel()
	url := postgres.Start(t)
	s := open(t, url)
	if _, err := s.db.Exec(`DELETE FROM schema_versions WHERE version_id = 5; ALTER TABLE segments DROP COLUMN seen_on`); err != nil {
		t.Fatal(err)
	}
	reader, err := s.db.Begin()
	if err == nil {
		_, err = reader.Exec(`SET idle_in_transaction_session_timeout = 0; SELECT count(*) FROM segments`)
	}
	if err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error)
	go func() {
		other, err := Open(t.Context(), url, s.log)
		if err == nil {
			err = other.Close()
		}
		migrated <- err
	}()
	await.True(t, func() bool {
		var waits bool
		err := s.db.QueryRow(`SELECT count(*) > 0 FROM pg_stat_activity WHERE query ~ 'ALTER TABLE segments ADD' AND wait_event_type = 'Lock'`).Scan(&waits)
		return err == nil && waits
	})
	time.Sleep(patience + time.Second/2) // longer than it waits at a time
	if err := reader.Rollback(); err != nil {
		t.Error(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

func TestSchemasOfOneDatabaseAreStoresOfTheirOwn(t *testing.T) {
	url := postgres.Start(t)
	one := open(t, url)
	if _, err := one.db.Exec(`CREATE SCHEMA other`); err != nil {
		t.Fatal(err)
	}
	other := open(t, url+"&search_path=other")
	put(t, one, "a", def(t, "a", `{"name":"x"}`))
	put(t, other, "b", def(t, "b", `{"name":"y"}`))
	if got := ids(tools(t, one)); !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("one has %v", got)
	}
	if got := ids(tools(t, other)); !slices.Equal(got, []string{"b.y"}) {
		t.Errorf("the other has %v", got)
	}
	if one.remote.lockKey("a") == other.remote.lockKey("a") {
		t.Error("they have one lock")
	}
}

// Databases that only speak PostgreSQL's protocol are named at the start: this one gives a lock to everybody.
func TestADatabaseWhoseLocksKeepNobodyOut(t *testing.T) {
	url := postgres.Start(t)
	s := open(t, url)
	if _, err := s.db.Exec(`CREATE SCHEMA lax; CREATE FUNCTION lax.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql RETURN true`); err != nil {
		t.Fatal(err)
	}
	const want = "advisory locks do not keep other sessions out: this database only speaks PostgreSQL's protocol"
	lax := url + "&search_path=lax,pg_catalog,public"
	if _, err := Open(t.Context(), lax, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Open: %v", err)
	}
	if found, err := Examine(t.Context(), lax); err != nil || !slices.ContainsFunc(found.Wrong, func(wrong string) bool { return strings.Contains(wrong, want) }) {
		t.Errorf("Examine: %+v, %v", found, err)
	}
}

// A schema that is made later, and comes first in search_path, does not part replicas.
func TestTablesStayInTheirSchema(t *testing.T) {
	url := postgres.Start(t) + "&search_path=late,public"
	before := open(t, url)
	put(t, before, "a", def(t, "a", `{"name":"x"}`))
	if _, err := before.db.Exec(`CREATE SCHEMA late; DELETE FROM schema_versions WHERE version_id = 2; DROP TABLE segments;
		DELETE FROM schema_versions WHERE version_id = 5`); err != nil {
		t.Fatal(err)
	}
	after := open(t, url)
	if before.remote.schema != after.remote.schema || before.remote.lockKey("write") != after.remote.lockKey("write") {
		t.Errorf("the schema is %s, then %s", before.remote.schema, after.remote.schema)
	}
	if got := ids(tools(t, after)); !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("tools %v", got)
	}
	var late string
	if err := after.db.QueryRow(`SELECT coalesce(string_agg(tablename, ' '), '') FROM pg_tables WHERE schemaname = 'late'`).Scan(&late); err != nil || late != "" {
		t.Errorf("%s are in the other schema, %v", late, err)
	}
}

// A database of another encoding cannot store all texts.
func TestEncodings(t *testing.T) {
	url := postgres.Start(t)
	if _, err := open(t, url).db.Exec(`CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0`); err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`/test\d+\?`).ReplaceAllString(url, "/latin?")
	if _, err := Open(t.Context(), at, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "LATIN1") {
		t.Errorf("opened: %v", err)
	}
	if got, err := Examine(t.Context(), at); err != nil || len(got.Wrong) == 0 || !strings.Contains(got.Wrong[0], "LATIN1") {
		t.Errorf("examined: %+v, %v", got, err)
	}
}

// A machine that is gone without a word keeps no lock for long, whichever connection holds it.
func TestSessionsDoNotOutliveTheirMachine(t *testing.T) {
	s := open(t, postgres.Start(t))
	one, err := s.remote.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closeSoon(one)
	member, err := s.Replicas().Join(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	for name, row := range map[string]interface{ Scan(...any) error }{
		"a pool's":     s.db.QueryRow(sessionBounds),
		"one":          one.QueryRow(t.Context(), sessionBounds),
		"a membership": member.conn.QueryRow(t.Context(), sessionBounds),
	} {
		var set string
		if err := row.Scan(&set); err != nil || set != "statement_timeout tcp_keepalives_count tcp_keepalives_idle tcp_keepalives_interval tcp_user_timeout" {
			t.Errorf("%s connection has set %q, %v", name, set, err)
		}
	}
}

// Over a socket of the system, values of TCP are shown as 0.
const sessionBounds = `SELECT string_agg(name, ' ' ORDER BY name) FROM pg_settings WHERE source = 'session' AND (name LIKE 'tcp%' OR name = 'statement_timeout')`

func TestNewerDatabases(t *testing.T) {
	url := postgres.Start(t)
	s := open(t, url)
	if _, err := s.db.Exec(`INSERT INTO schema_versions (version_id, is_applied) VALUES (999, TRUE)`); err != nil {
		t.Fatal(err)
	}
	works(t, open(t, url)) // a migration that breaks nothing
	if _, err := s.db.Exec(`UPDATE compatible SET since = 999`); err != nil {
		t.Fatal(err)
	}
	for name, openIt := range map[string]func() error{
		"open":      func() error { _, err := Open(t.Context(), url, s.log); return err },
		"read only": func() error { _, err := OpenReadOnly(t.Context(), url, s.log); return err },
	} {
		if err := openIt(); !errors.Is(err, errNewer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A newer program may break what an older one runs with: it stores nothing more, says why, and leads nothing.
func TestADatabaseThatIsOutgrown(t *testing.T) {
	url := postgres.Start(t)
	var log await.Log
	s, err := Open(t.Context(), url, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	member, _, _ := sit(t, s, "old")
	newer := open(t, url)
	if _, err := newer.db.Exec(`UPDATE compatible SET since = 999`); err != nil {
		t.Fatal(err)
	}
	await.True(t, func() bool { return s.Health() != nil })
	if _, err := s.PutServer(t.Context(), Upstream{Name: "a"}, nil, nil); !errors.Is(err, errNewer) || !Passes(err) {
		t.Errorf("a write: %v", err)
	}
	if _, _, err := member.Tell(t.Context(), Replica{ID: "old"}); !errors.Is(err, errNewer) {
		t.Errorf("it is there: %v", err)
	}
	if got := s.Health().Brief(); !strings.Contains(got, "answers, but could not be used") || strings.Count(log.String(), unusable) != 1 {
		t.Errorf("%s\n%s", got, log.String())
	}
}

func TestPostgresThatCannotBeOpened(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://ann:Geheim123@127.0.0.1:1/x":               "refused",
		"postgres://ann:Gehei m123@127.0.0.1:x/x":              "cannot be read",
		"postgres://ann:Geheim123@127.0.0.1/x?sslmode=strange": "sslmode",
		"postgres://ann:x@Geheim123@127.0.0.1/x":               "%40",
		"postgres://ann:x@Geheim:123@127.0.0.1/x":              "%40",
		"postgres://ann:x?y@Geheim123@127.0.0.1/x":             "%40",
		"postgres://ann:1/Geheim123@127.0.0.1/x":               "%2F",
		"postgres://ann:Geheim/123@127.0.0.1/x":                "%2F",
		"postgres://ann:x%40Geheim%2F123@127.0.0.1:1/x":        "refused",
		"postgres://127.0.0.1:1/x?user=a@b":                    "refused",
	} {
		_, err := Open(t.Context(), url, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Gehei") {
			t.Errorf("%s: %v", url, err)
		}
	}
	url := postgres.Start(t)
	if got := ids(tools(t, openReadOnly(t, url))); len(got) > 0 {
		t.Errorf("an empty database has %v", got)
	}
	if _, err := open(t, url).db.Exec(`DELETE FROM ` + versionTable + ` WHERE version_id = (SELECT max(version_id) FROM ` + versionTable + `)`); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReadOnly(t.Context(), url, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("a database of an older version, for reading: %v", err)
	}
}

func TestAReadOnlyPostgresWritesNothing(t *testing.T) {
	url := postgres.Start(t)
	put(t, open(t, url), "a", def(t, "a", `{"name":"x"}`))
	s := openReadOnly(t, url)
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"a.x"}) {
		t.Errorf("tools %v", got)
	}
	if _, err := s.PutServer(t.Context(), Upstream{Name: "b"}, nil, nil); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a write: %v", err)
	}
	if _, err := s.db.Exec(`DELETE FROM servers`); err == nil {
		t.Error("the connection writes")
	}
}

// What decides by what is stored, or adds to it, is right with several writers, each
// with connections of its own, as replicas are.
func TestReplicasWriteAtOnce(t *testing.T) {
	url := postgres.Start(t)
	const replicas, rounds = 3, 15
	stores := make([]*Store, replicas)
	for i := range stores {
		stores[i] = open(t, url)
	}
	var group sync.WaitGroup
	for i, s := range stores {
		group.Go(func() {
			for n := range rounds {
				_, err := s.PutServer(t.Context(), Upstream{Name: "shared"}, somewhatReal(t, "shared", 5+(i+n)%3), strict)
				err = errors.Join(err,
					s.Usage().AddSavings(t.Context(), today(), []Savings{{View: "v", Steps: 1}}),
					s.Usage().PutLearned(t.Context(), LearnedUse{Query: "q", Tool: tool.ID{Server: "s", Name: "t"}, Count: 0.05, At: noon}),
					putProvisions(s, t.Context(), "v", fmt.Sprint(i), []tool.Provisioned{never(fmt.Sprint(i), "s", "t")}),
					s.PutVectors(t.Context(), "m", map[Key][]float32{{byte(n)}: {1}}),
					s.PutTokens(t.Context(), map[string]int{fmt.Sprint(n): n}),
					s.Pins().Approve(t.Context(), nil, ""))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	s := stores[0]
	if got := savings(t, s, noon.AddDate(-10, 0, 0)); len(got) != 1 || got[0].Steps != replicas*rounds {
		t.Errorf("savings %+v", got)
	}
	if got := learned(t, s); len(got) != 1 || got[0].Count < 0.0499*replicas*rounds {
		t.Errorf("learned %+v", got)
	}
	if n, err := s.Pins().Decisions(t.Context()); err != nil || n != replicas*rounds {
		t.Errorf("decisions %d, %v", n, err)
	}
	if n := len(tools(t, s)); n < 5 || n > 7 {
		t.Errorf("%d tools: two lists are mixed", n)
	}
	if unsaid, err := s.Pins().Unpinned(t.Context()); err != nil {
		t.Error(unsaid, err)
	}
}

func TestPostgresGoesAwayAndComesBack(t *testing.T) {
	cluster := postgres.New(t)
	s := open(t, cluster.Database(t))
	put(t, s, "a", def(t, "a", `{"name":"x"}`))
	writes := func() error {
		_, err := s.PutServer(t.Context(), Upstream{Name: "b"}, defs(t, "b", `{"name":"y"}`), nil)
		return err
	}
	for name, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"stopped": {cluster.Stop, cluster.Run},
		"paused":  {cluster.Pause, cluster.Resume},
	} {
		t.Run(name, func(t *testing.T) {
			fault.begin(t)
			if err := writes(); err == nil {
				t.Error("a write succeeds")
			}
			var away *Away
			await.Nil(t, func() error {
				if err := writes(); !errors.As(err, &away) {
					return fmt.Errorf("not known to be away: %w", err)
				}
				return nil
			})
			if _, err := s.Tools(t.Context()); !errors.As(err, &away) {
				t.Errorf("a read: %v", err)
			}
			if _, err := s.remote.connect(t.Context()); !errors.As(err, &away) { // what is read by it could not be acted on
				t.Errorf("a connection: %v", err)
			}
			fault.end(t)
			await.Nil(t, writes)
			works(t, s)
		})
	}
}

// Who waits for something that is in use may be served later.
func TestWhatPasses(t *testing.T) {
	for code, want := range map[string]bool{"55P03": true, "53300": true, "57014": true, "25P03": true, "53100": true, "53200": true, "58030": true, "25006": true, "40001": true, "57P01": true, "42P01": false, "28P01": false} {
		if got := Passes(fmt.Errorf("store: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s passes: %t", code, got)
		}
	}
}

// What a database refuses that answers otherwise is told until it stores something, and logged once.
func TestADatabaseThatStoresNothing(t *testing.T) {
	var log await.Log
	s, err := Open(t.Context(), postgres.Start(t), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := func() error {
		return s.transact(t.Context(), func(ctx context.Context, tx *txn) error {
			_, err := tx.ExecContext(ctx, `SET TRANSACTION READ ONLY`)
			if err == nil {
				_, err = tx.ExecContext(ctx, `DELETE FROM servers`)
			}
			return err
		})
	}
	for range 3 {
		err := refused()
		if trouble := s.Trouble(); !Passes(err) || Level(err) != slog.LevelDebug || s.Health() != nil || trouble == nil || !strings.Contains(trouble.Brief(), "stores nothing") {
			t.Errorf("%v, %v", err, trouble)
		}
	}
	if _, err := s.Tools(t.Context()); err != nil {
		t.Errorf("a read: %v", err)
	}
	put(t, s, "a", def(t, "a", `{"name":"x"}`))
	if trouble := s.Trouble(); trouble != nil {
		t.Errorf("after a write: %v", trouble)
	}
	_ = refused()
	put(t, s, "a", def(t, "a", `{"name":"y"}`))
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || strings.Count(got, "stores again") != 1 {
		t.Errorf("the log has\n%s", got)
	}
}

// A connection may hang while that of the watch does not.
func TestAMethodEnds(t *testing.T) {
	s := open(t, postgres.Start(t))
	s.remote.within = 100 * time.Millisecond
	wait := func(ctx context.Context, db querier) error {
		return each(ctx, db, func(*sql.Rows) error { return nil }, `SELECT pg_sleep(60)`)
	}
	for name, err := range map[string]error{
		"a read":  s.read(t.Context(), func(ctx context.Context, db *sql.DB) error { return wait(ctx, db) }),
		"a write": s.transact(t.Context(), func(ctx context.Context, tx *txn) error { return wait(ctx, tx) }),
	} {
		if !errors.Is(err, errSilent) || !Passes(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A host that takes connections and never answers, or takes none, costs a command some seconds
// whatever the URL is, and one line.
func TestASilentHost(t *testing.T) {
	for at, want := range map[string]time.Duration{"postgres://u@a/d": leeway.Of(connectWait), "postgres://u@a,b/d": leeway.Of(connectWait), "postgres://u@a/d?connect_timeout=30": 30 * time.Second} {
		if config, err := configOf(at); err != nil || config.ConnectTimeout != want {
			t.Errorf("%s: %s for each host, %v", at, config.ConnectTimeout, err)
		}
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, nobody else does
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	at := "postgres://u@" + silent.Addr().String() + "/d?connect_timeout=1"
	_, writing := Open(t.Context(), at, slog.New(slog.DiscardHandler))
	_, reading := OpenReadOnly(t.Context(), at, slog.New(slog.DiscardHandler))
	_, sealed := OpenSealed(t.Context(), at, "")
	_, examined := Examine(t.Context(), at)
	for name, err := range map[string]error{"writing": writing, "reading": reading, "secrets": sealed, "store check": examined} {
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "(127.0.0.1): no answer within 1s; check that it runs") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
