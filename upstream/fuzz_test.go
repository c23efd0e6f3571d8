package upstream

import (
	"encoding/json"
	"testing"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// Whatever a page of a list has, each of its definitions is either taken in, once,
// or a fault, and what is said of faults is bounded.
func FuzzList(f *testing.F) {
	for i, seed := range []string{
		`{"tools":[{"name":"a"},{"name":"a"},{"name":"b","title":5},7,null,{"inputSchema":{}}],"ttlMs":1e300,"cacheScope":"public"}`,
		`{"prompts":[{"name":"a","arguments":null}],"ttlMs":-1}`,
		`{"resources":[{"uri":"x:1"},{"uri":"x:1","name":"n"}],"nextCursor":7}`,
		`{"resourceTemplates":[{"uriTemplate":"x:{a}"}],"ttlMs":"x"}`,
		`{"tools":[{"name":"a","inputSchema":{"properties":{"b":{"type":"string","x-mcp-header":"B"}}}}]}`,
	} {
		f.Add(i, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, n int, page []byte) {
		if !json.Valid(page) {
			return
		}
		kind := tool.Kinds[max(n%len(tool.Kinds), 0)]
		var items []json.RawMessage
		if json.Unmarshal(rawjson.Member(page, listMethods[kind].member), &items) != nil {
			return
		}
		var all listing
		in := intake{over: link{Conn: &conn.Conn{Era: EraModern}}, server: "s", kind: kind, seen: map[string]bool{}, listing: &all}
		for _, item := range items {
			in.take(item)
		}
		if len(all.defs)+all.faults.LeftOut != len(items) || all.faults.Mended > len(all.defs) || len(all.faults.Described) > maxFaults {
			t.Fatalf("%d items: %d definitions, faults %+v", len(items), len(all.defs), all.faults)
		}
		seen := map[string]bool{}
		for _, def := range all.defs {
			if seen[def.ID.Name] || def.ID.Server != "s" {
				t.Fatalf("%s is there twice, or of another server", def.ID)
			}
			seen[def.ID.Name] = true
		}
		for _, fault := range all.faults.Described {
			if fault.Text == "" || len(fault.Text) > 10_000 || len(fault.Name) > 400 {
				t.Fatalf("fault %+v", fault)
			}
		}
		if hint := cacheHint(page); hint != nil && hint.TTL < 0 {
			t.Fatalf("it may be kept %s", hint.TTL)
		}
	})
}
