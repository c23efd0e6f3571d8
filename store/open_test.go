package store_test

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
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/store"
	. "toolfinch/store/storetest"
)

func TestEveryStateOfTheDiskOpens(t *testing.T) {
	place := func(prepare func(t *testing.T, dir string)) func(t *testing.T, dir string) string {
		return func(t *testing.T, dir string) string { prepare(t, dir); return dir }
	}
	content := func(text string) func(t *testing.T, dir string) string {
		return place(func(t *testing.T, dir string) { write(t, file(dir), []byte(text)) })
	}
	database := func(statements string) func(t *testing.T, dir string) string {
		return place(func(t *testing.T, dir string) { sqlite.Exec(t, dir, statements) })
	}
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string) (data string)
		durable bool
		aside   string // part of the name it was moved to
	}{
		"missing":                     {func(_ *testing.T, dir string) string { return filepath.Join(dir, "a", "b") }, true, ""},
		"empty file":                  {content(""), true, ""},
		"text":                        {content(strings.Repeat("not a database\n", 1000)), true, ".corrupt-"},
		"short text":                  {content("x"), true, ""}, // SQLite takes it for an empty one
		"someone else's database":     {database(`CREATE TABLE tools (id INTEGER); INSERT INTO tools VALUES (1)`), true, ".corrupt-"},
		"right version, wrong tables": {database(`CREATE TABLE servers (name TEXT); PRAGMA user_version = 3`), true, ".corrupt-"},
		"negative version":            {database(`PRAGMA user_version = -1`), true, ".corrupt-"},
		"provisions missing":          {without("provisions"), true, ".corrupt-"},
		"savings missing":             {without("savings"), true, ".corrupt-"},
		"garbage for a lock":          {place(func(t *testing.T, dir string) { write(t, lockOf(dir), bytes.Repeat([]byte("garbage"), 1000)) }), true, ""},
		"a directory for a database":  {place(func(t *testing.T, dir string) { Must(t, os.Mkdir(file(dir), 0o700)) }), false, ""},
		"a directory for a lock":      {place(func(t *testing.T, dir string) { Must(t, os.Mkdir(lockOf(dir), 0o700)) }), false, ""},
		"a file for the directory":    {func(t *testing.T, dir string) string { write(t, file(dir), nil); return file(dir) }, false, ""},
		"a file above the directory": {func(t *testing.T, dir string) string {
			write(t, file(dir), nil)
			return filepath.Join(file(dir), "data")
		}, false, ""},
		"a directory without permission": {place(func(t *testing.T, dir string) {
			if os.Geteuid() <= 0 {
				t.Skip("root may write everywhere")
			}
			t.Cleanup(func() { os.Chmod(dir, 0o700) })
			Must(t, os.Chmod(dir, 0o500))
		}), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := test.prepare(t, t.TempDir())
			var log bytes.Buffer
			s, err := store.OpenOrReplace(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
			Must(t, err)
			defer s.Close()
			if s.Durable() != test.durable {
				t.Errorf("durable: %v, want %v", s.Durable(), test.durable)
			}
			Works(t, s)
			warnings := 0
			if test.aside != "" || !test.durable {
				warnings = 1
			}
			if strings.Count(log.String(), "\n") != warnings {
				t.Errorf("want %d lines in the log:\n%s", warnings, &log)
			}
			aside := movedAside(t, dir)
			if test.aside == "" && len(aside) > 0 || test.aside != "" && (len(aside) != 1 || !strings.Contains(aside[0], test.aside)) {
				t.Fatalf("moved aside: %v, want %q", aside, test.aside)
			}
		})
	}
}

func lockOf(dir string) string { return filepath.Join(dir, "toolfinch.lock") }

// without prepares a database that lacks a table, though its version has it.
func without(table string) func(t *testing.T, dir string) string {
	return func(t *testing.T, dir string) string {
		Must(t, Open(t, dir).Close())
		sqlite.Exec(t, dir, `DROP TABLE `+table)
		return dir
	}
}

