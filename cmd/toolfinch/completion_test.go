package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/store"
	"toolfinch/tool"
)

// BenchmarkCompletion is a key press after the ID of a tool, with 5,000 tools in
// the store.
func BenchmarkCompletion(b *testing.B) {
	dir := b.TempDir()
	config := "mcp_servers:\n"
	db := must.Get(store.Open(context.Background(), filepath.Join(dir, "data"), slog.New(slog.DiscardHandler)))(b)
	for s := range 10 {
		name := fmt.Sprintf("server%d", s)
		config += fmt.Sprintf("  %s: {command: no-such-program}\n", name)
		var defs []*tool.Def
		for t := range 500 {
			def := must.Get(tool.ParseDef(name, fmt.Appendf(nil,
				`{"name":"tool%d","description":"%s","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}}}`, t, strings.Repeat("What it does. ", 50))))(b)
			defs = append(defs, def)
		}
		must.Get(db.PutServer(context.Background(), store.Upstream{Name: name}, defs, nil))(b)
	}
	must.Do(b, db.Close())
	file := filepath.Join(dir, "toolfinch.yaml")
	must.Do(b, os.WriteFile(file, []byte(config), 0o600))
	b.Setenv("MCPPROXY_DATA_DIR", filepath.Join(dir, "data"))
	for b.Loop() {
		var out strings.Builder
		if code := run([]string{"__complete", "call", "--config", file, "server7.tool77", "--"}, strings.NewReader(""), &out, io.Discard); code != 0 || !strings.Contains(out.String(), "--query\n") {
			b.Fatalf("exit code %d, printed %s", code, out.String())
		}
	}
}
