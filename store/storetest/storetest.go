// Package storetest has the contract of package store as tests: what a Store promises in whichever
// database it is. It knows the tables, whose rows it ages and counts, and not the code.
package storetest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

// Database is a kind of database that a store can be in.
type Database struct {
	// Empty returns a place of an empty store, as store.Open takes it.
	Empty func(testing.TB) string

	// Driver and Source are what sql.Open takes to open a database beside the store.
	Driver string
	Source func(at string) string
}

// Open opens the database at a place beside the store, until the test ends.
func (d Database) Open(t testing.TB, at string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.Source(at))
	Must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// Exec runs SQL on the database at a place, past the store.
func (d Database) Exec(t testing.TB, at, statements string) {
	t.Helper()
	db := d.Open(t, at)
	_, err := db.Exec(statements)
	Must(t, err, db.Close())
}

// place is where the stores of one test are.
type place struct {
	at     string
	beside *sql.DB
}

func (p place) open(t testing.TB) *store.Store {
	t.Helper()
	return Open(t, p.at)
}

// sql executes a statement beside the store, and returns the first number of the answer, 0 without one.
func (p place) sql(t testing.TB, format string, args ...any) (number int64) {
	t.Helper()
	if err := p.beside.QueryRow(fmt.Sprintf(format, args...)).Scan(&number); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return number
}

// Run tests that stores in databases of a kind keep the contract. Each promise has an empty place.
func Run(t *testing.T, db Database) {
	for _, promise := range slices.Concat(definitions, approvals, usage, kept) {
		t.Run(promise.name, func(t *testing.T) {
			t.Parallel()
			at := db.Empty(t)
			promise.keeps(t, place{at, db.Open(t, at)})
		})
	}
}

type promise struct {
	name  string
	keeps func(*testing.T, place)
}

// Open opens the store at a place until the test ends.
func Open(t testing.TB, at string) *store.Store {
	t.Helper()
	s := must.Get(store.OpenOrReplace(t.Context(), at, slog.New(slog.DiscardHandler)))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// Def is the definition of a tool.
func Def(t testing.TB, server, raw string) *tool.Def {
	t.Helper()
	return ofKind(t, tool.KindTool, server, raw)
}

// Defs are the definitions of tools.
func Defs(t testing.TB, server string, raws ...string) (defs []*tool.Def) {
	t.Helper()
	for _, raw := range raws {
		defs = append(defs, Def(t, server, raw))
	}
	return defs
}

func ofKind(t testing.TB, kind tool.Kind, server, raw string) *tool.Def {
	t.Helper()
	def := must.Get(tool.ParseKind(kind, server, json.RawMessage(raw)))(t)
	return def
}

// Many makes n definitions of the size that real servers have, 1.5 kB.
func Many(t testing.TB, server string, n int) []*tool.Def {
	t.Helper()
	defs := make([]*tool.Def, n)
	for i := range defs {
		field := fmt.Sprintf(`"field_%d":{"type":"string","description":"one of the fields that narrow the search"},`, i)
		defs[i] = Def(t, server, fmt.Sprintf(`{"name":"tool_%d","description":%q,"inputSchema":{"type":"object","properties":{%s}},"annotations":{"readOnlyHint":true}}`,
			i, strings.Repeat("Searches the things of a project. ", 12), strings.TrimSuffix(strings.Repeat(field, 10), ",")))
	}
	return defs
}

// Put stores what a server lists, without a review.
func Put(t testing.TB, s *store.Store, server string, defs ...*tool.Def) store.Diff {
	t.Helper()
	return List(t, s, store.Upstream{Name: server}, nil, defs...)
}

// Strict approves the first list and nothing else.
var Strict = &store.Review{First: true, Approve: func(store.Unpinned) bool { return false }}

// List stores what a server lists. The difference has no version, which is another one each time.
func List(t testing.TB, s *store.Store, srv store.Upstream, review *store.Review, defs ...*tool.Def) store.Diff {
	t.Helper()
	var diff store.Diff
	err := patiently(func() (err error) {
		diff, err = s.PutServer(t.Context(), srv, defs, review)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	diff.Version = 0
	return diff
}

// patiently does again what another process kept from the database for too long: nothing was changed.
func patiently(do func() error) error {
	for {
		if err := do(); err == nil || !store.Transient(err) && !strings.Contains(err.Error(), "SQLITE_BUSY") {
			return err
		}
	}
}

// Tools are all stored definitions.
func Tools(t testing.TB, s *store.Store) []*tool.Def {
	t.Helper()
	defs := must.Get(s.Tools(t.Context()))(t)
	return defs
}

// IDs are those of all stored definitions.
func IDs(t testing.TB, s *store.Store) (ids []string) {
	t.Helper()
	for _, def := range Tools(t, s) {
		ids = append(ids, def.ID.String())
	}
	return ids
}

// WantIDs checks which definitions are stored.
func WantIDs(t testing.TB, s *store.Store, want ...string) {
	t.Helper()
	if got := IDs(t, s); !slices.Equal(got, want) {
		t.Errorf("stored are %v, want %v", got, want)
	}
}

// Works checks that a store stores and tells what it stored. Whatever was listed before is forgotten.
func Works(t testing.TB, s *store.Store) {
	t.Helper()
	def := Def(t, "works", `{"name":"works"}`)
	for method, err := range writes(t.Context(), s, def) {
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for method, err := range reads(t.Context(), s) {
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	WantIDs(t, s, "works.works")
}

// Must fails the test with an error.
func Must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
