package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

var benchSizes = []struct {
	name string
	docs int
}{{"1k", 1000}, {"5k", 5000}, {"20k", 20_000}, {"100k", 100_000}}

// benchData returns n documents and queries for them: annotated real tools
// where they are beside the repository, else made up ones.
func benchData(b *testing.B, n int) ([]Document, []string) {
	b.Helper()
	var docs []Document
	var queries []string
	if _, err := os.Stat(annotatedSets); err == nil {
		for _, set := range []string{"livemcp", "mcpreal"} {
			data := load(b, set)
			docs = append(docs, data.docs...)
			for _, q := range data.queries {
				queries = append(queries, q.Query)
			}
		}
		slices.SortFunc(docs, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
		docs = slices.CompactFunc(docs, func(a, b Document) bool { return a.Name == b.Name })
	} else {
		random := rand.New(rand.NewPCG(1, 2))
		text := func(n int) string {
			words := make([]string, n)
			for i := range words {
				words[i] = fmt.Sprint("word", int(random.ExpFloat64()*300))
			}
			return strings.Join(words, " ")
		}
		for i := range n {
			docs = append(docs, doc(b, fmt.Sprint("server", i/20), fmt.Sprint("tool_", i), text(60)))
		}
		for range 200 {
			queries = append(queries, text(12))
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	random.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	for known := len(docs); len(docs) < n; {
		// What there is recombined: the name of one tool, the rest of another.
		a, b := docs[random.IntN(known)], docs[random.IntN(known)]
		def := *b.Def
		def.ID = tool.ID{Server: fmt.Sprintf("%s%d", a.Def.ID.Server, len(docs)/known), Name: a.Def.ID.Name + fmt.Sprint(len(docs))}
		docs = append(docs, Document{Name: def.ID.String(), Def: &def})
	}
	return docs[:n:n], queries
}

// withVectors gives every document a vector. What they say does not matter for
// the time that is taken.
func withVectors(b *testing.B, x *Index) {
	b.Helper()
	random := rand.New(rand.NewPCG(5, 6))
	missing := x.Missing()
	for chunk := range slices.Chunk(missing, 1000) {
		values := make([][]float32, len(chunk))
		for i := range values {
			values[i] = randomVector(random)
		}
		must.Do(b, x.PutVectors(chunk, values))
	}
}

func randomVector(random *rand.Rand) []float32 {
	v := make([]float32, 384)
	for i := range v {
		v[i] = float32(random.NormFloat64())
	}
	return v
}

// BenchmarkHybridSearch leaves out how long a query takes to be embedded.
func BenchmarkHybridSearch(b *testing.B) {
	for _, size := range benchSizes {
		docs, queries := benchData(b, size.docs)
		x := build(b, docs...)
		withVectors(b, x)
		random := rand.New(rand.NewPCG(7, 8))
		vectors := make([][][]float32, len(queries))
		for i, q := range queries {
			for range QueryTexts(q) {
				vectors[i] = append(vectors[i], randomVector(random))
			}
		}
		b.Run(size.name, func(b *testing.B) {
			took := make([]time.Duration, 0, 10_000)
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				n := i % len(queries)
				search(b, x, Query{Text: queries[n], Limit: 5, Vectors: vectors[n]})
				took = append(took, time.Since(start))
			}
			reportPercentiles(b, took)
		})
	}
}

// BenchmarkPutVectors gives 256 documents their vectors while 16 callers search, and changes
// one document meanwhile.
func BenchmarkPutVectors(b *testing.B) {
	docs, queries := benchData(b, 100_000)
	x := build(b, docs...)
	withVectors(b, x)
	snapshot := x.snapshot()
	random := rand.New(rand.NewPCG(9, 10))
	values := make([][]float32, 256)
	for i := range values {
		values[i] = randomVector(random)
	}
	ctx, stop := context.WithCancel(b.Context())
	var callers sync.WaitGroup
	defer callers.Wait()
	defer stop()
	for caller := range 16 {
		vectors := [][]float32{randomVector(random)}
		callers.Go(func() {
			for n := caller; ctx.Err() == nil; n++ {
				_, _ = snapshot.Search(ctx, Query{Text: queries[n%len(queries)], Limit: 5, Vectors: vectors})
			}
		})
	}
	var put, update time.Duration // in all; an update begins while vectors are put
	for n := 0; b.Loop(); n++ {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			began := time.Now()
			if err := x.PutVectors(docs[1000:1256], values); err != nil {
				b.Error(err)
			}
			put += time.Since(began)
		}()
		for x.write.TryLock() { // until PutVectors has it, or is done
			x.write.Unlock()
			select {
			case <-ended:
			case <-time.After(10 * time.Microsecond):
				continue
			}
			break
		}
		other := docs[n%1000]
		other.ServerDescription = fmt.Sprint("anew ", n)
		began := time.Now()
		must.Do(b, x.Apply(ctx, []Document{other}, nil))
		update += time.Since(began)
		<-ended
	}
	b.ReportMetric(put.Seconds()*1000/float64(b.N), "ms/put")
	b.ReportMetric(update.Seconds()*1000/float64(b.N), "ms/update")
}

func BenchmarkBuild(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			docs, _ := benchData(b, size.docs)
			for b.Loop() {
				x := must.Get(Build(b.Context(), docs))(b)
				must.Do(b, x.Close())
			}
		})
	}
}

// BenchmarkApply replaces a server of 50 tools again and again.
func BenchmarkApply(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			docs, _ := benchData(b, size.docs)
			x := build(b, docs...)
			took := make([]time.Duration, 0, 1000)
			for n := 0; b.Loop(); n = (n + 50) % (len(docs) - 50) {
				start := time.Now()
				must.Do(b, x.Apply(b.Context(), docs[n:n+50], nil))
				took = append(took, time.Since(start))
			}
			reportPercentiles(b, took)
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	for _, size := range benchSizes {
		docs, queries := benchData(b, size.docs)
		x := build(b, docs...)
		run := func(name string, x *Index) {
			b.Run(name, func(b *testing.B) {
				took := make([]time.Duration, 0, 10_000)
				for i := 0; b.Loop(); i++ {
					start := time.Now()
					search(b, x, Query{Text: queries[i%len(queries)], Limit: 5})
					took = append(took, time.Since(start))
				}
				reportPercentiles(b, took)
			})
		}
		run(size.name, x)
		for n := 0; len(x.pieces) < maxPieces; n += 50 {
			other := slices.Clone(docs[n : n+50])
			for i := range other {
				other[i].ServerDescription += " anew"
			}
			must.Do(b, x.Apply(b.Context(), other, nil))
		}
		run(size.name+"/most-batches", x)
	}
}

// BenchmarkSearchLong asks with 10 kB of text.
func BenchmarkSearchLong(b *testing.B) {
	docs, queries := benchData(b, 5000)
	x := build(b, docs...)
	long := rawjson.Head(strings.Join(queries, ". "), 10_000)
	for b.Loop() {
		search(b, x, Query{Text: long, Limit: 5})
	}
}

// BenchmarkMemory reports what an index keeps beside the definitions.
func BenchmarkMemory(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(size.name, func(b *testing.B) {
			docs, _ := benchData(b, size.docs)
			for b.Loop() {
				before := heap()
				x := build(b, docs...)
				b.ReportMetric(float64(heap()-before)/1e6, "MB")
				runtime.KeepAlive(x)
			}
			runtime.KeepAlive(docs)
		})
	}
}

// heap is what is in use once pools, which outlive a collection, are empty.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func reportPercentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
