package index

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
)

func benchDocs(b testing.TB, n int) []Document {
	var docs []Document
	for _, set := range []string{"livemcp", "mcpreal", "toolbench"} {
		docs = append(docs, load(b, set).docs...)
	}
	seen := map[string]bool{}
	docs = slices.DeleteFunc(docs, func(d Document) bool {
		dup := seen[d.Name]
		seen[d.Name] = true
		return dup
	})
	return docs[:n]
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		docs := benchDocs(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				x, err := Build(context.Background(), docs)
				if err != nil {
					b.Fatal(err)
				}
				x.Close()
			}
		})
	}
}

func BenchmarkSearch(b *testing.B) {
	queries := load(b, "livemcp").queries
	for _, n := range []int{1000, 5000} {
		docs := benchDocs(b, n)
		var m0, m1 runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m0)
		x, err := Build(context.Background(), docs)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&m1)
		b.Logf("%d docs: heap %.1f MB", n, float64(m1.HeapAlloc-m0.HeapAlloc)/1e6)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var took []time.Duration
			i := 0
			for b.Loop() {
				start := time.Now()
				if _, err := x.Search(context.Background(), Query{Text: queries[i%len(queries)].Query, Limit: 5}); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				i++
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
		})
		runtime.KeepAlive(docs)
		x.Close()
	}
}
