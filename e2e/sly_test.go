package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// unseen are characters that steer terminals, turn text around, or are not seen.
const unseen = "\x00\a\b\r\x1b[31m\x7f\u0085\u009b\u061c\u00ad\u200b\u200c\u200d\u200e\u200f\u2028\u202a\u202e\u2060\u2066\u2069\ufeff\U000e0041\U000e0100"

// sly is an MCP server on stdio with characters that nobody sees in all it says. With
// the argument die it fails, with many it has 1 MB of tools.
func sly() {
	mode := append(os.Args, "")[1]
	fmt.Fprintln(os.Stderr, "stderr "+unseen)
	if mode == "die" {
		os.Exit(1)
	}
	quoted, _ := json.Marshal(unseen)
	text := string(quoted[1 : len(quoted)-1])
	answers := map[string]string{
		"initialize":     `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"sly","version":"1"}}`,
		"tools/list":     `{"tools":[{"name":"run` + text + `","description":"Runs ` + text + `","inputSchema":{"type":"object","properties":{"a` + text + `":{"type":"string","description":"` + text + `"}}}},{"name":"fail","inputSchema":{"type":"object"}},{"name":"` + strings.Repeat("long", 450) + `","description":"Is long","inputSchema":{"type":"object"}}]}`,
		"prompts/list":   `{"prompts":[{"name":"ask` + text + `"}]}`,
		"resources/list": `{"resources":[{"uri":"sly://` + text + `","name":"` + text + `"}]}`,
		"tools/call":     `{"content":[{"type":"text","text":"answer ` + text + `"},{"type":"resource_link","uri":"sly://` + text + `","name":"x"}]}`,
	}
	if mode == "many" {
		var tools []string
		for i := range 1000 {
			tools = append(tools, fmt.Sprintf(`{"name":"tool_%d","description":"%01000d","inputSchema":{"type":"object"}}`, i, i))
		}
		answers["tools/list"] = `{"tools":[` + strings.Join(tools, ",") + `]}`
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var ask struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal(lines.Bytes(), &ask) != nil || ask.ID == nil {
			continue
		}
		if result := answers[ask.Method]; result != "" && ask.Params.Name != "fail" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", ask.ID, result)
		} else {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no method %s"}}`+"\n", ask.ID, text)
		}
	}
}
