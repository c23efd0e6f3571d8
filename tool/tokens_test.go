package tool

import (
	"runtime"
	"strings"
	"testing"
)

func BenchmarkCountTokens(b *testing.B) {
	var m0, m1 runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m0)
	CountTokens([]byte("x"))
	runtime.GC()
	runtime.ReadMemStats(&m1)
	b.Logf("vocab %.1f MB", float64(m1.HeapAlloc-m0.HeapAlloc)/1e6)
	for name, text := range map[string]string{
		"tool": strings.Repeat(`{"name":"create_issue","description":"Create a new issue in a GitHub repository"} `, 12),
		"blob1M": strings.Repeat("aB3x9Qz", 150000),
		"a1M": strings.Repeat("a", 1<<20),
		"space1M": strings.Repeat(" ", 1<<20),
		"cjk1M": strings.Repeat("漢", 350000),
		"punct1M": strings.Repeat("!", 1<<20),
		"mixed1M": strings.Repeat("ab\x00\n", 1<<18),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				CountTokens([]byte(text))
			}
		})
	}
}
