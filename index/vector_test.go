package index

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"toolfinch/internal/must"
)

// axis is a unit vector along one of dim directions.
func axis(i, dim int) []float32 {
	v := make([]float32, dim)
	v[i] = 1
	return v
}

func randomUnit(random *rand.Rand, dim int) []float32 {
	v := make([]float32, dim)
	var squares float64
	for i := range v {
		v[i] = float32(random.NormFloat64())
		squares += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] = float32(float64(v[i]) / math.Sqrt(squares))
	}
	return v
}

// cosine64 is the definition, computed with twice the digits.
func cosine64(a, b []float32) float64 {
	var product, squaresA, squaresB float64
	for i := range a {
		product += float64(a[i]) * float64(b[i])
		squaresA += float64(a[i]) * float64(a[i])
		squaresB += float64(b[i]) * float64(b[i])
	}
	return product / math.Sqrt(squaresA*squaresB)
}

// exactly is how far a cosine may be from its value once it was sharpened.
const exactly = 5e-5

// checkVectors compares v with the plain map that it should be.
func checkVectors(t *testing.T, v *vectors, want map[int][]float32, queries ...[]float32) {
	t.Helper()
	if v.len() != len(want) {
		t.Fatalf("%d vectors, want %d", v.len(), len(want))
	}
	similar := must.Get(v.cosines(t.Context(), slices.Clone(queries)))(t)
	defer similar.release()
	if len(similar.rows) != len(queries) {
		t.Fatalf("%d rows for %d queries", len(similar.rows), len(queries))
	}
	for slot := range max(len(similar.has), slices.Max(append(slices.Collect(maps.Keys(want)), 0))+1) {
		vector, known := want[slot]
		if similar.knows(slot) != known || v.known(slot) != known {
			t.Fatalf("slot %d: known %v to the search and %v to the index, want %v", slot, similar.knows(slot), v.known(slot), known)
		}
		kept := v.of([]int{slot})[0]
		if !known {
			if kept != nil {
				t.Fatalf("slot %d has vector %v, want none", slot, kept)
			}
			continue
		}
		if got := cosine64(kept, vector); math.Abs(got-1) > 1e-6 {
			t.Fatalf("slot %d keeps another vector: cosine %v with its own", slot, got)
		}
		for i, q := range queries {
			want := cosine64(q, vector)
			if got := float64(similar.rows[i][slot]); !(math.Abs(got-want) <= 1e-6+similar.margin()) {
				t.Fatalf("query %d, slot %d: cosine %v, want %v within %v", i, slot, got, want, similar.margin())
			}
			similar.sharpen(slot)
			if got := float64(similar.rows[i][slot]); !(math.Abs(got-want) <= exactly) {
				t.Fatalf("query %d, slot %d: cosine %v, want %v", i, slot, got, want)
			}
		}
	}
}

// holders are both ways to keep vectors.
var holders = []struct {
	name string
	open func(dim int) *vectors
}{
	{"chromem", func(int) *vectors { return &vectors{} }},
	{"coded", func(dim int) *vectors { return &vectors{dim: dim, held: newCoded(dim)} }},
}

