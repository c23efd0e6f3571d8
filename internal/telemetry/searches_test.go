package telemetry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
)

// ask has an operation of a feed search once, and returns its number.
func ask(t *testing.T, f *telemetry.Feed, query string, hits ...string) int64 {
	t.Helper()
	ctx, running := f.Begin(t.Context(), telemetry.Operation{Kind: identity.EventRetrieve, View: "v"})
	telemetry.Asked(ctx, func() telemetry.Search {
		s := telemetry.Search{Query: query}
		for _, name := range hits {
			s.Hits = append(s.Hits, telemetry.SearchHit{ID: "s." + name, Name: name})
		}
		return s
	})
	return running.End(identity.Success, "", 0).N
}

func TestSearchesAreKept(t *testing.T) {
	f := telemetry.NewFeed()
	if n := ask(t, f, "before"); len(f.Searches()) != 0 {
		t.Errorf("operation %d is kept, though nothing said so: %v", n, f.Searches())
	}
	f.Keep(3)
	var last int64
	for i := range 5 {
		last = ask(t, f, fmt.Sprint(i), "a", "b")
	}
	all := f.Searches()
	if len(all) != 3 || all[0].All[0].Query != "4" || all[2].All[0].Query != "2" || all[0].View != "v" || len(all[0].All[0].Hits) != 2 {
		t.Errorf("kept are %+v", all)
	}
	if one, ok := f.SearchesOf(last); !ok || one.All[0].Query != "4" {
		t.Errorf("of %d: %v, %v", last, one, ok)
	}
	if _, ok := f.SearchesOf(last - 4); ok {
		t.Error("the first one is kept, too")
	}
	f.Keep(1)
	if all = f.Searches(); len(all) != 1 || all[0].N != last {
		t.Errorf("then kept are %+v", all)
	}
	f.Keep(0)
	ask(t, f, "after")
	if all = f.Searches(); len(all) != 0 {
		t.Errorf("in the end kept are %+v", all)
	}
}

// Each search, the searches of an operation, and all together have a bound; the oldest go first.
func TestKeptSearchesAreBounded(t *testing.T) {
	f := telemetry.NewFeed()
	const operations = 300
	f.Keep(operations)
	long, text := strings.Repeat("q", 1<<20), strings.Repeat("i", 1<<10)
	var last int64
	for range operations {
		ctx, running := f.Begin(t.Context(), telemetry.Operation{})
		for range 20 {
			telemetry.Asked(ctx, func() telemetry.Search {
				return telemetry.Search{Query: long, Server: long, Hits: slices.Repeat([]telemetry.SearchHit{{ID: text, Name: text}}, 50)}
			})
		}
		last = running.End(identity.Success, "", 0).N
	}
	all, size := f.Searches(), 0
	for _, kept := range all {
		if len(kept.All) > 16 {
			t.Fatalf("%d searches of one operation are kept", len(kept.All))
		}
		for _, s := range kept.All {
			if len(s.Hits) != 10 || cap(s.Hits) > 16 || s.Found != 50 {
				t.Fatalf("%d of %d hits are kept, with room for %d", len(s.Hits), s.Found, cap(s.Hits))
			}
			size += len(s.Query) + len(s.Server)
			for _, h := range s.Hits {
				size += len(h.ID) + len(h.Name)
			}
		}
	}
	if size > 16<<20 || size < 8<<20 || all[0].N != last || len(all) == operations {
		t.Errorf("%d bytes of %d operations are kept, the latest is %d of %d", size, len(all), all[0].N, last)
	}
	f.Keep(0)
	f.Keep(1)
	if ask(t, f, "again"); len(f.Searches()) != 1 {
		t.Error("what was forgotten still counts")
	}
}

func TestASearchOutsideOfOperationsIsNotKept(t *testing.T) {
	telemetry.Asked(context.Background(), func() telemetry.Search {
		t.Error("it was asked for")
		return telemetry.Search{}
	})
}
