package store

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/postgres"
	"toolfinch/tool"
	"toolfinch/trust"
	"toolfinch/trust/vault"
)

// furnish puts something into every table.
func furnish(t testing.TB, s *Store) {
	t.Helper()
	ctx := t.Context()
	putReviewed(t, s, Upstream{Name: "a"}, strict, defs(t, "a", `{"name":"y","title":"Y"}`)...)
	putReviewed(t, s, Upstream{Name: "a", Era: "legacy", Info: []byte(`{"name":"a"}`), Instructions: "Use\x00 it.", Capabilities: []byte(`{}`), Interactive: true, LeftOut: 2}, strict,
		def(t, "a", `{"name":"x","description":"naïve 漢字"}`), def(t, "a", `{"name":"y"}`))
	held, err := s.Pins().Unpinned(ctx)
	_, failed := s.PutServer(ctx, Upstream{Name: "b"}, defs(t, "b", `{"name":"z"}`), nil)
	err = errors.Join(err, failed,
		s.PutTokens(ctx, map[string]int{tools(t, s)[0].Hash: 7}),
		s.Usage().PutClient(ctx, "agent 1", tool.RelistsAlways),
		s.PutVectors(ctx, "m", map[Key][]float32{{1}: {0.5, -1}, {2}: {}}),
		s.Usage().PutLearned(ctx, LearnedUse{Principal: "p", Query: "q", Tool: tool.ID{Server: "a", Name: "x"}, Count: 0.1, At: time.Now()}),
		s.Usage().PutCalled(ctx, "v", tool.Caller{Principal: "p", Client: "c"}, []tool.Called{{Name: "x"}}),
		s.PutEnriched(ctx, Enriched{Hash: "h", When: "now", Tags: []string{"t"}, State: Accepted}),
		s.Outputs().Put(ctx, name("token"), name("owner"), []byte("content"), time.Now(), time.Now().Add(time.Hour)),
		putProvisions(s, ctx, "v", "o", []tool.Provisioned{never("o", "a", "y"), never("o", "a", "x")}),
		s.Usage().AddSavings(ctx, today(), []Savings{{View: "v", Steps: 3}}),
		s.Sealed().Put(ctx, vault.Row{Name: "secret/A", Sealed: []byte{0, 1}, At: noon}),
		s.Keys().Add(ctx, trust.Key{Name: "k", Hash: name("key"), Created: noon, Scopes: []string{"read"}}),
		s.PutSegment(ctx, Segment{Key: Key{3}, Docs: 1, Data: []byte{9}}),
		s.Pins().Approve(ctx, held, ""))
	if err != nil {
		t.Fatal(err)
	}
}

// contents are all rows of a store, as both databases have them.
func contents(t testing.TB, s *Store) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, table := range stored {
		err := s.each(t.Context(), func(rows *sql.Rows) error {
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			values, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			row := map[string]any{}
			for i, column := range columns {
				if truth, is := values[i].(bool); is {
					values[i] = map[bool]int64{true: 1}[truth]
				}
				row[column] = values[i]
			}
			all[table] = append(all[table], fmt.Sprint(row))
			return nil
		}, `SELECT * FROM `+table)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(all[table])
	}
	return all
}

func TestCopy(t *testing.T) {
	places := map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return t.TempDir() },
		"postgres": postgres.Start,
	}
	for from, there := range places {
		for to, here := range places {
			t.Run(from+" to "+to, func(t *testing.T) {
				source, at := open(t, there(t)), here(t)
				furnish(t, source)
				target := open(t, at)
				copied, err := Copy(t.Context(), source, target, false)
				if err != nil {
					t.Fatal(err)
				}
				for _, one := range copied {
					if one.Rows == 0 {
						t.Errorf("the test has nothing in %s", one.Table)
					}
				}
				if counted, err := target.count(t.Context()); err != nil || !reflect.DeepEqual(counted, copied) {
					t.Errorf("counted %v, %v, copied %v", counted, err, copied)
				}
				want := contents(t, source)
				if got := contents(t, target); !reflect.DeepEqual(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
				if _, err := Copy(t.Context(), source, target, false); !errors.Is(err, ErrNotEmpty) {
					t.Errorf("again: %v", err)
				}
				if _, err := Copy(t.Context(), source, target, true); err != nil {
					t.Errorf("in place of what is there: %v", err)
				}
				if got := contents(t, target); !reflect.DeepEqual(got, want) {
					t.Errorf("in place: got %v", got)
				}
				provision(t, target, "v", "later", never("later", "a", "x")) // numbers go on
				if err := target.Outputs().Put(t.Context(), name("more"), name("owner"), nil, time.Now(), time.Now().Add(time.Hour)); err != nil {
					t.Error(err)
				}
				works(t, target)
			})
		}
	}
}

// A table that a migration adds is copied, or said not to be.
func TestEveryTableIsCopied(t *testing.T) {
	var all []string
	err := open(t, t.TempDir()).each(t.Context(), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		all = append(all, name)
		return err
	}, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name`)
	if want := slices.Sorted(slices.Values(stored)); err != nil || !slices.Equal(all, want) {
		t.Errorf("tables %v, %v, copied %v", all, err, want)
	}
}

// A newer version may add columns while an older one runs beside it.
func TestColumnsOfANewerVersion(t *testing.T) {
	at := postgres.Start(t)
	s := open(t, at)
	furnish(t, s)
	if _, err := s.db.Exec(`ALTER TABLE tools ADD COLUMN later TEXT NOT NULL DEFAULT ''`); err != nil {
		t.Fatal(err)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if err := s.Snapshot(t.Context(), snapshot); err != nil {
		t.Error(err)
	}
	if db, _, err := openSnapshot(t.Context(), snapshot); err != nil {
		t.Error(err)
	} else {
		var n int
		if err := db.QueryRow(`SELECT count(*) FROM tools`).Scan(&n); err != nil || n != 3 {
			t.Errorf("the snapshot has %d tools, %v", n, err)
		}
		_ = db.Close()
	}
	if _, err := Copy(t.Context(), s, open(t, t.TempDir()), false); err == nil || !strings.Contains(err.Error(), "tools: a newer toolfinch has added later") {
		t.Errorf("it is copied without what this version does not know: %v", err)
	}
	if _, err := Copy(t.Context(), open(t, t.TempDir()), s, true); err != nil {
		t.Errorf("in place of what is there: %v", err)
	}
}

func TestExamine(t *testing.T) {
	for name, at := range map[string]string{"SQLite": t.TempDir(), "PostgreSQL": postgres.Start(t)} {
		if got, err := Examine(t.Context(), at); err != nil || got.Known || !strings.HasPrefix(got.Database, name) || len(got.Wrong) > 0 {
			t.Errorf("nothing in %s: %+v, %v", name, got, err)
		}
		furnish(t, open(t, at))
		if got, err := Examine(t.Context(), at); err != nil || !got.Known || len(got.Wrong) > 0 || got.Rows[1] != (Rows{"tools", 3}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := Examine(t.Context(), "postgres://ann:Geheim@127.0.0.1:1/x"); err == nil || strings.Contains(err.Error(), "Geheim") {
		t.Errorf("nobody there: %v", err)
	}
}
