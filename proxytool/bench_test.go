package proxytool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/proxytool"
	"toolfinch/tool"
)

func BenchmarkCall(b *testing.B) {
	for _, size := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			source := unlogged{&shelf{answers: map[string]string{"x": `{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}]}`}}}
			run(b, source, `{"action":"call","type":"tool","path":"x","args":{"a":1}}`)
		})
	}
}

func BenchmarkList(b *testing.B) {
	raw := make([]string, 1000)
	for i := range raw {
		raw[i] = fmt.Sprintf(`{"name":"t%03d","description":"%s","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`, i, strings.Repeat("word ", 60))
	}
	source := &shelf{items: map[proxytool.Type][]proxytool.Item{proxytool.TypeTool: items(raw...)}}
	b.Run("all of 1000", func(b *testing.B) { run(b, source, `{"action":"list","type":"tool"}`) })
	b.Run("20 of 1000", func(b *testing.B) { run(b, source, `{"action":"list","type":"tool","limit":20,"offset":500}`) })
}

// unlogged is a shelf that does not remember its calls.
type unlogged struct{ *shelf }

func (u unlogged) Call(_ context.Context, _ *tool.Call, _ proxytool.Type, path string, _ json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(u.answers[path]), nil
}

func run(b *testing.B, source proxytool.Source, arguments string) {
	handler := proxytool.New("proxy", source, nil).Handler
	call := &tool.Call{Name: "proxy", Arguments: json.RawMessage(arguments)}
	b.ReportAllocs()
	for b.Loop() {
		must.Get(handler(b.Context(), call))(b)
	}
}
