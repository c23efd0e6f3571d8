package proxy

import (
	"io"
	"log/slog"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/telemetry"
	"toolfinch/tool"
)

// BenchmarkObserver is what the observer adds to a call: without a log, with one as text, and
// as JSON.
func BenchmarkObserver(b *testing.B) {
	for name, log := range map[string]*slog.Logger{
		"discard": slog.New(slog.DiscardHandler), "text": slog.New(slog.NewTextHandler(io.Discard, nil)), "json": slog.New(slog.NewJSONHandler(io.Discard, nil)),
	} {
		b.Run(name, func(b *testing.B) {
			o := newObserver(auditor{}, log)
			s := subject{kind: identity.EventCall, view: "default", tool: &tool.Tool{Def: &tool.Def{ID: tool.ID{Server: "up0", Name: "echo"}}}}
			call := &tool.Call{Name: "up0_echo", Arguments: []byte(`{"text":"x"}`), Request: []byte("17"), Session: "0123456789abcdef0123456789abcdef", Client: &tool.Client{Name: "agent 1.0"}}
			ctx := identity.WithSource(b.Context(), identity.Source{Address: "127.0.0.1", Transport: "http"})
			b.ReportAllocs()
			for b.Loop() {
				ctx, running := o.feed.Begin(ctx, s.operation(ctx, call))
				_, end := telemetry.Start(ctx, telemetry.StageUpstream, "up0.echo")
				end(nil)
				o.finished(ctx, running.End(identity.Success, "", 100))
			}
		})
	}
}
