package client

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/proxytool"
)

// maxPages bounds a list that its server ends nowhere.
const maxPages = 1000

var errEndless = fmt.Errorf("the list has more than %d pages", maxPages)

// detect returns the name of the proxy tool: the tool of the name wanted, else
// the first one listed with the parameters of a proxy tool. trip is ctx's.
func detect(ctx context.Context, session *client.Client, trip *trip, wanted string) (string, error) {
	var looksRight string
	seen := map[mcp.Cursor]bool{}
	for request := (mcp.ListToolsRequest{}); ; {
		_, err := session.ListToolsByPage(ctx, request)
		if trip.raw == nil { // an odd tool among them may be no error of the list
			return "", fmt.Errorf("list tools: %w", err)
		}
		for def := range rawjson.Elements(rawjson.Member(trip.raw, "tools")) {
			name := rawjson.Text(rawjson.Member(def, "name"))
			schema := rawjson.Member(def, "inputSchema")
			if name == wanted && (wanted != proxytool.DefaultName || hasParameters(schema)) {
				return name, nil
			}
			if looksRight == "" && isProxySchema(schema) {
				looksRight = name
			}
		}
		next := mcp.Cursor(rawjson.Text(rawjson.Member(trip.raw, "nextCursor")))
		if next == "" || seen[next] {
			break
		}
		if seen[next] = true; len(seen) >= maxPages {
			return "", fmt.Errorf("list tools: %w", errEndless)
		}
		request.Params.Cursor = next
	}
	if looksRight == "" {
		return "", fmt.Errorf("%w: it lists neither a tool named %q nor one with the parameters action (list, info, call), type (tool, resource, prompt) and path", ErrNoProxyTool, wanted)
	}
	return looksRight, nil
}

// hasParameters keeps other tools of the usual name out: "proxy" is what
// tools of HTTP proxies are called too.
func hasParameters(schema []byte) bool {
	properties := rawjson.Member(schema, "properties")
	for _, name := range []string{"action", "type", "path"} {
		if rawjson.Member(properties, name) == nil {
			return false
		}
	}
	return true
}

func isProxySchema(schema []byte) bool {
	properties := rawjson.Member(schema, "properties")
	return hasParameters(schema) &&
		covers(choices(schema, rawjson.Member(properties, "action"), 0),
			string(proxytool.ActionList), string(proxytool.ActionInfo), string(proxytool.ActionCall)) &&
		covers(choices(schema, rawjson.Member(properties, "type"), 0),
			string(proxytool.TypeTool), string(proxytool.TypeResource), string(proxytool.TypePrompt))
}

func covers(choices []string, wanted ...string) bool {
	for _, w := range wanted {
		if !slices.Contains(choices, w) {
			return false
		}
	}
	return true
}

// maxNesting bounds how deep choices looks: references can form a circle.
const maxNesting = 4

// choices returns the strings that a schema enumerates, by itself, in one of its
// alternatives, or in a definition of the root that it refers to.
func choices(root, schema []byte, depth int) []string {
	if depth > maxNesting {
		return nil
	}
	var out []string
	for value := range rawjson.Elements(rawjson.Member(schema, "enum")) {
		out = append(out, rawjson.Text(value))
	}
	if value := rawjson.Member(schema, "const"); value != nil {
		out = append(out, rawjson.Text(value))
	}
	for _, combined := range []string{"anyOf", "oneOf", "allOf"} {
		for alternative := range rawjson.Elements(rawjson.Member(schema, combined)) {
			out = append(out, choices(root, alternative, depth+1)...)
		}
	}
	if path, ok := strings.CutPrefix(rawjson.Text(rawjson.Member(schema, "$ref")), "#/"); ok {
		at := root
		for step := range strings.SplitSeq(path, "/") {
			at = rawjson.Member(at, step)
		}
		out = append(out, choices(root, at, depth+1)...)
	}
	return out
}