// Each case is something that the library below gets wrong or refuses.
func TestVectorsAreKeptAndCompared(t *testing.T) {
	const dim = 5
	put := func(t *testing.T, v *vectors, slot int, vector []float32) {
		t.Helper()
		if err := v.put(slot, vector); err != nil {
			t.Fatalf("put %d: %v", slot, err)
		}
	}
	query := []float32{1, 2, 3, 4, 5}
	infinite, notANumber := float32(math.Inf(1)), float32(math.NaN())
	// Three vectors to start with, no slot 1.
	start := map[int][]float32{0: axis(0, dim), 2: {3, 4, 0, 0, 0}, 3: {.1, .1, -.1, .1, .1}}
	for _, test := range []struct {
		what string
		do   func(t *testing.T, v *vectors, want map[int][]float32)
	}{
		{"nothing happens", func(*testing.T, *vectors, map[int][]float32) {}},
		{"a collection becomes empty, and filled again", func(t *testing.T, v *vectors, want map[int][]float32) {
			for slot := range start {
				v.remove(slot)
				delete(want, slot)
			}
			checkVectors(t, v, want, query)
			put(t, v, 2, axis(4, dim))
			want[2] = axis(4, dim)
		}},
		{"one is removed and no other", func(t *testing.T, v *vectors, want map[int][]float32) {
			v.remove(2)
			delete(want, 2)
		}},
		{"what is not there is removed", func(t *testing.T, v *vectors, want map[int][]float32) {
			for _, slot := range []int{1, 4, 1000} {
				v.remove(slot)
			}
		}},
		{"a removed vector is removed again", func(t *testing.T, v *vectors, want map[int][]float32) {
			for range 2 {
				v.remove(0)
			}
			delete(want, 0)
		}},
		{"a vector is replaced", func(t *testing.T, v *vectors, want map[int][]float32) {
			put(t, v, 2, axis(4, dim))
			want[2] = axis(4, dim)
		}},
		{"a slot is used again", func(t *testing.T, v *vectors, want map[int][]float32) {
			v.remove(3)
			put(t, v, 3, axis(1, dim))
			want[3] = axis(1, dim)
		}},
		{"slots are far apart", func(t *testing.T, v *vectors, want map[int][]float32) {
			put(t, v, 5000, axis(1, dim))
			put(t, v, 400, axis(2, dim))
			want[5000], want[400] = axis(1, dim), axis(2, dim)
		}},
		{"lengths are far apart", func(t *testing.T, v *vectors, want map[int][]float32) {
			put(t, v, 4, []float32{1e-9, 2e-9, 0, 0, 0})
			put(t, v, 5, []float32{3e30, 0, 4e30, 0, 0})
			put(t, v, 6, []float32{math.MaxFloat32, math.MaxFloat32, 0, 0, 0})
			want[4], want[5], want[6] = []float32{1, 2, 0, 0, 0}, []float32{3, 0, 4, 0, 0}, []float32{1, 1, 0, 0, 0}
		}},
		{"what cannot be compared is refused", func(t *testing.T, v *vectors, want map[int][]float32) {
			for _, bad := range [][]float32{
				nil, {}, {1}, {1, 0, 0, 0}, {1, 0, 0, 0, 0, 0}, // dimensions
				{0, 0, 0, 0, 0},
				{1, notANumber, 0, 0, 0}, {notANumber, notANumber, notANumber, notANumber, notANumber},
				{infinite, 0, 0, 0, 0}, {1, -infinite, 0, 0, 0}, {infinite, -infinite, 0, 0, 0},
			} {
				for _, slot := range []int{0, 1, 7} { // taken, free, new
					if err := v.put(slot, bad); !errors.Is(err, ErrVector) {
						t.Errorf("put %v: error %v, want ErrVector", bad, err)
					}
				}
				if _, err := v.cosines(t.Context(), [][]float32{query, bad}); !errors.Is(err, ErrVector) {
					t.Errorf("query %v: error %v, want ErrVector", bad, err)
				}
			}
		}},
		{"the caller changes what it gave", func(t *testing.T, v *vectors, want map[int][]float32) {
			for slot, mine := range [][]float32{{0, 0, 0, 0, 1}, {0, 0, 2, 0, 2}} { // of length 1 and not
				put(t, v, slot, mine)
				want[slot] = slices.Clone(mine)
				clear(mine)
				mine[0] = -1
			}
		}},
		{"the caller changes what it was given", func(t *testing.T, v *vectors, want map[int][]float32) {
			for _, kept := range v.of([]int{0, 2, 3}) {
				clear(kept)
			}
		}},
		{"a query of no direction in common", func(t *testing.T, v *vectors, want map[int][]float32) {
			checkVectors(t, v, want, []float32{-1, 0, 0, 0, 0}, []float32{0, 0, 0, 1, -1})
		}},
		{"more queries than a kernel has rows", func(t *testing.T, v *vectors, want map[int][]float32) {
			random := rand.New(rand.NewPCG(1, 2))
			var queries [][]float32
			for range 30 {
				queries = append(queries, randomUnit(random, dim))
			}
			checkVectors(t, v, want, queries...)
		}},
		{"all is cleared", func(t *testing.T, v *vectors, want map[int][]float32) {
			v.clear()
			clear(want)
			checkVectors(t, v, want, query)
			put(t, v, 0, query)
			want[0] = query
		}},
	} {
		for _, holder := range holders {
			t.Run(test.what+"/"+holder.name, func(t *testing.T) {
				v := holder.open(dim)
				for slot, vector := range start {
					put(t, v, slot, slices.Clone(vector))
				}
				want := maps.Clone(start)
				test.do(t, v, want)
				checkVectors(t, v, want, query, []float32{0, 0, -7, 0, 0})
			})
		}
	}
}

