package store

import (
	"database/sql"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// forgotten are the tables whose rows a migration drops, by its version: they could not
// be read any more, and are learned again.
var forgotten = map[string]int{"tokens": 8, "savings": 13, "called": 14}

// Each version that ever was, with a row in each of its tables, becomes the newest one.
func TestEveryVersionIsMigratedWithWhatIsInIt(t *testing.T) {
	dir, newest, err := migrationsOf("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	fresh := open(t, t.TempDir())
	var statements []string
	for version := 1; version < newest; version++ {
		statements = append(statements, migration(t, dir, version))
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			folder := t.TempDir()
			tables := old(t, filepath.Join(folder, fileName), statements, version)
			s := open(t, folder)
			if aside := movedAside(t, folder); aside != nil || schema(t, s) != schema(t, fresh) {
				t.Fatalf("moved aside: %v, or not the schema of a new one", aside)
			}
			counts, err := s.count(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range counts {
				if had := slices.Contains(tables, one.Table); had && forgotten[one.Table] <= version && one.Rows == 0 {
					t.Errorf("%s had a row", one.Table)
				}
			}
			works(t, s)
		})
	}
}

// old makes a database of a version, with a row in each table, whose names it returns.
func old(t *testing.T, path string, statements []string, version int) (tables []string) {
	t.Helper()
	db, err := sql.Open("sqlite", fileURI(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range statements {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	err = each(t.Context(), db, func(rows *sql.Rows) error {
		var table string
		err := rows.Scan(&table)
		tables = append(tables, table)
		return err
	}, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`)
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]string{"TEXT": "'x'", "INTEGER": "1", "REAL": "1.0", "BLOB": "x'01'"}
	for _, table := range tables {
		var values []string
		err := each(t.Context(), db, func(rows *sql.Rows) error {
			var kind string
			err := rows.Scan(&kind)
			values = append(values, samples[kind])
			return err
		}, `SELECT type FROM pragma_table_info($1) ORDER BY cid`, table)
		if err == nil {
			_, err = db.Exec(`INSERT OR REPLACE INTO ` + table + ` VALUES (` + strings.Join(values, ", ") + `)`)
		}
		if err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
	if _, err := db.Exec(fmt.Sprintf(`PRAGMA user_version = %d`, version)); err != nil {
		t.Fatal(err)
	}
	return tables
}

func migration(t *testing.T, dir fs.FS, version int) string {
	t.Helper()
	found, err := fs.Glob(dir, fmt.Sprintf("%04d_*.sql", version))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	text, err := fs.ReadFile(dir, found[0])
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Two branches may each have added a migration with the same number.
func TestMigrationsAreNumbered(t *testing.T) {
	for _, kind := range []string{"sqlite", "postgres"} {
		dir, newest, err := migrationsOf(kind)
		if err != nil || newest == 0 {
			t.Fatal(kind, newest, err)
		}
		for version := range newest {
			migration(t, dir, version+1)
		}
	}
}
