package proxy

import (
	"encoding/json"
	"log/slog"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/upstream"
)

func TestAListThatSaysNothingNewChangesNothing(t *testing.T) {
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto}
	config.Servers = []upstream.Settings{{Name: "calc", URL: "http://127.0.0.1:9/mcp"}}
	p := must.Get(Open(t.Context(), config, WithLogger(slog.New(slog.DiscardHandler))))(t)
	defer p.Close()
	list := func(description, instructions string) (*View, []*tool.Def) {
		t.Helper()
		def := must.Get(tool.ParseDef("calc", json.RawMessage(`{"name":"add","description":"`+description+`"}`)))(t)
		p.loop.take(t.Context(), []upstream.Change{{Server: "calc", Defs: []*tool.Def{def}, Instructions: instructions, Capabilities: json.RawMessage(`{"tools":{}}`)}})
		return p.main(), p.known.byServer["calc"].defs
	}
	first, before := list("Adds", "")
	same, again := list("Adds", "")
	if same != first || again[0] != before[0] {
		t.Error("an equal list makes another view, or is held twice")
	}
	if other, _ := list("Adds", "Count"); other == same || other.Catalog.Servers()[0].Instructions == "Count" {
		t.Error("other instructions wait for approval, in another view")
	}
	if other, _ := list("Subtracts", ""); other == same {
		t.Error("another definition makes no other view")
	}
}
