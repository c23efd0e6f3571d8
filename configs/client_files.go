package configs

import (
	"cmp"
	"encoding/json"
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
	"toolfinch/internal/document"
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
	home, _ := os.UserHomeDir() // without one the name of its folder stays, and is refused
	l := dialectOf(f, root, home)
	var servers []clients.Server
	lines := map[string]int{}
	for i, legal := range legalNames(pairs, nil) {
		p := pairs[i]
		s := l.read(p.Key.Text, p.Value).server()
		s.SeenFrom(f)
		if legal != s.Name {
			s.Legal = legal
		}
		if line := lines[s.Name]; line > 0 {
			s.Problem = fmt.Sprintf("line %d: duplicate server name, first on line %d", p.Key.Line, line)
		}
		lines[s.Name] = p.Key.Line
		servers = append(servers, s)
	}
	for i, s := range servers {
		servers[i].Twin = slices.ContainsFunc(servers, func(other clients.Server) bool { return other.Name != s.Name && other.Same(s) })
	}
	return servers, nil
}

// ofServer are our keys of a clients.Server.
var ofServer = []string{"command", "args", "env", "cwd", "url", "headers", "transport", "description", "connect_timeout", "call_timeout", "tools"}

// server returns the server with variables as they are written.
func (t *taken) server() clients.Server {
	s := clients.Server{Name: t.name}
	keep := func(key string, value *document.Node) {
		if s.Others == nil {
			s.Others = map[string]json.RawMessage{}
		}
		s.Others[key] = value.JSON()
	}
	refuse := func(key *document.Node, why string) {
		s.Problem = cmp.Or(s.Problem, fmt.Sprintf("line %d: %s", key.Line, why))
	}
	for _, n := range t.refused {
		refuse(n.key, n.text)
	}
	for _, p := range t.pairs {
		switch key, value := p.Key.Text, p.Value; {
		case key == "enabled" || key == "disabled":
			if !isBool(value.Text) {
				refuse(p.Key, cmp.Or(p.Key.WrittenAs, key)+" is neither true nor false")
			}
			s.Disabled = s.Disabled || value.Text == strconv.FormatBool(key == "disabled")
		case slices.Contains(ofServer, key):
			if value.Kind == document.Number || value.Kind == document.Bool {
				value = made(value, document.Text, value.Text)
			}
			member := made(value, document.Mapping, "")
			member.Pairs = []document.Pair{{Key: p.Key, Value: value}}
			if json.Unmarshal(member.JSON(), &s) != nil {
				refuse(p.Key, fmt.Sprintf("%s has a value of another kind than is known: %s", cmp.Or(p.Key.WrittenAs, key), value.Kind))
			}
		case key == "oauth":
			known := *value
			known.Pairs = nil
			for _, inner := range value.Pairs {
				if oauthKeys.find(inner.Key.Text) != nil {
					known.Pairs = append(known.Pairs, inner)
				} else {
					s.NotTaken = append(s.NotTaken, key+"."+inner.Key.Text)
				}
			}
			keep(key, &known)
		case serverKeys.find(key) != nil:
			keep(key, value)
		default:
			s.NotTaken = append(s.NotTaken, key)
			t.lost = append(t.lost, p)
		}
	}
	for _, n := range t.unused {
		s.NotTaken = append(s.NotTaken, n.text)
	}
	slices.Sort(s.NotTaken)
	for _, n := range t.mended {
		s.Mended = append(s.Mended, n.text)
	}
	if lost := made(t.in, document.Mapping, ""); len(t.lost) > 0 {
		lost.Pairs = t.lost
		s.Lost = lost.JSON()
	}
	switch {
	case s.Problem != "":
	case s.Command == "" && s.URL == "" && slices.Contains([]string{"builtin", "platform", "frontend", "inline_python"}, s.Transport): // of Goose
		s.Problem = "it is a part of the program, not a server"
	case s.Command == "" && s.URL == "":
		s.Problem = "it has neither a command nor a URL"
	case s.Command != "" && s.URL != "":
		s.Problem = "it has both a command and a URL"
	case s.Transport != "" && transportNames[foldKey(s.Transport)] == "" && !strings.Contains(s.Transport, "${"):
		s.Problem = fmt.Sprintf("its transport is %q, which toolfinch does not speak", shorten(s.Transport))
	}
	if s.Command != "" || s.Problem != "" || s.Transport == "auto" {
		s.Transport = ""
	}
	return s
}

// dialectOf returns how the servers of a file's block are written.
func dialectOf(f clients.File, root *document.Node, home string) dialect {
	project := f.Project
	if f.Guessed {
		project = ""
	}
	notation := func(text string) string { return withFolders(f.Client.Notation(text), project, home) }
	return dialect{notation, f.Client.Timeouts, switchedOff(f, root, home)}
}

// folderName is an editor's name of a folder, which may have a default.
var folderName = regexp.MustCompile(`\$?\$\{(workspaceFolder|workspaceRoot|workspaceFolderBasename|CLAUDE_PROJECT_DIR|userHome|pathSeparator|/)(?::-?[^{}]*)?\}`)

