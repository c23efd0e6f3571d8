package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"testing"

	"toolfinch/index"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// A start takes over what the one before has stored; small changes are not written.
func TestTheIndexIsStored(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(t.Context(), t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	handler := func(*tool.Def) tool.Handler { return nil }
	contents := func(said string, n int) retrieve.Contents {
		var tools []*tool.Tool
		for i := range 2 * segmentsFrom {
			text := "Adds numbers"
			if i < n {
				text = said
			}
			def, err := tool.ParseDef("calc", fmt.Appendf(nil, `{"name":"add_%d","description":%q}`, i, text))
			if err != nil {
				t.Fatal(err)
			}
			tools = append(tools, &tool.Tool{Def: def})
		}
		return retrieve.Contents{Servers: []retrieve.Server{{Name: "calc", Tools: tools}}}
	}
	// start is a start of the program over what is stored.
	start := func(now retrieve.Contents) (*segments, *retrieve.Catalog) {
		t.Helper()
		var catalog *retrieve.Catalog
		s := &segments{store: db, log: log, catalogs: func() []*retrieve.Catalog { return []*retrieve.Catalog{catalog} }, done: func() {}}
		root := retrieve.NewCatalog(handler)
		t.Cleanup(func() { root.Close() })
		root.Recall(s.recall(t.Context()))
		if catalog, err = root.With(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		return s, catalog
	}
	keep := func(s *segments) {
		t.Helper()
		if err := s.keep(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	keysOf := func(c *retrieve.Catalog) map[index.SegmentKey]bool {
		keys := map[index.SegmentKey]bool{}
		for _, one := range c.Segments() {
			keys[one.Key] = true
		}
		return keys
	}
	first, built := start(contents("", 0))
	keep(first)
	want := keysOf(built)
	second, recalled := start(contents("", 0))
	if got := keysOf(recalled); len(got) < 2 || !maps.Equal(got, want) {
		t.Errorf("a second start has segments %v, not %v", got, want)
	}
	stored := maps.Clone(second.kept)
	keep(second)

	third, few := start(contents("Subtracts", 3))
	keep(third)
	if len(few.Segments()) != len(want)+1 || !maps.Equal(third.kept, stored) {
		t.Errorf("after few changes there are %d segments, and stored are %d", len(few.Segments()), len(third.kept))
	}
	found, err := few.Search(t.Context(), index.Query{Text: "subtracts", Limit: 9})
	if err != nil || len(found.Hits) != 3 {
		t.Errorf("found %v, %v", found.Hits, err)
	}
	fourth, many := start(contents("Multiplies", segmentsFrom))
	keep(fourth)
	for key := range keysOf(many) {
		if !fourth.kept[key] {
			t.Errorf("after many changes %x is not stored", key)
		}
	}
	fifth, _ := start(contents("Multiplies", segmentsFrom))
	if !maps.Equal(fifth.kept, fourth.kept) {
		t.Error("what is not used any more is still stored")
	}
}
