package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

// TestMain lets the test binary be another process with the same directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TOOLFINCH_TEST_OTHER_PROCESS"); dir != "" {
		if err := otherProcess(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if dir := os.Getenv("TOOLFINCH_TEST_OTHER_ACCOUNTS"); dir != "" {
		if err := keepAccounts(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const rounds = 20

func otherProcess(dir string) error {
	ctx := context.Background()
	s, err := Open(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	if !s.Durable() {
		return errors.New("not durable")
	}
	own := fmt.Sprint("process", os.Getpid())
	for i := range rounds {
		for _, server := range []string{own, "both"} {
			d, err := tool.ParseDef(server, fmt.Appendf(nil, `{"name":"tool%d","by":%q}`, i, own))
			if err != nil {
				return err
			}
			if _, err := s.PutServer(ctx, Upstream{Name: server}, []*tool.Def{d}, nil); err != nil {
				return err
			}
		}
		if _, err := s.Tools(ctx); err != nil {
			return err
		}
	}
	return s.Close()
}

func TestProcessesShareADirectory(t *testing.T) {
	if testing.Short() {
		t.Skip("a race between processes is none that the race detector finds")
	}
	for name, prepare := range map[string]func(dir string) error{
		"new": func(string) error { return nil },
		"damaged": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, fileName), []byte("no database"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			var others []*exec.Cmd
			var output [4]bytes.Buffer
			for i := range output {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), "TOOLFINCH_TEST_OTHER_PROCESS="+dir)
				cmd.Stderr = &output[i]
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				others = append(others, cmd)
			}
			for i, cmd := range others {
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %s", err, &output[i])
				}
			}
			s := open(t, dir)
			if got := tools(t, s); len(got) != len(others)+1 || got[0].ID.String() != fmt.Sprint("both.tool", rounds-1) {
				t.Errorf("got %v", ids(got))
			}
			aside := movedAside(t, dir)
			if want := len(name) - len("new"); (len(aside) > 0) != (want > 0) || len(aside) > 1 {
				t.Errorf("moved aside: %v", aside)
			}
		})
	}
}

// movedAside lists what replaced databases became, without -wal and -shm.
func movedAside(t testing.TB, dir string) (out []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, fileName+".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if !strings.HasSuffix(path, "-wal") && !strings.HasSuffix(path, "-shm") {
			out = append(out, path)
		}
	}
	return out
}