func TestNoVectorsAreKnownToNobody(t *testing.T) {
	for _, holder := range holders {
		v := holder.open(3)
		checkVectors(t, v, nil, axis(0, 3), axis(1, 3))
		v.remove(0)
		if got := v.of([]int{-1, 0, 7}); len(got) != 3 || got[0] != nil || got[1] != nil || got[2] != nil {
			t.Errorf("%s: vectors %v, want three of nothing", holder.name, got)
		}
	}
}

// The first vector, of a dimension that is not to be, must not decide.
func TestARefusedVectorLeavesNoTrace(t *testing.T) {
	v := &vectors{}
	if err := v.put(0, []float32{0, 0, 0}); !errors.Is(err, ErrVector) {
		t.Fatalf("error %v, want ErrVector", err)
	}
	must.Do(t, v.put(0, []float32{1, 2}))
	checkVectors(t, v, map[int][]float32{0: {1, 2}}, []float32{2, 1})
}

func TestACancelledHybridSearchEnds(t *testing.T) {
	for _, holder := range holders {
		x := build(t, small(t)...)
		x.vectors.dim, x.vectors.held = holder.open(3).dim, holder.open(3).held
		putVectors(t, x, map[string][]float32{"github_search": axis(0, 3)})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := x.Search(ctx, Query{Text: wordless, Limit: 1, Vectors: [][]float32{axis(0, 3)}}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want that of the context", holder.name, err)
		}
	}
}

// Whatever is done in whatever order, the vectors are those of a plain map.
func TestVectorsAreAMap(t *testing.T) {
	for _, run := range []struct {
		name    string
		open    func(dim int) *vectors
		dim     int
		slots   int
		isCoded bool
	}{
		{"chromem", holders[0].open, 24, codedFrom / 2, false},
		{"coded", holders[1].open, 24, 700, true},
		{"coded, of a model's dimension", holders[1].open, 384, 60, true},
		{"across the switch", holders[0].open, 24, 2 * codedFrom, true},
	} {
		t.Run(run.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(run.dim), uint64(run.slots)))
			v, want := run.open(run.dim), map[int][]float32{}
			check := func() {
				t.Helper()
				checkVectors(t, v, want, randomUnit(random, run.dim), randomUnit(random, run.dim))
			}
			for step := range 8 * run.slots {
				slot := random.IntN(run.slots)
				// More is put than removed at first, and less later.
				if random.IntN(8*run.slots) > step {
					want[slot] = randomUnit(random, run.dim)
					must.Do(t, v.put(slot, slices.Clone(want[slot])))
				} else {
					delete(want, slot)
					v.remove(slot)
				}
				if step%97 == 0 {
					check()
				}
			}
			check()
			if _, isCoded := v.held.(*coded); isCoded != run.isCoded {
				t.Errorf("in the end the vectors are held by %T", v.held)
			}
		})
	}
}

