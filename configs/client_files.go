package configs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

// ServersIn returns the servers in the bytes of a client's file as they are written, in
// file order, or by name for TOML. NotTaken has unknown keys, Problem the reason why a
// server cannot be used.
func ServersIn(f clients.File, data []byte) ([]clients.Server, error) {
	block, err := clientTree(f, data)
	if block = block.Find(f.Block...); err != nil || block == nil {
		return nil, err
	}
	pairs, ok := serversOf(block)
	if !ok {
		return nil, inClient(f, "line %d: %s must be a mapping of servers, not %s", block.Line, f.Block[len(f.Block)-1], block.Kind)
	}
	var servers []clients.Server
	for _, p := range pairs {
		s := dialect{f.Client.Notation, f.Client.Timeouts}.read(p.Value).server(p.Key.Text)
		s.SeenFrom(f.Project)
		servers = append(servers, s)
	}
	return servers, nil
}

func inClient(f clients.File, format string, args ...any) error {
	return fmt.Errorf("%s: %w", filepath.Base(f.Path), fmt.Errorf(format, args...))
}

// maxPlain bounds the values of a file, because aliases repeat values.
const maxPlain = 100_000

// clientTree returns the file as a tree, nil for an empty file. Errors do not quote the file.
func clientTree(f clients.File, data []byte) (*document.Node, error) {
	if f.Client.TOML {
		tables, err := clients.PlainTOML(data)
		if err != nil {
			return nil, inClient(f, "%w", err)
		}
		return treeOfGo(tables), nil
	}
	if document.IsBlank(data) {
		return nil, nil
	}
	format := ".json"
	if f.IsYAML() {
		format = ".yaml"
	}
	root, _, problems := document.Parse(format, data)
	if len(problems) > 0 {
		return nil, inClient(f, "line %d, column %d: %s", problems[0].Line, problems[0].Column, problems[0].Message)
	}
	if left := maxPlain; f.IsYAML() && !root.Fits(&left) {
		return nil, inClient(f, "it has more than %d values", maxPlain)
	}
	if root.Kind != document.Mapping {
		return nil, inClient(f, "it must be a mapping, not %s", root.Kind)
	}
	return root, nil
}

// treeOfGo returns a tree without places, and with sorted mappings.
func treeOfGo(value any) *document.Node {
	switch v := value.(type) {
	case map[string]any:
		n := &document.Node{Kind: document.Mapping}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.Pairs = append(n.Pairs, document.Pair{Key: document.NewText(key), Value: treeOfGo(v[key])})
		}
		return n
	case []any:
		n := &document.Node{Kind: document.List}
		for _, item := range v {
			n.Items = append(n.Items, treeOfGo(item))
		}
		return n
	case bool:
		return &document.Node{Kind: document.Bool, Text: strconv.FormatBool(v)}
	case int64, float64:
		return &document.Node{Kind: document.Number, Text: fmt.Sprint(v)}
	}
	return document.NewText(fmt.Sprint(value))
}

// ErrNoServers says that a file has no known client's key of servers.
var ErrNoServers = errors.New("has none of the keys that clients keep servers under: mcpServers, servers, mcp, context_servers, amp.mcpServers, mcp_servers, extensions")

// shapes map keys of a file to the client's format; the first match wins.
var shapes = []struct {
	block  []string
	client string
	yaml   bool
}{
	{[]string{"extensions"}, "goose", true},
	{[]string{"mcpServers"}, "continue", true},
	{[]string{"mcpServers"}, "", false},
	{[]string{"amp.mcpServers"}, "amp", false},
	{[]string{"context_servers"}, "zed", false},
	{[]string{"mcp", "servers"}, "vscode", false}, // in the settings of VS Code
	{[]string{"servers"}, "vscode", false},
	{[]string{"mcp"}, "opencode", false},
	{[]string{"mcp_servers"}, "", false},
}

// ClientFile returns the file at a path with its client, known by place, name or content.
func ClientFile(path string, sys clients.System) (clients.File, error) {
	f, known := clients.FileAt(path, sys)
	if known {
		return f, nil
	}
	data, err := clients.ReadFile(f.Path)
	if err != nil || f.Client.TOML {
		return f, err
	}
	root, err := clientTree(f, data)
	if err != nil {
		return f, err
	}
	for _, shape := range shapes {
		value := root.Find(shape.block...)
		if value == nil || value.Kind != document.Mapping && value.Kind != document.List || shape.yaml && !f.IsYAML() {
			continue
		}
		if f.Block = shape.block; shape.client != "" {
			f.Client = clients.Find(shape.client)
		} else if shape.block[0] == "mcp_servers" {
			f.Client = clients.AnyFile
		}
		return f, nil
	}
	return f, inClient(f, "%w", ErrNoServers)
}
