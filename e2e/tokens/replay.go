package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// replayed is the text of every answer: some two hundred tokens.
var replayed = func() string {
	var items []string
	for i := range 12 {
		items = append(items, fmt.Sprintf(`{"id":%d,"name":"item %d"}`, i, i))
	}
	return `{"ok":true,"items":[` + strings.Join(items, ",") + `]}`
}()

// replay is an MCP server over in and out that lists the tools of a recorded one, with
// its instructions. Calls that have what the tool requires succeed. It ends with in.
func replay(server *recorded, in io.Reader, out io.Writer) error {
	required, structured := map[string][]string{}, map[string]any{}
	for _, raw := range server.Tools {
		var def struct {
			Name         string
			InputSchema  struct{ Required []string }
			OutputSchema json.RawMessage
		}
		_ = json.Unmarshal(raw, &def) // a strange schema requires nothing
		required[def.Name] = def.InputSchema.Required
		if value, valid := fill(def.OutputSchema, replayed, 1); valid {
			structured[def.Name] = value
		}
	}
	lines := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var request struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProtocolVersion string
				Name            string
				Arguments       map[string]json.RawMessage
			}
		}
		if json.Unmarshal(line, &request) != nil || request.ID == nil || request.Method == "" {
			continue
		}
		answer := map[string]any{"jsonrpc": "2.0", "id": request.ID}
		switch request.Method {
		case "initialize":
			result := map[string]any{"protocolVersion": request.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]any{"name": server.name, "version": "1.0.0"}}
			if server.Instructions != "" {
				result["instructions"] = server.Instructions
			}
			answer["result"] = result
		case "tools/list":
			answer["result"] = map[string]any{"tools": server.Tools}
		case "tools/call":
			names, known := required[request.Params.Name]
			text := replayed
			for _, name := range names {
				if request.Params.Arguments[name] == nil {
					text, known = "missing argument "+name, false
				}
			}
			result := map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}, "isError": !known}
			if value := structured[request.Params.Name]; known && value != nil {
				result["structuredContent"] = value
			}
			answer["result"] = result
		case "ping":
			answer["result"] = map[string]any{}
		default: // server/discover among them: it is a server of the legacy era
			answer["error"] = map[string]any{"code": -32601, "message": "no such method"}
		}
		if err := encoder.Encode(answer); err != nil {
			return err
		}
	}
}