// The vectors that are there when they move are there afterwards, and the one
// that made them move.
func TestTheSwitchLosesNothing(t *testing.T) {
	const dim = 16
	random := rand.New(rand.NewPCG(3, 4))
	v, want := &vectors{}, map[int][]float32{}
	for slot := 0; len(want) < codedFrom+3; slot += 1 + random.IntN(2) {
		want[slot] = randomUnit(random, dim)
		must.Do(t, v.put(slot, slices.Clone(want[slot])))
		_, isCoded := v.held.(*coded)
		if isCoded != (len(want) > codedFrom) {
			t.Fatalf("%d vectors are held by %T", len(want), v.held)
		}
		if len(want) >= codedFrom-1 {
			checkVectors(t, v, want, randomUnit(random, dim))
		}
	}
}

// From sharedFrom blocks on a scan is cut into parts for all processors.
func TestASharedScanComparesAll(t *testing.T) {
	const dim = 3
	random := rand.New(rand.NewPCG(5, 6))
	v, want := holders[1].open(dim), map[int][]float32{}
	for slot := range sharedFrom*blockSize + 70 {
		want[slot] = randomUnit(random, dim)
		must.Do(t, v.put(slot, want[slot]))
	}
	checkVectors(t, v, want, randomUnit(random, dim))
	// What is removed takes no memory: the rest moves together.
	for slot := range want {
		if slot%3 > 0 || slot < 5000 {
			v.remove(slot)
			delete(want, slot)
		}
	}
	checkVectors(t, v, want, randomUnit(random, dim))
	if blocks := len(v.held.(*coded).blocks); blocks != (len(want)+blockSize-1)/blockSize {
		t.Errorf("%d vectors are in %d blocks", len(want), blocks)
	}
}

// An index whose vectors are chosen by a test. No document shares a word with
// the query that alike asks, so that the vectors alone decide.
const wordless = "zyx"

// alike returns the names of what is similar to vector, most similar first.
func alike(t *testing.T, x *Index, vector []float32) []string {
	t.Helper()
	return names(search(t, x, Query{Text: wordless, Limit: 100, Vectors: [][]float32{vector}}))
}

func putVectors(t testing.TB, x *Index, vectors map[string][]float32) {
	t.Helper()
	for _, d := range x.Missing() {
		if v, ok := vectors[d.Name]; ok {
			must.Do(t, x.PutVectors([]Document{d}, [][]float32{v}))
		}
	}
}

func missing(x *Index) []string {
	out := []string{}
	for _, d := range x.Missing() {
		out = append(out, d.Name)
	}
	return out
}

