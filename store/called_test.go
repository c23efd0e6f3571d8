package store

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/tool"
)

// called are tools that were called in as many of the last sessions as their names have letters.
func called(names ...string) (all []tool.Called) {
	for _, name := range names {
		all = append(all, tool.Called{Name: name, Sessions: 1<<len(name) - 1})
	}
	return all
}

func TestWhatClientsCalledLast(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Store) {
		put := func(view, principal, client string, names ...string) {
			t.Helper()
			if err := s.Usage().PutCalled(t.Context(), view, tool.Caller{Principal: principal, Client: client}, called(names...)); err != nil {
				t.Fatal(err)
			}
		}
		put("", "", "agent 1", "a", "b")
		put("", "", "agent 1", "c", "a")
		put("", "ann", "agent 1", "d")
		put("view", "", "agent 1", "e")
		check := func(want map[tool.Caller][]tool.Called) {
			t.Helper()
			if got, err := s.Usage().Called(t.Context(), ""); err != nil || !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%v, %v, want %v", got, err, want)
			}
		}
		check(map[tool.Caller][]tool.Called{{Client: "agent 1"}: called("c", "a"), {Principal: "ann", Client: "agent 1"}: called("d")})

		if _, err := s.db.Exec(`UPDATE called SET at = $1 WHERE principal = 'ann'`, time.Now().Add(-8*24*time.Hour).UnixMilli()); err != nil {
			t.Fatal(err)
		}
		check(map[tool.Caller][]tool.Called{{Client: "agent 1"}: called("c", "a")})

		if err := s.Usage().PutCalled(t.Context(), "", tool.Caller{Principal: strings.Repeat("x", maxCallerBytes), Client: "y"}, nil); err == nil {
			t.Error("a caller of any length is kept")
		}
		_, err := s.db.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
			INSERT INTO called SELECT 'flood', '', CAST(i AS TEXT), '[]', (SELECT max(at) FROM called) FROM n`)
		if err != nil {
			t.Fatal(err)
		}
		put("", "", "agent 2", "f")
		var rows int
		if err := s.db.QueryRow(`SELECT count(*) FROM called`).Scan(&rows); err != nil || rows != maxCallers {
			t.Errorf("%d rows are kept, %v, want %d", rows, err, maxCallers)
		}
		if got, err := s.Usage().Called(t.Context(), ""); err != nil || !slices.Equal(got[tool.Caller{Client: "agent 2"}], called("f")) {
			t.Errorf("after many others: %v, %v", got, err)
		}
	})
}
