package proxy_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/trust/pins"
)

// eventually waits for the condition.
func eventually(t testing.TB, condition func() bool) {
	t.Helper()
	await.True(t, condition)
}

// emptyStore is a data directory that nothing was stored in. Its end is TestMain's.
var emptyStore = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "toolfinch-empty-store-"); err != nil {
		return "", err
	}
	s, err := store.Open(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err == nil {
		err = s.Close()
	}
	return dir, err
})

// folder is a data directory of a test. Its store is a copy: to make one takes longer than most tests.
func folder(t testing.TB) string {
	t.Helper()
	from, err := emptyStore()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !file.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, file.Name())
		content, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		info, infoErr := file.Info()
		must.Do(t, errors.Join(err, infoErr))
		if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil { // as of the note that it was checked
			t.Fatal(err)
		}
	}
	return dir
}

// opened opens a proxy. Its end is the caller's.
func opened(t testing.TB, config *configs.Config, options ...proxy.Option) *proxy.Proxy {
	t.Helper()
	p := must.Get(proxy.Open(t.Context(), config, append(options, proxy.WithPrograms(programs))...))(t)
	return p
}

// running is a proxy that serves HTTP at url until the test ends.
func running(t testing.TB, config *configs.Config, options ...proxy.Option) (p *proxy.Proxy, url string) {
	t.Helper()
	p = opened(t, config, options...)
	return p, run(t, p)
}

// ready is running, once the proxy knows what its servers have.
func ready(t testing.TB, config *configs.Config, options ...proxy.Option) (p *proxy.Proxy, url string) {
	t.Helper()
	p, url = running(t, config, options...)
	await.Value(t, p.Ready())
	return p, url
}

// changing lets the servers of a configuration change their definitions: many tests have
// them do it, and are about other things. What becomes of changes by default is in
// held_test.go.
func changing(config *configs.Config) *configs.Config {
	config.Changes = map[string]pins.Mode{}
	for _, s := range config.Servers {
		config.Changes[s.Name] = pins.Allow
	}
	return config
}

// openWorkspace opens a workspace that learns. Its end is the caller's.
func openWorkspace(t testing.TB, config *configs.Config, options ...proxy.Option) *proxy.Workspace {
	t.Helper()
	w := must.Get(proxy.OpenWorkspace(t.Context(), config, options...))(t)
	if durable, err := w.Learn(t.Context()); !durable || err != nil {
		t.Fatalf("Learn = %t, %v", durable, err)
	}
	return w
}

// learn brings what servers have into the store of a configuration.
func learn(t testing.TB, config *configs.Config) {
	t.Helper()
	w := openWorkspace(t, config)
	for _, row := range w.Refresh(t.Context(), nil) {
		if row.Err != nil || row.Lost != nil {
			t.Fatal(row)
		}
	}
	must.Do(t, w.Close())
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

// unknownID is how the error begins for an ID that no tool has: one that cannot be a
// name, or one that is none.
func unknownID(id string) string {
	if regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$|^[a-zA-Z0-9][a-zA-Z0-9_./@: -]*[.:][^\s\pC]+$`).MatchString(id) {
		return "Unknown tool: " + id
	}
	return "Invalid tool ID format: " + id
}
