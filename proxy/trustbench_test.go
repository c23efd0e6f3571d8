package proxy_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/proxy"
	"toolfinch/trust/audit"
)

// trusting is a way to serve whose cost is measured beside that of another.
type trusting struct {
	name   string
	config func(*configs.Config)
	audit  bool
}

// BenchmarkTrust measures what each part of trust adds to a call of 100 bytes over HTTP.
// The ways take turns, call by call, so that a machine that slows down slows all of them: p50 of
// each, and its difference to the first in µs, of one run.
func BenchmarkTrust(b *testing.B) {
	up := newUpstream(b, 1)
	ways := []trusting{
		{name: "today"},
		{name: "again"}, // the noise
		{name: "audit", audit: true},
	}
	text := map[string]string{"text": strings.Repeat("x", 100)}
	sessions := make([]*session, len(ways))
	for i, way := range ways {
		config := &configs.Config{DataDir: b.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40}
		if way.config != nil {
			way.config(config)
		}
		var options []proxy.Option
		if way.audit {
			settings := audit.Settings{File: filepath.Join(b.TempDir(), audit.FileName), MaxSize: audit.DefaultMaxSize, MaxAge: audit.DefaultMaxAge}
			log, err := audit.Open(settings, auditKey, nil, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			options = append(options, proxy.WithAudit(log, settings))
		}
		sessions[i] = newSession(b, serveConfig(b, config, 1, options, up)+"/mcp")
		for range 50 {
			if _, err := sessions[i].call("up0_echo", text); err != nil {
				b.Fatal(err)
			}
		}
	}
	times := make([][]time.Duration, len(ways))
	b.ResetTimer()
	for n := range b.N {
		for i := range ways {
			i = (i + n) % len(ways)
			start := time.Now()
			if _, err := sessions[i].call("up0_echo", text); err != nil {
				b.Fatal(err)
			}
			times[i] = append(times[i], time.Since(start))
		}
	}
	b.StopTimer()
	p50 := make([]float64, len(ways))
	for i, way := range ways {
		slices.Sort(times[i])
		p50[i] = float64(times[i][len(times[i])/2].Nanoseconds()) / 1000
		b.ReportMetric(p50[i]-p50[0], way.name+"-µs")
	}
	b.ReportMetric(p50[0], "p50-µs")
	b.ReportMetric(0, "ns/op")
}