func TestVectorsFollowTheirDocuments(t *testing.T) {
	a, b, c, d := axis(0, 4), axis(1, 4), axis(2, 4), axis(3, 4)
	raw := func(name, more string) Document {
		return docOf(t, "s", `{"name":"`+name+`","description":"About `+name+`"`+more+`}`, "")
	}
	about := func(d Document, text string) Document {
		d.ServerDescription = text
		return d
	}
	for _, test := range []struct {
		what    string
		changes func(x *Index) []error
		missing []string            // afterwards
		alike   map[string][]string // by document whose vector it was, what it finds now
	}{
		{"nothing changes", func(x *Index) []error { return nil }, nil,
			map[string][]string{"s_a": {"s_a"}, "s_b": {"s_b"}, "s_c": {"s_c"}}},
		{"another text drops it", func(x *Index) []error {
			return []error{x.Apply(t.Context(), []Document{doc(t, "s", "a", "Something else.")}, nil)}
		}, []string{"s_a"}, map[string][]string{"s_a": {}, "s_b": {"s_b"}}},
		{"another parameter drops it", func(x *Index) []error {
			return []error{x.Apply(t.Context(), []Document{raw("a", `,"inputSchema":{"properties":{"p":{}}}`)}, nil)}
		}, []string{"s_a"}, map[string][]string{"s_a": {}, "s_b": {"s_b"}}},
		{"what is not embedded keeps it", func(x *Index) []error {
			return []error{x.Apply(t.Context(), []Document{
				raw("a", `,"outputSchema":{"type":"object"}`),
				raw("b", `,"annotations":{"readOnlyHint":true}`),
				about(raw("c", ""), "A server."),
			}, nil)}
		}, nil, map[string][]string{"s_a": {"s_a"}, "s_b": {"s_b"}, "s_c": {"s_c"}}},
		{"the same again keeps it", func(x *Index) []error {
			return []error{x.Apply(t.Context(), []Document{raw("a", "")}, nil), x.Apply(t.Context(), []Document{raw("b", "")}, []string{"s_b"})}
		}, nil, map[string][]string{"s_a": {"s_a"}, "s_b": {"s_b"}}},
		{"what is gone takes it along", func(x *Index) []error {
			return []error{x.Apply(t.Context(), nil, []string{"s_a"})}
		}, nil, map[string][]string{"s_a": {}, "s_b": {"s_b"}}},
		{"what comes after does not inherit it", func(x *Index) []error {
			return []error{
				x.Apply(t.Context(), nil, []string{"s_a", "s_b"}),
				x.Apply(t.Context(), []Document{raw("e", ""), raw("f", ""), raw("a", "")}, nil),
			}
		}, []string{"s_a", "s_e", "s_f"}, map[string][]string{"s_a": {}, "s_b": {}, "s_c": {"s_c"}}},
		{"what comes as another goes does not inherit it", func(x *Index) []error {
			return []error{x.Apply(t.Context(), []Document{raw("e", "")}, []string{"s_a"})}
		}, []string{"s_e"}, map[string][]string{"s_a": {}, "s_b": {"s_b"}}},
		{"a change that failed keeps it", func(x *Index) []error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := x.Apply(ctx, []Document{raw("e", ""), doc(t, "s", "a", "Something else.")}, []string{"s_b"}); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want that of the context", err)
			}
			return []error{x.Apply(t.Context(), []Document{raw("f", ""), raw("g", "")}, nil)}
		}, []string{"s_f", "s_g"}, map[string][]string{"s_a": {"s_a"}, "s_b": {"s_b"}, "s_c": {"s_c"}}},
		{"batches that are folded keep it", func(x *Index) (errs []error) {
			for i := range 3 * maxPieces {
				errs = append(errs, x.Apply(t.Context(), []Document{raw(fmt.Sprint("more", i), "")}, []string{fmt.Sprint("s_more", i-1)}))
			}
			return errs
		}, []string{fmt.Sprint("s_more", 3*maxPieces-1)}, map[string][]string{"s_a": {"s_a"}, "s_b": {"s_b"}, "s_c": {"s_c"}}},
	} {
		t.Run(test.what, func(t *testing.T) {
			x := build(t, raw("a", ""), raw("b", ""), raw("c", ""))
			vectors := map[string][]float32{"s_a": a, "s_b": b, "s_c": c}
			putVectors(t, x, vectors)
			must.Do(t, errors.Join(test.changes(x)...))
			if got := missing(x); !slices.Equal(got, test.missing) {
				t.Errorf("missing: %v, want %v", got, test.missing)
			}
			if want := x.Len() - len(test.missing); x.Vectors() != want {
				t.Errorf("%d vectors, want %d", x.Vectors(), want)
			}
			for of, want := range test.alike {
				if got := alike(t, x, vectors[of]); !slices.Equal(got, want) {
					t.Errorf("the vector of %s finds %v, want %v", of, got, want)
				}
			}
			// Those that are missing take theirs.
			for _, name := range test.missing {
				putVectors(t, x, map[string][]float32{name: d})
			}
			if got := alike(t, x, d); !slices.Equal(got, test.missing) && len(got)+len(test.missing) > 0 {
				t.Errorf("the new vector finds %v, want %v", got, test.missing)
			}
			if x.Vectors() != x.Len() {
				t.Errorf("%d vectors in the end for %d documents", x.Vectors(), x.Len())
			}
		})
	}
}