// execute runs SQL on a database, past the store.
func execute(t testing.TB, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(statements)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func version(t testing.TB, s *Store) (v int) {
	t.Helper()
	if err := s.db.QueryRow(`PRAGMA user_version`).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func schema(t testing.TB, s *Store) (out string) {
	t.Helper()
	if err := s.db.QueryRow(`SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)`).Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAnOldDatabaseIsMigratedOnce(t *testing.T) {
	dir := t.TempDir()
	statements, err := os.ReadFile(filepath.Join("testdata", "version1.sql"))
	if err != nil {
		t.Fatal(err)
	}
	execute(t, filepath.Join(dir, fileName), string(statements))

	fresh := open(t, t.TempDir())
	for _, opening := range []string{"first", "second"} {
		s := open(t, dir)
		if got, want := version(t, s), version(t, fresh); got != want {
			t.Errorf("%s: version %d, want %d", opening, got, want)
		}
		if got, want := schema(t, s), schema(t, fresh); got != want {
			t.Errorf("%s: schema %s\nwant %s", opening, got, want)
		}
		if got := ids(tools(t, s)); !slices.Equal(got, []string{"clock.now"}) {
			t.Errorf("%s: tools %v", opening, got)
		}
		if got, err := s.Servers(t.Context()); err != nil || len(got) != 1 || got[0].Instructions != "Tells the time." ||
			got[0].Capabilities != nil || got[0].Interactive {
			t.Errorf("%s: servers %+v, %v", opening, got, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	works(t, open(t, dir))
	if got := movedAside(t, dir); got != nil {
		t.Errorf("moved aside: %v", got)
	}
}

func TestEveryStateOfTheDiskOpens(t *testing.T) {
	db := func(dir string) string { return filepath.Join(dir, fileName) }
	write := func(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }
	for _, test := range []struct {
		name    string
		prepare func(t *testing.T, dir string) (data string, err error)
		durable bool
		aside   string // part of the name it was moved to
	}{
		{"missing", func(_ *testing.T, dir string) (string, error) { return filepath.Join(dir, "a", "b"), nil }, true, ""},
		{"empty file", func(_ *testing.T, dir string) (string, error) { return dir, write(db(dir), "") }, true, ""},
		{"text", func(_ *testing.T, dir string) (string, error) {
			return dir, write(db(dir), strings.Repeat("not a database\n", 1000))
		}, true, ".corrupt-"},
		{"short text", func(_ *testing.T, dir string) (string, error) { return dir, write(db(dir), "x") }, true, ""}, // SQLite takes it for an empty one
		{"someone else's database", func(t *testing.T, dir string) (string, error) {
			execute(t, db(dir), `CREATE TABLE tools (id INTEGER); INSERT INTO tools VALUES (1)`)
			return dir, nil
		}, true, ".corrupt-"},
		{"right version, wrong tables", func(t *testing.T, dir string) (string, error) {
			execute(t, db(dir), `CREATE TABLE servers (name TEXT); PRAGMA user_version = 3`)
			return dir, nil
		}, true, ".corrupt-"},
		{"negative version", func(t *testing.T, dir string) (string, error) {
			execute(t, db(dir), `PRAGMA user_version = -1`)
			return dir, nil
		}, true, ".corrupt-"},
		{"newer", func(t *testing.T, dir string) (string, error) {
			execute(t, db(dir), `CREATE TABLE future (x); INSERT INTO future VALUES (1); PRAGMA user_version = 1000`)
			return dir, nil
		}, true, ".newer-"},
		{"garbage for a lock", func(_ *testing.T, dir string) (string, error) {
			return dir, write(filepath.Join(dir, lockName), strings.Repeat("garbage", 1000))
		}, true, ""},
		{"a directory for a database", func(_ *testing.T, dir string) (string, error) { return dir, os.Mkdir(db(dir), 0o700) }, false, ""},
		{"a directory for a lock", func(_ *testing.T, dir string) (string, error) {
			return dir, os.Mkdir(filepath.Join(dir, lockName), 0o700)
		}, false, ""},
		{"a file for the directory", func(_ *testing.T, dir string) (string, error) {
			file := filepath.Join(dir, "file")
			return file, write(file, "")
		}, false, ""},
		{"below a file", func(_ *testing.T, dir string) (string, error) {
			file := filepath.Join(dir, "file")
			return filepath.Join(file, "data"), write(file, "")
		}, false, ""},
		{"no permission", func(t *testing.T, dir string) (string, error) {
			if os.Geteuid() <= 0 {
				t.Skip("root may write everywhere")
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
			return dir, os.Chmod(dir, 0o500)
		}, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir, err := test.prepare(t, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			s, err := Open(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if s.Durable() != test.durable {
				t.Errorf("durable: %v, want %v", s.Durable(), test.durable)
			}
			works(t, s)

			warnings := 0
			if test.aside != "" || !test.durable {
				warnings = 1
			}
			if strings.Count(log.String(), "\n") != warnings {
				t.Errorf("want %d line in the log:\n%s", warnings, &log)
			}
			aside := movedAside(t, dir)
			switch {
			case test.aside == "" && len(aside) > 0, test.aside != "" && (len(aside) != 1 || !strings.Contains(aside[0], test.aside)):
				t.Errorf("moved aside: %v, want %q", aside, test.aside)
			case test.aside == ".newer-":
				execute(t, aside[0], `INSERT INTO future SELECT x FROM future`) // still a whole database
			}
		})
	}
}

// damaged is how often each kind of damage is done to each file.
const damaged = 6

// TestOpenGivesUpOnNothing damages a database, its log and its shared memory
// in many ways. Whatever is left, the store opens, works, and opens again.
func TestOpenGivesUpOnNothing(t *testing.T) {
	whole := snapshot(t)
	random := rand.New(rand.NewPCG(1, 2))
	damages := map[string]func(content []byte) []byte{}
	for i := range damaged {
		damages[fmt.Sprintf("truncated %d", i)] = func(content []byte) []byte {
			// Small sizes, page boundaries and anywhere.
			n := []int{i, 90 + i, 4096 * (1 + i), 4096*i + 1, random.IntN(len(content))}[i%5]
			return content[:min(n, len(content))]
		}
		damages[fmt.Sprintf("flipped %d", i)] = func(content []byte) []byte {
			for range 1 + i*i {
				content[random.IntN(len(content))] ^= byte(1 + random.IntN(255))
			}
			return content
		}
		damages[fmt.Sprintf("header byte %d", i)] = func(content []byte) []byte {
			content[16+random.IntN(84)] ^= byte(1 + random.IntN(255))
			return content
		}
		damages[fmt.Sprintf("page zeroed %d", i)] = func(content []byte) []byte {
			from := 4096 * random.IntN(1+len(content)/4096)
			clear(content[min(from, len(content)):min(from+4096, len(content))])
			return content
		}
	}
	durable, runs := 0, 0
	for _, file := range slices.Sorted(maps.Keys(whole)) {
		for _, how := range slices.Sorted(maps.Keys(damages)) { // sorted: the seed is fixed
			dir := t.TempDir()
			for name, content := range whole {
				if name == file {
					content = damages[how](bytes.Clone(content))
				}
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			runs++
			if t.Run(file+"/"+how, func(t *testing.T) { openTwice(t, dir) }); open(t, dir).Durable() {
				durable++
			}
		}
	}
	if durable != runs {
		t.Errorf("%d of %d were left in memory, though the directory can be written", runs-durable, runs)
	}
}

func openTwice(t *testing.T, dir string) {
	for range 2 {
		s := open(t, dir)
		tools(t, s)
		works(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// snapshot returns the files of a store that was not closed: half of its
// content is in the write-ahead log.
func snapshot(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "first", somewhatReal(t, "first", 60)...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	put(t, s, "second", somewhatReal(t, "second", 60)...)
	put(t, s, "first", somewhatReal(t, "first", 30)...)
	out := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(filepath.Join(dir, fileName+suffix))
		if err != nil || len(content) == 0 {
			t.Fatalf("%s: %d bytes, %v", suffix, len(content), err)
		}
		out[fileName+suffix] = content
	}
	return out
}

// To make a database and to read it takes as long as it takes: only others are not waited for.
func TestASlowMachineOpensItsDatabase(t *testing.T) {
	dir := t.TempDir()
	for range 2 { // it is made, and it is there
		lock, err := openLock(t.Context(), filepath.Join(dir, lockName))
		if err != nil {
			t.Fatal(err)
		}
		db, err := openOrReplace(t.Context(), filepath.Join(dir, fileName), lock, 0, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Close(), lock.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADatabaseInUseIsNeverMoved(t *testing.T) {
	for name, test := range map[string]struct {
		prepare string
		want    error
	}{
		"locked": {`PRAGMA user_version`, nil},
		"newer":  {`PRAGMA user_version = 1000`, errNewer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it is found useless until time runs out
			dir := t.TempDir()
			user := open(t, dir)
			if _, err := user.db.Exec(test.prepare); err != nil {
				t.Fatal(err)
			}
			tx, err := user.db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if test.want != nil {
				err = tx.Rollback()
			} else {
				defer tx.Rollback()
			}
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s, err := openDir(ctx, dir, slog.New(slog.DiscardHandler))
			if err == nil {
				err = s.Close()
			}
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if aside := movedAside(t, dir); aside != nil {
				t.Errorf("moved aside: %v", aside)
			}
			if now, err := os.Stat(user.path); err != nil || !os.SameFile(now, user.file) {
				t.Errorf("the database in use was replaced: %v", err)
			}
		})
	}
}

func TestWhatWasInUseIsReplacedOnceItIsNot(t *testing.T) {
	dir := t.TempDir()
	user := open(t, dir)
	if _, err := user.db.Exec(`PRAGMA user_version = 1000`); err != nil {
		t.Fatal(err)
	}
	opened := make(chan *Store)
	go func() {
		s, err := Open(context.Background(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	if err := user.Close(); err != nil {
		t.Fatal(err)
	}
	s := <-opened
	defer s.Close()
	if !s.Durable() || len(movedAside(t, dir)) != 1 {
		t.Errorf("durable %v, moved aside %v", s.Durable(), movedAside(t, dir))
	}
}

func TestOpenStopsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Open(ctx, dir, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made a database: %v", err)
	}
}

// What a version without kinds knew is known afterwards: tools in their order,
// since when, and everything beside them but what they cost, which was counted
// otherwise.
func TestKindsComeIntoAnOldDatabaseWithEverythingKept(t *testing.T) {
	dir := t.TempDir()
	var old strings.Builder
	names, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	const without = 5
	for _, name := range names[:without] {
		statements, err := migrations.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		old.Write(statements)
	}
	listed := defs(t, "s", `{"name":"z"}`, `{"name":"a"}`)
	fmt.Fprintf(&old, `INSERT INTO servers VALUES ('s', 'legacy', NULL, 'Use it.', 5);`)
	for i, d := range listed {
		fmt.Fprintf(&old, `INSERT INTO tools VALUES ('s', '%s', %d, '%s', 1, 2, CAST('%s' AS BLOB));`, d.ID.Name, i, d.Hash, d.Raw)
	}
	fmt.Fprintf(&old, `INSERT INTO tokens VALUES ('%s', 7);`, listed[0].Hash)
	old.WriteString(`INSERT INTO clients VALUES ('agent 1', 1, 1);
		INSERT INTO spaces VALUES (1, 'm'); INSERT INTO vectors VALUES (1, zeroblob(32), 99999999, zeroblob(4));
		INSERT INTO learned VALUES ('q', 's', 'a', 1, 1);`)
	fmt.Fprintf(&old, `PRAGMA user_version = %d`, without)
	execute(t, filepath.Join(dir, fileName), old.String())

	s := open(t, dir)
	if got := ids(tools(t, s)); !slices.Equal(got, []string{"s.z", "s.a"}) {
		t.Errorf("tools %v", got)
	}
	if diff := put(t, s, "s", listed...); len(diff.Added)+len(diff.Changed)+len(diff.Removed) != 0 {
		t.Errorf("the same tools differ: %+v", diff)
	}
	var first int64
	if err := s.db.QueryRow(`SELECT max(first_seen) FROM tools`).Scan(&first); err != nil || first != 1 {
		t.Errorf("first seen at %d, %v", first, err)
	}
	tokens, err := s.Tokens(t.Context())
	if err != nil || len(tokens) != 0 {
		t.Errorf("tokens %v, %v", tokens, err)
	}
	clients, err := s.Usage().Clients(t.Context())
	if err != nil || clients["agent 1"] != tool.RelistsAlways {
		t.Errorf("clients %v, %v", clients, err)
	}
	vectors, err := s.Vectors(t.Context(), "m", []Key{{}})
	if err != nil || len(vectors) != 1 {
		t.Errorf("vectors %v, %v", vectors, err)
	}
	learned, err := s.Usage().Learned(t.Context())
	if err != nil || len(learned) != 1 {
		t.Errorf("learned %v, %v", learned, err)
	}
	if _, err := s.KeepServers(t.Context(), nil); err != nil || len(tools(t, s)) != 0 {
		t.Errorf("tools outlive their server: %v, %v", tools(t, s), err)
	}
}
