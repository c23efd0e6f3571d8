package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

// ServersIn returns the servers in the bytes of a client's file as they are written, in
// file order, or by name for TOML. NotTaken has unknown keys, Problem the reason why a
// server cannot be used.
func ServersIn(f clients.File, data []byte) ([]clients.Server, error) {
	root, err := clientTree(f, data)
	block := root.Find(f.Block...)
	if err != nil || block == nil {
		return nil, err
	}
	pairs, ok := serversOf(block)
	if !ok {
		return nil, inClient(f, "line %d: %s must be a mapping of servers, not %s", block.Line, f.Block[len(f.Block)-1], block.Kind)
	}
	l := dialectOf(f, root)
	var servers []clients.Server
	first := map[string]int{} // lines of names
	for _, p := range pairs {
		s := l.read(p.Key.Text, p.Value).server(p.Key.Text)
		s.SeenFrom(f)
		if line, again := first[s.Name]; again {
			s.Problem = fmt.Sprintf("line %d: duplicate server name, first on line %d", p.Key.Line, line)
		}
		first[s.Name] = p.Key.Line
		servers = append(servers, s)
	}
	return servers, nil
}

// dialectOf returns how the servers of a file's block are written.
func dialectOf(f clients.File, root *document.Node) dialect {
	folder := f.Project
	if f.Guessed {
		folder = ""
	}
	home, _ := os.UserHomeDir() // without one the name of its folder stays, and is refused
	return dialect{f.Client.Notation, f.Client.Timeouts, foldersOf(folder, home), switchedOff(root.Find(f.Block[:max(0, len(f.Block)-1)]...), f.SwitchedOff(home))}
}

// folderName is an editor's name of a folder, which may have a default.
var folderName = regexp.MustCompile(`\$?\$\{(workspaceFolder|workspaceRoot|workspaceFolderBasename|CLAUDE_PROJECT_DIR|userHome|pathSeparator|/)(?::-?[^{}]*)?\}`)

// foldersOf returns what replaces editors' names of the folder of the project and of the
// home directory, where these are known.
func foldersOf(project, home string) func(string) string {
	return func(text string) string {
		return folderName.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasPrefix(found, "$$") {
				return found
			}
			value := map[string]string{
				"workspaceFolder": project, "workspaceRoot": project, "CLAUDE_PROJECT_DIR": project, "userHome": home,
				"pathSeparator": string(filepath.Separator), "/": string(filepath.Separator),
			}[folderName.FindStringSubmatch(found)[1]]
			if strings.Contains(found, "Basename") && project != "" {
				value = filepath.Base(project)
			}
			return cmp.Or(strings.ReplaceAll(value, "${", "$${"), found)
		})
	}
}

// switchedOff reports which servers a file switches off beside their block, as Claude Code
// and Gemini CLI write it, or another file.
func switchedOff(beside *document.Node, elsewhere []string) func(name string) bool {
	names := func(path ...string) (names []string, given bool) {
		n := beside.Find(path...)
		if n == nil || n.Kind != document.List {
			return nil, false
		}
		return wordsOf(n), true
	}
	var off []string
	for _, path := range [][]string{{"disabledMcpServers"}, {"disabledMcpjsonServers"}, {"disabledServers"}, {"disabled_servers"}, {"disabled_mcp_servers"}, {"mcp", "excluded"}} {
		more, _ := names(path...)
		off = append(off, more...)
	}
	off = append(off, elsewhere...)
	allowed, some := names("mcp", "allowed")
	return func(name string) bool {
		return slices.Contains(off, name) || some && !slices.Contains(allowed, name)
	}
}

func inClient(f clients.File, format string, args ...any) error {
	return fmt.Errorf("%s: %w", filepath.Base(f.Path), fmt.Errorf(format, args...))
}

// maxPlain bounds the values of a file, because aliases repeat values.
const maxPlain = 100_000

// clientTree returns the file as a tree, nil for an empty file. Errors do not quote the file.
func clientTree(f clients.File, data []byte) (*document.Node, error) {
	if document.IsBlank(data) {
		return nil, nil
	}
	name := ".json"
	switch {
	case f.Client.TOML:
		name = ".toml"
	case f.IsYAML():
		name = ".yaml"
	}
	root, _, problems := parse(name, data)
	if len(problems) > 0 {
		return nil, inClient(f, "line %d, column %d: %s", problems[0].Line, problems[0].Column, problems[0].Message)
	}
	if left := maxPlain; f.IsYAML() && !root.Fits(&left) {
		return nil, inClient(f, "it has more than %d values", maxPlain)
	}
	if root = bare(f.Path, root); root.Kind != document.Mapping {
		return nil, inClient(f, "it must be a mapping, not %s", root.Kind)
	}
	return root, nil
}