func TestVectorsOfWhatWasAnotherDocumentAreLeftOut(t *testing.T) {
	x := build(t, doc(t, "s", "changed", "Before."), doc(t, "s", "gone", ""), doc(t, "s", "same", "Same."))
	before := x.Missing() // changed, gone, same
	must.Do(t, x.Apply(t.Context(), []Document{doc(t, "s", "changed", "After."), doc(t, "s", "same", "Same.")}, []string{"s_gone"}))
	must.Do(t, x.PutVectors(before, [][]float32{axis(0, 3), axis(1, 3), axis(2, 3)}))
	if got := missing(x); !slices.Equal(got, []string{"s_changed"}) || x.Vectors() != 1 {
		t.Errorf("missing: %v with %d vectors, want s_changed and 1", got, x.Vectors())
	}
	if got := alike(t, x, axis(2, 3)); !slices.Equal(got, []string{"s_same"}) {
		t.Errorf("the vector of the same text finds %v", got)
	}
	if got := alike(t, x, axis(0, 3)); len(got) != 0 {
		t.Errorf("the vector of the old text finds %v", got)
	}
}

func TestPutVectorsNamesTheOneThatDoesNotFit(t *testing.T) {
	x := build(t, doc(t, "s", "a", ""), doc(t, "s", "b", ""), doc(t, "s", "c", ""))
	err := x.PutVectors(x.Missing(), [][]float32{axis(0, 3), axis(0, 2), axis(2, 3)})
	if !errors.Is(err, ErrVector) || err.Error()[:3] != "s_b" {
		t.Errorf("error %v, want one of s_b that wraps ErrVector", err)
	}
	if got := missing(x); !slices.Equal(got, []string{"s_b", "s_c"}) {
		t.Errorf("missing: %v", got)
	}
	if got := alike(t, x, axis(0, 3)); !slices.Equal(got, []string{"s_a"}) {
		t.Errorf("found %v", got)
	}
}

func TestClosedIndexHasNoVectors(t *testing.T) {
	docs := small(t)
	x := build(t, docs...)
	putVectors(t, x, map[string][]float32{docs[0].Name: axis(0, 3)})
	must.Do(t, x.Close())
	if n, m := x.Vectors(), len(x.Missing()); n != 0 || m != 0 {
		t.Errorf("%d vectors, %d missing", n, m)
	}
	if err := x.PutVectors(docs[:1], [][]float32{axis(0, 3)}); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}

func TestLimitsAboveWhatThereIs(t *testing.T) {
	x := build(t, doc(t, "s", "a", ""), doc(t, "s", "b", ""), doc(t, "s", "c", ""))
	putVectors(t, x, map[string][]float32{"s_a": {3, 1}, "s_b": {2, 1}, "s_c": {1, 1}})
	for limit, want := range map[int]int{-1: 0, 0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 1000: 3} {
		got := names(search(t, x, Query{Text: wordless, Limit: limit, Vectors: [][]float32{{1, 0}}}))
		if !slices.Equal(got, []string{"s_a", "s_b", "s_c"}[:want]) {
			t.Errorf("limit %d: %v, want the first %d", limit, got, want)
		}
	}
}

// Vectors of queries are remembered and shared by those who ask the same.
func TestSearchLeavesTheQuerysVectorsAlone(t *testing.T) {
	x := build(t, small(t)...)
	putVectors(t, x, map[string][]float32{"github_search": {1, 2, 3}})
	mine := [][]float32{{0, 3, 4}, {7, 0, 0}}
	search(t, x, Query{Text: wordless, Limit: 3, Vectors: mine})
	if want := [][]float32{{0, 3, 4}, {7, 0, 0}}; fmt.Sprint(mine) != fmt.Sprint(want) {
		t.Errorf("the query's vectors are %v now, want %v", mine, want)
	}
}

