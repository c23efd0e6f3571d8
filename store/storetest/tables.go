package storetest

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/store"
	"toolfinch/tool"
)

// Row has the values of a row by column.
type Row map[string]any

// Furnish puts a row into each table of a database whose references are not checked, and returns the
// rows. The query returns each column with its table before it and its type behind.
func Furnish(t testing.TB, db *sql.DB, query string) map[string]Row {
	t.Helper()
	found, err := db.Query(query)
	Must(t, err)
	rows := map[string]Row{}
	for found.Next() {
		var table, column, kind string
		Must(t, found.Scan(&table, &column, &kind))
		if rows[table] == nil {
			rows[table] = Row{}
		}
		rows[table][column] = sample(column, kind, len(rows[table]))
	}
	Must(t, found.Err())
	for table, row := range rows {
		var names, marks []string
		var values []any
		for name, value := range row {
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
		switch column {
		case "server", "name":
			return "x"
		case "tags", "scopes", "groups":
			return `["` + column + `"]`
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
	return fmt.Appendf(nil, "%-32s", column) // as long as a hash
}

// Rows returns the rows of a table.
func Rows(t testing.TB, db *sql.DB, table string) (all []Row) {
	t.Helper()
	found, err := db.Query(`SELECT * FROM ` + table)
	Must(t, err)
	columns, err := found.Columns()
	Must(t, err)
	for found.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		Must(t, found.Scan(into...))
		row := Row{}
		for i, column := range columns {
			if at, is := values[i].(time.Time); is {
				values[i] = at.UTC()
			}
			row[column] = values[i]
		}
		all = append(all, row)
	}
	Must(t, found.Err())
	return all
}

// WantRow checks that a table has a row with the values of another one, whatever else that has.
func WantRow(t testing.TB, db *sql.DB, table string, want Row) {
	t.Helper()
	all := Rows(t, db, table)
	if !slices.ContainsFunc(all, func(row Row) bool {
		for column, value := range want {
			if !reflect.DeepEqual(row[column], value) {
				return false
			}
		}
		return true
	}) {
		t.Errorf("%s had %v, has %v", table, want, all)
	}
}

// Contents are all rows of tables, in an order of their own.
func Contents(t testing.TB, db *sql.DB, tables []store.Rows) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range tables {
		for _, row := range Rows(t, db, table.Table) {
			all[table.Table] = append(all[table.Table], fmt.Sprint(row))
		}
		slices.Sort(all[table.Table])
	}
	return all
}

// Benchmark measures what start-up and listing ask of a database, with 5,000 tools.
func Benchmark(b *testing.B, db Database) {
	const n = 5000
	defs := Many(b, "github", n)
	vectors, keys := map[store.Key][]float32{}, make([]store.Key, n)
	for i := range keys {
		keys[i] = store.Key{byte(i), byte(i >> 8)}
		vectors[keys[i]] = make([]float32, 384)
	}
	s := Open(b, db.Empty(b))
	for _, op := range []struct {
		name string
		do   func() error
	}{
		{"first list", func() error {
			keepServers(b, s)
			List(b, s, store.Upstream{Name: "github"}, Strict, defs...)
			return nil
		}},
		{"unchanged list", func() error { List(b, s, store.Upstream{Name: "github"}, Strict, defs...); return nil }},
		{"read tools", func() error { _, err := s.Tools(b.Context()); return err }},
		{"read what is held", func() error { _, err := s.Pins().Unpinned(b.Context()); return err }},
		{"put vectors", func() error { return s.PutVectors(b.Context(), "m", vectors) }},
		{"read vectors", func() error { _, err := s.Vectors(b.Context(), "m", keys); return err }},
		{"provision", func() error { return change(b, s, "o", []tool.Provisioned{never("o", "s", "t")}, nil) }},
		{"learn", func() error { return s.Usage().PutLearned(b.Context(), used("q", "s", "t", 0.5, noon)) }},
	} {
		b.Run(op.name, func(b *testing.B) {
			for b.Loop() {
				Must(b, op.do())
			}
		})
	}
}
