package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/schema"
)

// sets are the catalogues, by the number of their tools: files of recorded servers. Each
// begins with those that people have first.
var sets = map[int][]string{
	10:   {"modelcontextprotocol__server-memory", "modelcontextprotocol__server-sequential-thinking"},
	31:   basic,
	89:   slices.Concat(basic, []string{"modelcontextprotocol__server-github", "playwright__mcp", "modelcontextprotocol__server-google-maps"}),
	163:  slices.Concat(basic, []string{"modelcontextprotocol__server-github", "playwright__mcp", "notionhq__notion-mcp-server"}, many),
	480:  large,
	1002: slices.Concat(large, []string{"azure__mcp", "zereight__mcp-gitlab", "chrome-devtools-mcp", "cyanheads__git-mcp-server", "firecrawl-mcp"}),
}

var (
	basic = []string{"modelcontextprotocol__server-filesystem", "modelcontextprotocol__server-memory", "modelcontextprotocol__server-slack"}
	many  = []string{"google-cloud__storage-mcp", "modelcontextprotocol__server-everything", "browserbasehq__mcp-server-browserbase",
		"modelcontextprotocol__server-gitlab", "google-cloud__cloud-run-mcp", "modelcontextprotocol__server-brave-search"}
	large = slices.Concat(basic, []string{"playwright__mcp", "notionhq__notion-mcp-server", "digitalocean__mcp", "github.com__grafana__mcp-grafana",
		"modelcontextprotocol__server-github", "cloudflare__mcp-server-cloudflare", "mcp-server-kubernetes", "n8n-mcp"})
)

// recorded is a server's file: what it said of itself and its tools.
type recorded struct {
	name string // as users call it
	file string

	Instructions string
	Tools        []json.RawMessage
}

// need is a tool that a task needs, and what a model knows of it before it has seen it.
type need struct {
	server, tool string
	query        string // how the model asks for it
	arguments    map[string]any
}

// exposed is what toolfinch calls the tool.
func (n *need) exposed() string { return n.server + "_" + n.tool }

func readSet(folder string, tools int) (all []recorded, err error) {
	count := 0
	for _, file := range sets[tools] {
		r, err := readRecorded(filepath.Join(folder, file+".json"))
		if err != nil {
			return nil, err
		}
		all = append(all, *r)
		count += len(r.Tools)
	}
	if count != tools {
		return nil, fmt.Errorf("the set of %d tools has %d", tools, count)
	}
	return all, nil
}

var notInName = regexp.MustCompile("[^a-z]")

func readRecorded(file string) (*recorded, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	name := strings.TrimSuffix(filepath.Base(file), ".json")
	_, after, scoped := strings.Cut(name, "__")
	if scoped {
		name = after
	}
	name = strings.NewReplacer("server-", "", "mcp", "").Replace(name)
	r := &recorded{name: notInName.ReplaceAllString(name, ""), file: file}
	if r.name == "" { // a server that is called MCP
		r.name = notInName.ReplaceAllString(strings.Split(filepath.Base(file), "__")[0], "")
	}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

var plainName = regexp.MustCompile("^[A-Za-z0-9_-]{1,40}$")

// choose returns n needs out of the tools that have a description and a name for every
// agent that no other has, and for which a valid call is at hand. A query is the first ten words of the
// description.
func choose(servers []recorded, n int, seed uint64) []*need {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	var all []*need
	named := map[string]int{} // tools of this name
	for _, server := range servers {
		for _, raw := range server.Tools {
			var def struct {
				Name, Description string
				InputSchema       json.RawMessage
				OutputSchema      json.RawMessage
			}
			if json.Unmarshal(raw, &def) != nil || !plainName.MatchString(def.Name) || def.Description == "" {
				continue
			}
			named[def.Name]++
			words := strings.Fields(def.Description)
			arguments, valid := fill(def.InputSchema, "abc", 0)
			answer, answered := fill(def.OutputSchema, replayed, 1)
			if valid && (def.OutputSchema == nil || answered && strings.Contains(fmt.Sprint(answer), "item 11")) {
				all = append(all, &need{server.name, def.Name, strings.Join(words[:min(10, len(words))], " "), arguments})
			}
		}
	}
	all = slices.DeleteFunc(all, func(n *need) bool { return named[n.tool] > 1 })
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// fill makes a value of an object's schema: what is required, in its simplest form, with
// text for strings and so many items in arrays at least. It reports whether it is valid.
func fill(raw json.RawMessage, text string, items int) (value map[string]any, valid bool) {
	var root map[string]any
	if json.Unmarshal(raw, &root) != nil {
		return nil, false
	}
	value, _ = simplest(root, text, items).(map[string]any)
	encoded, err := json.Marshal(value)
	if err != nil || value == nil {
		return nil, false
	}
	violations, err := schema.NewCache().Check(context.Background(), "", raw, encoded)
	return value, err == nil && len(violations) == 0
}

func simplest(s map[string]any, text string, least int) any {
	if value, ok := s["const"]; ok {
		return value
	}
	if values, _ := s["enum"].([]any); len(values) > 0 {
		return values[0]
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if branches, _ := s[key].([]any); len(branches) > 0 {
			branch, _ := branches[0].(map[string]any)
			return simplest(branch, text, least)
		}
	}
	kind, _ := s["type"].(string)
	if kinds, _ := s["type"].([]any); len(kinds) > 0 {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "array":
		if s["minItems"] != nil {
			least = max(1, least)
		}
		value := []any{}
		for items, _ := s["items"].(map[string]any); len(value) < least; {
			value = append(value, simplest(items, "item 11", least))
		}
		return value
	case "object":
		value := map[string]any{}
		required, _ := s["required"].([]any)
		properties, _ := s["properties"].(map[string]any)
		for _, name := range required {
			if name, ok := name.(string); ok {
				property, _ := properties[name].(map[string]any)
				value[name] = simplest(property, text, least)
			}
		}
		return value
	}
	format, _ := s["format"].(string)
	return cmp.Or(formats[format], text)
}

// formats are texts that clients take for such.
var formats = map[string]string{"uuid": "00000000-0000-4000-8000-000000000000", "uri": "https://example.com/", "email": "a@example.com",
	"date": "2026-01-01", "date-time": "2026-01-01T00:00:00Z"}
