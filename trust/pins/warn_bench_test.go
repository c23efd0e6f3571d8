package pins

import (
	"encoding/json"
	"fmt"
	"testing"

	"toolfinch/tool"
)

// What the page Changes and toolfinch pins look at where one definition of 5,000 is held.
func BenchmarkWarn(b *testing.B) {
	var all []Definition
	for i := range 5000 {
		raw := fmt.Sprintf(`{"name":"tool_%d","description":"Does the work of kind %d for the department %d, and says so in some words that are like those of others.","inputSchema":{"type":"object","properties":{"what":{"type":"string","description":"What it is about"},"count":{"type":"integer"}},"required":["what"]}}`, i, i, i%50)
		all = append(all, Definition{tool.ID{Server: "many", Name: fmt.Sprintf("tool_%d", i)}, json.RawMessage(raw)})
	}
	for name, of := range map[string]func(tool.ID) bool{"all": nil, "one": func(id tool.ID) bool { return id.Name == "tool_7" }} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Warn(all, of)
			}
		})
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			looked.found = nil
			Warn(all, nil)
		}
	})
}