// parse reads a file of YAML, JSON or TOML.
func parse(path string, data []byte) (root *document.Node, isJSON bool, problems []document.Problem) {
	if !clients.IsTOML(path) {
		root, isJSON, problems = document.Parse(path, data)
		return root, isJSON, problems
	}
	tables, lines, err := clients.PlainTOML(data)
	if err != nil {
		return nil, false, []document.Problem{{Line: err.Line, Column: err.Column, Message: err.Message}}
	}
	return treeOfGo(tables, lines, "", 1), false, nil
}

// treeOfGo returns a tree with sorted mappings. lines has the lines of keys by their path.
func treeOfGo(value any, lines map[string]int, path string, line int) *document.Node {
	n := &document.Node{Line: line, Column: 1}
	switch v := value.(type) {
	case map[string]any:
		n.Kind = document.Mapping
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := path + "\x00" + key
			inner := cmp.Or(lines[at], line)
			n.Pairs = append(n.Pairs, document.Pair{
				Key: &document.Node{Kind: document.Text, Line: inner, Column: 1, Text: key}, Value: treeOfGo(v[key], lines, at, inner),
			})
		}
	case []any:
		n.Kind = document.List
		for _, item := range v {
			n.Items = append(n.Items, treeOfGo(item, lines, path, line))
		}
	case bool:
		n.Kind, n.Text = document.Bool, strconv.FormatBool(v)
	case int64, float64:
		n.Kind, n.Text = document.Number, fmt.Sprint(v)
	default:
		n.Kind, n.Text = document.Text, fmt.Sprint(value)
	}
	return n
}

// ErrNoServers says that a file has no known client's key of servers.
var ErrNoServers = errors.New("has none of the keys that clients keep servers under: mcpServers, servers, mcp, context_servers, amp.mcpServers, mcp_servers, extensions")

// bare puts servers that a file has without a key around them under mcpServers.
func bare(path string, root *document.Node) *document.Node {
	block := root
	switch {
	case root.Kind == document.List && likeBlock(root):
	case root.Kind != document.Mapping:
		return root
	case hasOwn(root):
		name := nameIn(root, 0)
		if name.Line == root.Line && strings.HasPrefix(name.Text, "server-") {
			base := filepath.Base(path)
			name = made(root, document.Text, strings.TrimSuffix(base, filepath.Ext(base)))
		}
		block = made(root, document.Mapping, "")
		block.Pairs = []document.Pair{{Key: name, Value: root}}
	case !likeBlock(root):
		return root
	}
	wrapped := made(root, document.Mapping, "")
	wrapped.Pairs = []document.Pair{{Key: made(root, document.Text, "mcpServers"), Value: block}}
	return wrapped
}

// likeBlock reports whether all values of a mapping or list are servers.
func likeBlock(n *document.Node) bool {
	for _, item := range n.Items {
		if !likeServer(item) {
			return false
		}
	}
	for _, p := range n.Pairs {
		if p.Key.Text != "$schema" && (p.Value.Kind != document.Mapping || !likeServer(p.Value)) {
			return false
		}
	}
	return len(n.Items)+len(n.Pairs) > 0
}

// blocksIn returns a file for each block of servers in its tree, as its client writes it.
func blocksIn(f clients.File, root *document.Node) (found []clients.File) {
	add := func(client string, path ...string) {
		g := f
		g.Block = path
		if c := clients.Find(client); c != nil {
			g.Client = c
		}
		found = append(found, g)
	}
	for _, p := range root.Pairs {
		key, v := p.Key.Text, p.Value
		fold := foldKey(key)
		inner := func(name string) bool {
			n := v.Find(name)
			return n != nil && (n.Kind == document.Mapping || n.Kind == document.List)
		}
		switch {
		case v.Kind != document.Mapping && v.Kind != document.List:
		case fold == "mcpservers" && v.Kind == document.List && f.IsYAML() && root.Find("schema") != nil:
			add("continue", key)
		case key == "amp.mcpServers":
			add("amp", key)
		case fold == "contextservers":
			add("zed", key)
		case strings.HasSuffix(fold, "mcpservers"), fold == "modelcontextprotocolservers":
			add("", key)
		case key == "servers":
			add("vscode", key)
		case key == "extensions" && f.IsYAML():
			add("goose", key)
		case inner("mcpServers"):
			add("", key, "mcpServers")
		case inner("modelContextProtocolServers"): // of older versions of Continue
			add("", key, "modelContextProtocolServers")
		case key == "mcp" && inner("servers"): // in the settings of VS Code
			add("vscode", key, "servers")
		case key == "mcp" && v.Find("allowed") == nil && v.Find("excluded") == nil:
			add("opencode", key)
		}
	}
	return found
}

// ClientFiles returns the file at a path with its client, known by place, name or content,
// once for each block of servers.
func ClientFiles(path string, sys clients.System) ([]clients.File, error) {
	f, known := clients.FileAt(path, sys)
	if known {
		return []clients.File{f}, nil
	}
	data, err := clients.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	root, err := clientTree(f, data)
	if err != nil {
		return nil, err
	}
	if root != nil {
		if found := blocksIn(f, root); len(found) > 0 {
			return found, nil
		}
	}
	return nil, inClient(f, "%w", ErrNoServers)
}