// Whatever damage is done to a database, its log or its shared memory, the store opens, works, and opens again.
func TestOpenGivesUpOnNothing(t *testing.T) {
	const times = 3 // each kind of damage to each file
	whole := unclosed(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range slices.Sorted(maps.Keys(whole)) { // sorted: the seed is fixed
		size := len(whole[name])
		for i := range times {
			for _, damage := range []struct {
				how string
				do  func(content []byte) []byte
			}{
				{"truncated", func(content []byte) []byte {
					return content[:min([]int{90, 4096 * 2, random.IntN(size)}[i], size)]
				}},
				{"flipped", func(content []byte) []byte {
					for range 1 + i*i {
						content[random.IntN(size)] ^= byte(1 + random.IntN(255))
					}
					return content
				}},
				{"header byte", func(content []byte) []byte { content[16+random.IntN(84)] ^= byte(1 + random.IntN(255)); return content }},
				{"page zeroed", func(content []byte) []byte {
					from := min(4096*random.IntN(1+size/4096), size)
					clear(content[from:min(from+4096, size)])
					return content
				}},
			} {
				dir := t.TempDir()
				for of, content := range whole {
					if of == name {
						content = damage.do(bytes.Clone(content))
					}
					write(t, filepath.Join(dir, of), content)
				}
				for range 2 {
					s := Open(t, dir)
					if !s.Durable() {
						t.Errorf("%s, %s %d: it is left in memory, though the directory can be written", name, damage.how, i)
					}
					Tools(t, s)
					Works(t, s)
					Must(t, s.Close())
				}
				if t.Failed() {
					t.Fatalf("%s, %s %d", name, damage.how, i)
				}
			}
		}
	}
}

// unclosed returns the files of a store that was not closed: half of its content is in the write-ahead log.
func unclosed(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	s := Open(t, dir)
	Put(t, s, "first", Many(t, "first", 60)...)
	Must(t, s.Close())
	s = Open(t, dir)
	Put(t, s, "second", Many(t, "second", 60)...)
	Put(t, s, "first", Many(t, "first", 30)...)
	out := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		content, err := os.ReadFile(file(dir) + suffix)
		if err != nil || len(content) == 0 {
			t.Fatalf("%s: %d bytes, %v", suffix, len(content), err)
		}
		out[filepath.Base(file(dir))+suffix] = content
	}
	return out
}

