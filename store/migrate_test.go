package store

import (
	"cmp"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"toolfinch/internal/postgres"
)

// forgotten are the tables whose rows a migration drops, by its version: they could not
// be read any more, and are learned again.
var forgotten = map[string]int{"tokens": 8, "savings": 13, "called": 14}

// Each version that ever was, with a row in each of its tables, becomes the newest one, which has the rows.
func TestEveryVersionIsMigratedWithWhatIsInIt(t *testing.T) {
	dir, newest, err := migrationsOf("sqlite")
	if err != nil {
		t.Fatal(err)
	}
	fresh := open(t, t.TempDir())
	var statements []string
	for version := 1; version < newest; version++ {
		statements = append(statements, migration(t, dir, version))
		t.Run(fmt.Sprint("SQLite ", version), func(t *testing.T) {
			folder := t.TempDir()
			had := old(t, filepath.Join(folder, fileName), statements, version)
			s := open(t, folder)
			if aside := movedAside(t, folder); aside != nil || schema(t, s) != schema(t, fresh) {
				t.Fatalf("moved aside: %v, or not the schema of a new one", aside)
			}
			for table, row := range had {
				if forgotten[table] <= version {
					wantRow(t, s, table, row)
				}
			}
			works(t, s)
		})
	}
	_, newest, err = migrationsOf("postgres")
	if err != nil {
		t.Fatal(err)
	}
	for version := 1; version < newest; version++ {
		t.Run(fmt.Sprint("PostgreSQL ", version), func(t *testing.T) {
			url := postgres.Start(t)
			had := oldPostgres(t, url, int64(version))
			s := open(t, url)
			for table, row := range had {
				wantRow(t, s, table, row)
			}
			works(t, s)
		})
	}
}

// old makes a database of a version, with a row in each table, and returns the rows.
func old(t *testing.T, path string, statements []string, version int) map[string]map[string]any {
	t.Helper()
	db, err := sql.Open("sqlite", fileURI(path))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, text := range append(slices.Clone(statements), fmt.Sprintf(`PRAGMA user_version = %d`, version)) {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	return fill(t, db, `SELECT m.name, c.name, c.type FROM sqlite_schema m, pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid`)
}

func oldPostgres(t *testing.T, url string, version int64) map[string]map[string]any {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	dir, _, err := migrationsOf("postgres")
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newProvider(goose.DialectPostgres, db, dir, goose.WithTableName(versionTable))
	if err == nil {
		_, err = provider.UpTo(t.Context(), version)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fill(t, db, `SELECT table_name, column_name, data_type FROM information_schema.columns
		WHERE table_schema = current_schema() AND table_name NOT IN ('`+versionTable+`', 'compatible') ORDER BY table_name, ordinal_position`)
}

// fill puts a row into each table, whose columns and types a query returns, and returns the rows.
func fill(t *testing.T, db *sql.DB, query string) map[string]map[string]any {
	t.Helper()
	rows := map[string]map[string]any{}
	err := each(t.Context(), db, func(found *sql.Rows) error {
		var table, column, kind string
		err := found.Scan(&table, &column, &kind)
		if rows[table] == nil {
			rows[table] = map[string]any{}
		}
		rows[table][column] = sample(column, kind, len(rows[table]))
		return err
	}, query)
	if err != nil {
		t.Fatal(err)
	}
	tables := slices.SortedFunc(maps.Keys(rows), func(a, b string) int { // those first that others refer to
		return cmp.Compare(slices.Index(stored, a), slices.Index(stored, b))
	})
	for _, table := range tables {
		var names, marks []string
		var values []any
		for name, value := range rows[table] {
			names, values = append(names, name), append(values, value)
			marks = append(marks, fmt.Sprintf("$%d", len(names)))
		}
		if _, err := db.Exec(`INSERT INTO `+table+` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(marks, ", ")+`)`, values...); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}
	return rows
}

// sample is a value of a column: another one in each, but for those by which rows refer to others,
// and truth of SQLite.
func sample(column, kind string, place int) any {
	if slices.Contains([]string{"space", "id", "interactive", "checked"}, column) {
		place = 0
	}
	switch strings.ToLower(kind) {
	case "text":
		if column == "server" || column == "name" {
			return "x"
		}
		return column
	case "integer", "bigint":
		return int64(place + 1)
	case "real", "double precision":
		return float64(place) + 0.5
	case "boolean":
		return true
	case "timestamp with time zone":
		return time.UnixMilli(int64(place)).UTC()
	}
	return []byte(column)
}

// wantRow looks for a row with the values that it had.
func wantRow(t *testing.T, s *Store, table string, want map[string]any) {
	t.Helper()
	var all []map[string]any
	err := s.each(t.Context(), func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		err = rows.Scan(into...)
		row := map[string]any{}
		for i, column := range columns {
			if at, is := values[i].(time.Time); is {
				values[i] = at.UTC()
			}
			if _, had := want[column]; had {
				row[column] = values[i]
			}
		}
		all = append(all, row)
		return err
	}, `SELECT * FROM `+table)
	if err != nil || !slices.ContainsFunc(all, func(row map[string]any) bool { return reflect.DeepEqual(row, want) }) {
		t.Errorf("%s had %v, has %v, %v", table, want, all, err)
	}
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
