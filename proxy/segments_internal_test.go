package proxy

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"toolfinch/index"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/tool"
)

// indexes are the starts of a program over a store, and what they have of the index.
type indexes struct {
	t   *testing.T
	db  *store.Store
	log *slog.Logger
}

func newIndexes(t *testing.T) indexes {
	log := slog.New(slog.DiscardHandler)
	db, err := store.Open(t.Context(), t.TempDir(), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return indexes{t, db, log}
}

// contents are tools of a server, of which the first n say something else.
func (x indexes) contents(server, said string, n int) retrieve.Contents {
	x.t.Helper()
	var tools []*tool.Tool
	for i := range 2 * segmentsFrom {
		text := "Adds numbers"
		if i < n {
			text = said
		}
		def, err := tool.ParseDef(server, fmt.Appendf(nil, `{"name":"add_%d","description":%q}`, i, text))
		if err != nil {
			x.t.Fatal(err)
		}
		tools = append(tools, &tool.Tool{Def: def})
	}
	return retrieve.Contents{Servers: []retrieve.Server{{Name: server, Tools: tools}}}
}

// start is a start of the program over what is stored.
func (x indexes) start(now retrieve.Contents) (*segments, *retrieve.Catalog) {
	x.t.Helper()
	var catalog *retrieve.Catalog
	s := &segments{store: x.db, log: x.log, catalogs: func() []*retrieve.Catalog { return []*retrieve.Catalog{catalog} }, done: func() {}}
	root := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil })
	x.t.Cleanup(func() { root.Close() })
	root.Recall(s.recall(x.t.Context()))
	var err error
	if catalog, err = root.With(x.t.Context(), now); err != nil {
		x.t.Fatal(err)
	}
	return s, catalog
}

func (x indexes) keep(s *segments) {
	x.t.Helper()
	if err := s.keep(x.t.Context()); err != nil {
		x.t.Fatal(err)
	}
}

func keysOf(c *retrieve.Catalog) map[index.SegmentKey]bool {
	keys := map[index.SegmentKey]bool{}
	for _, one := range c.Segments() {
		keys[one.Key] = true
	}
	return keys
}

// A start takes over what the one before has stored; small changes are not written.
func TestTheIndexIsStored(t *testing.T) {
	x := newIndexes(t)
	start, keep := x.start, x.keep
	contents := func(said string, n int) retrieve.Contents { return x.contents("calc", said, n) }
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

// A damaged part is stored again by the start that finds it, which says so.
func TestADamagedIndexIsMended(t *testing.T) {
	x := newIndexes(t)
	first, built := x.start(x.contents("calc", "", 0))
	x.keep(first)
	all, err := x.db.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := x.db.KeepSegments(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		one.Data = slices.Clone(one.Data)
		one.Data[len(one.Data)/2]++
		if err := x.db.PutSegment(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	x.log = slog.New(slog.NewTextHandler(&log, nil))
	second, _ := x.start(x.contents("calc", "", 0))
	if len(second.kept) != 0 || !strings.Contains(log.String(), fmt.Sprint("parts=", len(all))) {
		t.Errorf("of what is damaged %d parts count as stored, or the log does not say so: %s", len(second.kept), &log)
	}
	x.keep(second)
	log.Reset()
	if third, _ := x.start(x.contents("calc", "", 0)); !maps.Equal(third.kept, keysOf(built)) || log.Len() > 0 {
		t.Errorf("after a start in between %d parts are sound, and the log says: %s", len(third.kept), &log)
	}
}