func TestWhatWasInUseIsReplacedOnceItIsNot(t *testing.T) {
	dir := t.TempDir()
	user := Open(t, dir)
	sqlite.Exec(t, dir, `PRAGMA user_version = -1`)
	opened := make(chan *store.Store)
	go func() {
		s, err := store.OpenOrReplace(context.Background(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Error(err)
		}
		opened <- s
	}()
	Must(t, user.Close())
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
	if s, err := store.Open(ctx, dir, slog.New(slog.DiscardHandler)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := os.Stat(file(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made a database: %v", err)
	}
}

func version(t testing.TB, db *sql.DB) (version int) {
	t.Helper()
	Must(t, db.QueryRow(`PRAGMA user_version`).Scan(&version))
	return version
}

// schema are the statements that made the tables of a database, and its version.
func schema(t testing.TB, dir string) (out string) {
	t.Helper()
	db := sqlite.Open(t, dir)
	Must(t, db.QueryRow(`SELECT group_concat(sql, ';') FROM (SELECT sql FROM sqlite_schema ORDER BY name)`).Scan(&out))
	return fmt.Sprint(version(t, db), out)
}

// ofTables are the columns of all tables.
const ofTables = `SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
	WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid`

// forgotten are the tables whose rows a migration drops, by its version: they could not
// be read any more, and are learned again.
var forgotten = map[string]int{"tokens": 8, "savings": 13, "called": 14}

// Each version that ever was, with a row in each of its tables, becomes the newest one, which has the rows.
func TestEveryVersionIsMigratedWithWhatIsInIt(t *testing.T) {
	fresh := t.TempDir()
	Open(t, fresh)
	steps := migrations(t, "sqlite")
	for version := 1; version < len(steps); version++ {
		dir := t.TempDir()
		db := sqlite.Open(t, dir)
		_, err := db.Exec(`BEGIN;` + strings.Join(steps[:version], "") + fmt.Sprintf(`;PRAGMA user_version = %d; COMMIT`, version))
		Must(t, err)
		had := Furnish(t, db, ofTables)
		Must(t, db.Close())
		s := Open(t, dir)
		if aside := movedAside(t, dir); aside != nil || schema(t, dir) != schema(t, fresh) {
			t.Fatalf("version %d: moved aside: %v, or not the schema of a new one", version, aside)
		}
		delete(had, "enriched") // which is gone
		delete(had, "history")
		delete(had["tools"], "first_seen")
		delete(had["tools"], "last_seen")
		for table, row := range had {
			if db := sqlite.Open(t, dir); forgotten[table] <= version {
				WantRow(t, db, table, row)
			} else if left := Rows(t, db, table); len(left) > 0 {
				t.Errorf("version %d: %s has %v", version, table, left)
			}
		}
		Works(t, s)
	}
}

// migrations are the statements of all versions, by number.
func migrations(t testing.TB, kind string) (steps []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("migrations", kind, "*.sql"))
	Must(t, err)
	for i, name := range names {
		if !strings.HasPrefix(filepath.Base(name), fmt.Sprintf("%04d_", i+1)) { // two branches may each have added one
			t.Errorf("%s is number %d", name, i+1)
		}
		text, err := os.ReadFile(name)
		Must(t, err)
		steps = append(steps, string(text))
	}
	return steps
}

func TestMigrationsAreNumbered(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		if len(migrations(t, kind)) == 0 {
			t.Errorf("%s has none", kind)
		}
	}
}

func TestAnOldDatabaseIsMigratedOnce(t *testing.T) {
	dir, fresh := t.TempDir(), t.TempDir()
	Open(t, fresh)
	statements, err := os.ReadFile(filepath.Join("testdata", "version1.sql"))
	Must(t, err)
	sqlite.Exec(t, dir, string(statements))
	for _, opening := range []string{"first", "second"} {
		s := Open(t, dir)
		if got, want := schema(t, dir), schema(t, fresh); got != want {
			t.Errorf("%s: schema %s\nwant %s", opening, got, want)
		}
		WantIDs(t, s, "clock.now")
		if got, err := s.Servers(t.Context()); err != nil || len(got) != 1 || got[0].Instructions != "Tells the time." ||
			got[0].Capabilities != nil || got[0].Interactive {
			t.Errorf("%s: servers %+v, %v", opening, got, err)
		}
		Must(t, s.Close())
	}
	Works(t, Open(t, dir))
	if got := movedAside(t, dir); got != nil {
		t.Errorf("moved aside: %v", got)
	}
}

func TestWhatWasKnownBeforeThereWerePinsIsTheBaseline(t *testing.T) {
	dir := t.TempDir()
	const before = 17
	steps := migrations(t, "sqlite")
	if !strings.Contains(steps[before], "CREATE TABLE pins") {
		t.Fatalf("version %d makes no pins", before+1)
	}
	old := strings.Join(steps[:before], "")
	listed := Def(t, "s", `{"name":"a"}`)
	for _, server := range []string{"s", "unchecked", "empty"} {
		old += fmt.Sprintf(`;INSERT INTO servers (name, era, instructions, updated_at, checked) VALUES ('%s', 'legacy', 'Use it.', 5, %v)`, server, server != "unchecked")
		if server != "empty" {
			old += fmt.Sprintf(`;INSERT INTO tools (server, name, position, hash, first_seen, last_seen, raw) VALUES ('%s', 'a', 0, '%s', 1, 2, CAST('%s' AS BLOB))`, server, listed.Hash, listed.Raw)
		}
	}
	sqlite.Exec(t, dir, `BEGIN;`+old+fmt.Sprintf(`;PRAGMA user_version = %d; COMMIT`, before))
	s := Open(t, dir)
	if got, err := s.Pins().Unpinned(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("after the migration: %v, %v", got, err)
	}
	for server, want := range map[string][]string{
		"s":         {`{"name":"a","v":2}<-{"name":"a"}`, "Obey it.<-Use it."},
		"unchecked": nil, // what is stored was not taken in as lists are now: the next list is the first
		"empty":     nil,
	} {
		var got []string
		for _, held := range List(t, s, store.Upstream{Name: server, Instructions: "Obey it."}, Strict, Def(t, server, `{"name":"a","v":2}`)).Held {
			got = append(got, fmt.Sprintf("%s<-%s", held.Raw, held.Approved))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", server, got, want)
		}
	}
}
