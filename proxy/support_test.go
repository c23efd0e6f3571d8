package proxy_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/internal/await"
)

// eventually waits for the condition.
func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	await.True(t, condition)
}

// percentiles runs op b.N times from a number of callers.
func percentiles(b *testing.B, callers int, op func() error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, callers)
	var running sync.WaitGroup
	b.ResetTimer()
	for i := range callers {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				start := time.Now()
				if err := op(); err != nil {
					b.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(start))
			}
		})
	}
	running.Wait()
	b.StopTimer()
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) == 0 {
		return
	}
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "calls/s")
}