func TestHybridSearchBesideChanges(t *testing.T) {
	x := build(t, small(t)...)
	random := rand.New(rand.NewPCG(1, 2))
	fill := func(seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		docs := x.Missing()
		values := make([][]float32, len(docs))
		for i := range values {
			values[i] = randomUnit(random, 8)
		}
		if err := x.PutVectors(docs, values); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	fill(0)
	query := Query{Text: "github_create_issue", Limit: 3, Explain: true, Vectors: [][]float32{randomUnit(random, 8), randomUnit(random, 8)}}
	var searches, writers sync.WaitGroup
	for range 4 {
		searches.Go(func() {
			for {
				found, err := x.Search(t.Context(), query)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || len(found.Hits) == 0 || found.Hits[0].Name != "github_create_issue" || found.Hits[0].Why == nil {
					t.Errorf("%v, %v", found, err)
					return
				}
			}
		})
	}
	for seed := range uint64(2) {
		writers.Go(func() {
			for i := range 40 {
				if fill(seed); i%10 == 9 {
					x.DropVectors()
				}
			}
		})
	}
	writers.Go(func() {
		for i := range 40 {
			changed := []Document{doc(t, "zoo", fmt.Sprint("feed", i), "Feed them."), doc(t, "zoo", "clock", fmt.Sprint("At ", i))}
			if err := x.Apply(t.Context(), changed, []string{fmt.Sprint("zoo_feed", i-3)}); err != nil {
				t.Error(err)
			}
		}
	})
	writers.Wait()
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	searches.Wait()
}

// However documents and vectors came, the answers are the same: to the last
// digit, unless there were once so many that they are coded, which rounds
// elsewhere.
func TestHybridAnswersDoNotDependOnHistory(t *testing.T) {
	const tools, dim = 150, 32
	random := rand.New(rand.NewPCG(7, 8))
	vectors := map[string][]float32{}
	var docs, others []Document
	for i := range tools {
		d := doc(t, fmt.Sprint("s", i%5), fmt.Sprint("tool", i), fmt.Sprintf("Say word%d and word%d.", random.IntN(20), random.IntN(20)))
		docs = append(docs, d)
		vectors[d.Name] = randomUnit(random, dim)
		if i%3 == 0 && i > 0 { // twins and ties
			vectors[d.Name] = vectors[docs[i-1].Name]
		}
	}
	for i := range 2 * codedFrom {
		d := doc(t, "other", fmt.Sprint("other", i), "Say word1.")
		others = append(others, d)
		vectors[d.Name] = randomUnit(random, dim)
	}
	shuffled := func() *Index {
		x := build(t)
		for _, i := range random.Perm(tools) {
			must.Do(t, x.Apply(t.Context(), docs[i:i+1], nil))
			if random.IntN(10) == 0 {
				putVectors(t, x, vectors)
			}
		}
		putVectors(t, x, vectors)
		return x
	}
	once := build(t, docs...)
	putVectors(t, once, vectors)
	codedOnce := build(t, others...)
	must.Do(t, codedOnce.Apply(t.Context(), docs, nil))
	putVectors(t, codedOnce, vectors)
	gone := make([]string, len(others))
	for i, d := range others {
		gone[i] = d.Name
	}
	must.Do(t, codedOnce.Apply(t.Context(), nil, gone))
	for _, test := range []struct {
		what string
		x    *Index
		slip float64 // of scores
	}{
		{"one by one", shuffled(), 0},
		{"one by one, in another order", shuffled(), 0},
		{"after many others, who are gone", codedOnce, 2 * weightVectors * exactly},
	} {
		for range 100 {
			q := Query{Text: fmt.Sprintf("say word%d and then say word%d too", random.IntN(20), random.IntN(20)), Limit: 10}
			for range QueryTexts(q.Text) {
				q.Vectors = append(q.Vectors, randomUnit(random, dim))
			}
			want, got := search(t, once, q), search(t, test.x, q)
			if !slices.EqualFunc(got, want, func(a, b Hit) bool {
				// With rounding, hits that are nearly as good may stand the other way round.
				return (a.Name == b.Name || test.slip > 0) && math.Abs(a.Score-b.Score) <= test.slip
			}) {
				t.Fatalf("%s: %q finds\n%v, built at once\n%v", test.what, q.Text, got, want)
			}
		}
	}
}