// withFolders replaces editors' names of the folder of the project and of the home
// directory, where these are known.
func withFolders(text, project, home string) string {
	base := ""
	if project != "" {
		base = filepath.Base(project)
	}
	folders := map[string]string{
		"workspaceFolder": project, "workspaceRoot": project, "CLAUDE_PROJECT_DIR": project, "workspaceFolderBasename": base,
		"userHome": home, "pathSeparator": string(filepath.Separator), "/": string(filepath.Separator),
	}
	return folderName.ReplaceAllStringFunc(text, func(found string) string {
		folder := folders[folderName.FindStringSubmatch(found)[1]]
		if folder == "" || strings.HasPrefix(found, "$$") {
			return found
		}
		return strings.ReplaceAll(folder, "${", "$${")
	})
}

// switchedOff reports which servers a file switches off beside their block, as Gemini CLI
// writes it. Claude Code notes in further files what its user refused of a project's.
func switchedOff(f clients.File, root *document.Node, home string) func(name string) bool {
	places := []*document.Node{root.Find(f.Block[:max(0, len(f.Block)-1)]...)}
	if home != "" && f.Client.ID == "claude-code" && filepath.Base(f.Path) == ".mcp.json" {
		for path, block := range map[string][]string{
			filepath.Join(home, ".claude.json"):                        {"projects", filepath.ToSlash(f.Project)},
			filepath.Join(f.Project, ".claude", "settings.json"):       nil,
			filepath.Join(f.Project, ".claude", "settings.local.json"): nil,
		} {
			data, _ := clients.ReadFile(path) // without it nothing is switched off
			if tree, bad := document.ParseJSON(data); bad == nil {
				places = append(places, tree.Find(block...))
			}
		}
	}
	off, allowed := map[string]bool{}, (*document.Node)(nil)
	for _, at := range places {
		for _, path := range [][]string{{"disabledMcpServers"}, {"disabledMcpjsonServers"}, {"disabledServers"}, {"disabled_servers"}, {"disabled_mcp_servers"}, {"mcp", "excluded"}} {
			if names := at.Find(path...); names != nil {
				for _, name := range names.Items {
					off[name.Text] = true
				}
			}
		}
		allowed = cmp.Or(allowed, at.Find("mcp", "allowed"))
	}
	return func(name string) bool {
		isIt := func(n *document.Node) bool { return n.Text == name }
		return off[name] || allowed != nil && allowed.Kind == document.List && !slices.ContainsFunc(allowed.Items, isIt)
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
		return nil, inClient(f, "%w", &problems[0])
	}
	if left := maxPlain; f.IsYAML() && !root.Fits(&left) {
		return nil, inClient(f, "it has more than %d values", maxPlain)
	}
	if f.Guessed { // a client does not find such servers in its own file
		root = bare(f.Path, root)
	}
	if root.Kind != document.Mapping {
		return nil, inClient(f, "it must be a mapping, not %s", root.Kind)
	}
	return root, nil
}

// parse reads a file of YAML, JSON or TOML.
func parse(path string, data []byte) (root *document.Node, isJSON bool, problems []document.Problem) {
	if !clients.IsTOML(path) {
		return document.Parse(path, data)
	}
	tables, lines, bad := clients.PlainTOML(data)
	if bad != nil {
		return nil, false, []document.Problem{*bad}
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
	case hasOwn(root):
		base := filepath.Base(path)
		block = made(root, document.Mapping, "")
		block.Pairs = []document.Pair{{Key: nameIn(root, strings.TrimSuffix(base, filepath.Ext(base))), Value: root}}
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

// clientOf names the client that keeps servers under a key, "" for a common key; ok is false
// for other keys.
func clientOf(f clients.File, root *document.Node, p document.Pair) (id string, ok bool) {
	switch fold := foldKey(p.Key.Text); {
	case p.Value.Kind != document.Mapping && p.Value.Kind != document.List:
		return "", false
	case p.Key.Text == "amp.mcpServers":
		return "amp", true
	case fold == "mcpservers" && p.Value.Kind == document.List && f.IsYAML() && root.Find("schema") != nil:
		return "continue", true
	case strings.HasSuffix(fold, "mcpservers"), fold == "modelcontextprotocolservers": // the latter of older versions of Continue
		return "", true
	case fold == "contextservers":
		return "zed", true
	case p.Key.Text == "servers":
		return "vscode", true
	case p.Key.Text == "extensions":
		return "goose", f.IsYAML()
	}
	return "opencode", p.Key.Text == "mcp" && p.Value.Find("allowed") == nil && p.Value.Find("excluded") == nil // these are of Gemini CLI
}

// blocksIn returns a file for each block of servers in its tree, as its client writes it.
func blocksIn(f clients.File, root *document.Node) (found []clients.File) {
	add := func(p document.Pair, path ...string) bool {
		id, ok := clientOf(f, root, p)
		if ok {
			g := f
			if g.Block = append(path, p.Key.Text); id != "" {
				g.Client = clients.Find(id)
			}
			found = append(found, g)
		}
		return ok
	}
	for _, p := range root.Pairs {
		within := false // as in the settings of VS Code
		for _, inner := range p.Value.Pairs {
			if fold := foldKey(inner.Key.Text); strings.HasSuffix(fold, "servers") && (fold != "servers" || p.Key.Text == "mcp") {
				within = add(inner, p.Key.Text) || within
			}
		}
		if !within {
			add(p)
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
