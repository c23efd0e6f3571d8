package proxy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/index"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/retrieve"
	"toolfinch/store"
	"toolfinch/store/catalogue"
	"toolfinch/tool"
	"toolfinch/view"
)

// indexes are the starts of a program over a store, and what they have of the index.
type indexes struct {
	t      *testing.T
	db     *store.Store
	log    *slog.Logger
	shared bool // the store, by replicas
}

func newIndexes(t *testing.T) indexes {
	log := slog.New(slog.DiscardHandler)
	db := must.Get(store.Open(t.Context(), t.TempDir(), log))(t)
	t.Cleanup(func() { db.Close() })
	return indexes{t: t, db: db, log: log}
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
	s := &segments{store: x.db, log: x.log, shared: x.shared, catalogs: func() []*retrieve.Catalog { return []*retrieve.Catalog{catalog} }, done: func() {}}
	root := retrieve.NewCatalog(func(*tool.Def) tool.Handler { return nil })
	x.t.Cleanup(func() { root.Close() })
	root.Recall(s.recall(x.t.Context()), false)
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
	var all []store.Segment
	must.Do(t, x.db.Segments(t.Context(), index.StoredPrefix(), func(one store.Segment) { all = append(all, one) }))
	for _, one := range all {
		one.Data = slices.Clone(one.Data)
		one.Data[len(one.Data)/2]++
		must.Do(t, x.db.PutSegment(t.Context(), one))
	}
	var log bytes.Buffer
	x.log = slog.New(slog.NewTextHandler(&log, nil))
	second, _ := x.start(x.contents("calc", "", 0))
	if slices.Contains(slices.Collect(maps.Values(second.kept)), true) || !strings.Contains(log.String(), fmt.Sprint("parts=", len(all))) {
		t.Errorf("what is damaged counts as stored, or the log does not say so: %s", &log)
	}
	x.keep(second)
	log.Reset()
	if third, _ := x.start(x.contents("calc", "", 0)); !maps.Equal(third.kept, keysOf(built)) || log.Len() > 0 {
		t.Errorf("after a start in between %d parts are sound, and the log says: %s", len(third.kept), &log)
	}
}

// Replicas with different servers on one store each find their own parts at the next start,
// and take away what they use no more themselves.
func TestReplicasKeepTheirOwnIndexes(t *testing.T) {
	x := newIndexes(t)
	x.shared = true
	a, ofA := x.start(x.contents("a", "", 0))
	x.keep(a)
	b, ofB := x.start(x.contents("b", "", 0))
	x.keep(b)
	stored := keysOf(ofA)
	maps.Copy(stored, keysOf(ofB))
	next, _ := x.start(x.contents("a", "", 0))
	if !maps.Equal(next.kept, stored) {
		t.Errorf("of two replicas %d parts are stored, not the %d of both", len(next.kept), len(stored))
	}
	x.keep(next)
	var changed *retrieve.Catalog
	next.catalogs = func() []*retrieve.Catalog { return []*retrieve.Catalog{changed} }
	_, changed = x.start(x.contents("a", "Multiplies", 2*segmentsFrom))
	x.keep(next)
	stored = keysOf(changed)
	maps.Copy(stored, keysOf(ofB))
	if last, _ := x.start(x.contents("b", "", 0)); !maps.Equal(last.kept, stored) {
		t.Errorf("after a change %d parts are stored, not the %d that are used", len(last.kept), len(stored))
	}
}

// What could not be stored is stored later, though nothing changes meanwhile.
func TestAnIndexThatIsNotStoredIsStoredLater(t *testing.T) {
	x := newIndexes(t)
	var log await.Log
	x.log = slog.New(slog.NewTextHandler(&log, nil))
	s, _ := x.start(x.contents("calc", "", 0))
	tries := func() int { return strings.Count(log.String(), "the index is not written to the store") }
	must.Do(t, x.db.Close())
	synctest.Test(t, func(t *testing.T) {
		s.work = make(chan struct{}, 1)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.run(ctx) })
		s.work <- struct{}{}
		time.Sleep(segmentsAfter + time.Second)
		if n := tries(); n != 1 {
			t.Errorf("tried %d times, not once", n)
		}
		time.Sleep(segmentsAgain + segmentsAfter)
		if n := tries(); n != 2 {
			t.Errorf("a minute later tried %d times, not twice", n)
		}
		stop()
		running.Wait()
	})
}

// Of a store with very many tools some are found at once, and all after that: with the index
// as it was stored.
func TestAVeryLargeStoreIsFoundInTwoSteps(t *testing.T) {
	config := benchStore(t, 7*segmentsFrom, 7)
	first, end := openBench(t, config)
	must.Do(t, first.segments.keep(t.Context()))
	want := keysOf(first.now.Load().endpoints[view.Default].root)
	end()
	p, err := Open(t.Context(), config, func(o *options) { o.atFirst = 6 * segmentsFrom }) // six servers fit
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	last := func(server int) bool { // the word is like those of other servers
		found, err := p.Retriever().Search(t.Context(), retrieve.Query{Text: catalogue.Word(server), Limit: 1})
		return err == nil && len(found.Hits) == 1 && found.Hits[0].Def.ID.Server == fmt.Sprint("server", server)
	}
	if !p.partial || !last(0) || last(6) {
		t.Error("the first answer is not of the first servers alone")
	}
	must.Do(t, p.loop.refresh(t.Context(), nil))
	if p.partial || p.stored != nil || !last(0) || !last(6) {
		t.Error("not all is found after that")
	}
	if got := keysOf(p.now.Load().endpoints[view.Default].root); !maps.Equal(got, want) {
		t.Errorf("the index has %d parts, which are not the %d that were stored", len(got), len(want))
	}
}
