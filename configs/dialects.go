package configs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

// A dialect is how the files of one program write a server; the zero dialect is how ours
// do. Whoever reads servers from a file reads them in our own keys, from dialect.read.
type dialect struct {
	notation func(string) string // rewrites the variables of a text as ours; nil leaves them
	timeouts map[string]clients.Timeout
}

// row says what a key of any program's server is in our keys.
type row struct {
	take func(t *taken, p document.Pair) // nil for a key that is not used
	hint string                          // for one that is not used: what to write instead
	like string                          // our key whose values it takes, "" for others
}

// rows are the keys that are not our own, and those of ours that other programs use
// differently. No two programs mean different things by one.
var rows = map[string]row{
	"command": {take: (*taken).command}, // a list, for opencode
	"cmd":     {take: as("command", (*taken).text), like: "command"},

	"args": {take: as("args", (*taken).words)},

	"env":         {take: as("env", (*taken).named)},
	"environment": {take: as("env", (*taken).named), like: "env"},
	"envs":        {take: as("env", (*taken).named), like: "env"},
	"env_keys":    {take: as("env", (*taken).variables)},
	"env_vars":    {take: as("env", (*taken).variables)},

	"cwd": {take: as("cwd", (*taken).text)},

	"url":       {take: as("url", (*taken).text)},
	"serverUrl": {take: as("url", (*taken).text), like: "url"},
	"uri":       {take: as("url", (*taken).text), like: "url"},
	"httpUrl":   {take: (*taken).httpURL, like: "url"}, // of Gemini CLI, whose url may be SSE

	"headers":              {take: as("headers", (*taken).named)},
	"http_headers":         {take: as("headers", (*taken).named), like: "headers"},
	"env_http_headers":     {take: as("headers", (*taken).namedVariables)},
	"bearer_token_env_var": {take: as("headers", (*taken).bearer)},
	"requestOptions":       {take: (*taken).requestOptions}, // of Continue

	"transport": {take: (*taken).transport},
	"type":      {take: (*taken).transport, like: "transport"},

	"tools":           {take: (*taken).tools}, // a list, for Copilot CLI
	"includeTools":    {take: allow},
	"enabledTools":    {take: allow},
	"enabled_tools":   {take: allow},
	"available_tools": {take: allow},
	"excludeTools":    {take: deny},
	"disabledTools":   {take: deny},
	"disabled_tools":  {take: deny},

	// Other keys say the same.
	"source": {take: nothing}, "name": {take: nothing}, "display_name": {take: nothing}, "bundled": {take: nothing},

	// Approval is the client's, and so are editors' conveniences.
	"alwaysAllow": {}, "autoApprove": {}, "trust": {}, "authProviderType": {}, "dev": {}, "gallery": {}, "version": {}, "sandboxEnabled": {},
	"auth":    {hint: "write the token under headers, or oauth: {client_id: ...}"},
	"envFile": {hint: "write the variables under env"},
	// Units differ between clients: only those of a client that is known are taken.
	"timeout":             {hint: "write connect_timeout or call_timeout"},
	"connectionTimeout":   {hint: "write connect_timeout"},
	"startup_timeout_sec": {hint: "write connect_timeout"},
	"startup_timeout_ms":  {hint: "write connect_timeout"},
	"tool_timeout_sec":    {hint: "write call_timeout"},
}

// taken is a server in our keys, and what is to be said of its own.
type taken struct {
	dialect
	in       *document.Node  // as the file has it
	pairs    []document.Pair // in our keys; those that are in no row as they are
	unused   []note
	refused  []note
	on, off  *document.Node // lists of tools
	isInside bool           // a part of the program that has the file
}

// note is about a key of a server.
type note struct {
	key  *document.Node
	text string // the key that is not used, or why it is refused
	hint string
}

// read reads a server; one that is no mapping has no keys.
func (l dialect) read(n *document.Node) *taken {
	t := &taken{dialect: l, in: n}
	for _, p := range flat(n.Pairs) {
		row, known := rows[p.Key.Text]
		switch {
		case t.timeout(p):
		case !known:
			t.pairs = append(t.pairs, p)
		case p.Value.Kind == document.Null:
		case row.take == nil:
			t.unused = append(t.unused, note{p.Key, p.Key.Text, row.hint})
		default:
			row.take(t, p)
		}
	}
	t.chooseTools()
	return t
}

// flat are the members of a server, with those of the mappings that two programs keep
// most of them in: Cline's CLI in transport, and Zed once in command.
func flat(members []document.Pair) (all []document.Pair) {
	for _, p := range members {
		if (p.Key.Text != "transport" && p.Key.Text != "command") || p.Value.Kind != document.Mapping {
			all = append(all, p)
			continue
		}
		for _, inner := range p.Value.Pairs {
			if inner.Key.Text == "path" {
				inner.Key = made(inner.Key, document.Text, "command")
			}
			all = append(all, inner)
		}
	}
	return all
}

// node is the server in our keys.
func (t *taken) node() *document.Node {
	if t.in.Kind != document.Mapping {
		return t.in
	}
	return &document.Node{Kind: document.Mapping, Line: t.in.Line, Column: t.in.Column, Pairs: t.pairs}
}

// set sets our key to the value of one of the file. Mappings and lists of several keys
// are joined; empty ones say nothing.
func (t *taken) set(key *document.Node, ours string, value *document.Node) {
	i := slices.IndexFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == ours })
	several := value.Kind == document.Mapping || value.Kind == document.List
	switch {
	case several && len(value.Items)+len(value.Pairs) == 0:
	case i < 0:
		t.pairs = append(t.pairs, document.Pair{Key: &document.Node{Kind: document.Text, Line: key.Line, Column: key.Column, Text: ours, WrittenAs: key.Text}, Value: value})
	case value.Kind != t.pairs[i].Value.Kind:
		t.refuse(key, fmt.Sprintf("%s must be %s, not %s", key.Text, t.pairs[i].Value.Kind, value.Kind), "")
	case several:
		joined := *t.pairs[i].Value
		joined.Pairs, joined.Items = slices.Concat(joined.Pairs, value.Pairs), slices.Concat(joined.Items, value.Items)
		t.pairs[i].Value = &joined
	case value.Text != t.pairs[i].Value.Text:
		t.refuse(key, fmt.Sprintf("%s and %s contradict each other", cmp.Or(t.pairs[i].Key.WrittenAs, ours), key.Text), "keep one")
	}
}

func (t *taken) refuse(key *document.Node, why, hint string) {
	t.refused = append(t.refused, note{key, why, hint})
}

// as takes a value in another form under our key.
func as(ours string, form func(*taken, *document.Node) *document.Node) func(*taken, document.Pair) {
	return func(t *taken, p document.Pair) { t.set(p.Key, ours, form(t, p.Value)) }
}

func nothing(*taken, document.Pair) {}

// made is a value at the place of another.
func made(at *document.Node, kind document.Kind, text string) *document.Node {
	return &document.Node{Kind: kind, Line: at.Line, Column: at.Column, Text: text}
}

// text is a text with our variables. What is none stays, to be refused where it is used.
func (t *taken) text(n *document.Node) *document.Node {
	if n.Kind != document.Text || t.notation == nil {
		return n
	}
	return made(n, document.Text, t.notation(n.Text))
}

// word is a text, or a number or truth value as it is written.
func (t *taken) word(n *document.Node) *document.Node {
	if n.Kind == document.Number || n.Kind == document.Bool {
		return made(n, document.Text, n.Text)
	}
	return t.text(n)
}

func (t *taken) words(n *document.Node) *document.Node {
	list := *n
	list.Items = nil
	for _, item := range n.Items {
		list.Items = append(list.Items, t.word(item))
	}
	return &list
}

func (t *taken) named(n *document.Node) *document.Node {
	mapping := *n
	mapping.Pairs = nil
	for _, p := range n.Pairs {
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: p.Key, Value: t.word(p.Value)})
	}
	return &mapping
}

// variables passes on the variables of a list of names.
func (t *taken) variables(n *document.Node) *document.Node {
	if n.Kind != document.List {
		return n
	}
	mapping := made(n, document.Mapping, "")
	for _, item := range n.Items {
		if item.Kind != document.Text {
			t.unused = append(t.unused, note{item, "env_vars that are no names", ""})
			continue
		}
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: item, Value: made(item, document.Text, "${"+item.Text+"}")})
	}
	return mapping
}

// namedVariables has the name of a variable for each value.
func (t *taken) namedVariables(n *document.Node) *document.Node {
	mapping := *n
	mapping.Pairs = nil
	for _, p := range n.Pairs {
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: p.Key, Value: made(p.Value, p.Value.Kind, "${"+p.Value.Text+"}")})
	}
	return &mapping
}

// bearer sends the token in a variable.
func (t *taken) bearer(n *document.Node) *document.Node {
	if n.Kind != document.Text {
		return n
	}
	mapping := made(n, document.Mapping, "")
	mapping.Pairs = []document.Pair{{Key: made(n, document.Text, "Authorization"), Value: made(n, document.Text, "Bearer ${"+n.Text+"}")}}
	return mapping
}

func (t *taken) command(p document.Pair) {
	if p.Value.Kind != document.List || len(p.Value.Items) == 0 {
		t.set(p.Key, "command", t.text(p.Value))
		return
	}
	words := t.words(p.Value)
	t.set(p.Key, "command", words.Items[0])
	words.Items = words.Items[1:]
	if i := slices.IndexFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == "args" }); i >= 0 {
		words.Items = append(words.Items, t.pairs[i].Value.Items...)
		t.pairs = slices.Delete(t.pairs, i, i+1)
	}
	t.set(p.Key, "args", words)
}

func (t *taken) httpURL(p document.Pair) {
	t.set(p.Key, "url", t.text(p.Value))
	t.set(p.Key, "transport", made(p.Value, document.Text, "streamable-http"))
}

func (t *taken) requestOptions(p document.Pair) {
	for _, inner := range p.Value.Pairs {
		if inner.Key.Text == "headers" {
			t.set(p.Key, "headers", t.named(inner.Value))
		} else {
			t.unused = append(t.unused, note{inner.Key, p.Key.Text + "." + inner.Key.Text, ""})
		}
	}
}

// transport has all the names that clients have for the ways to a server.
func (t *taken) transport(p document.Pair) {
	n := p.Value
	switch strings.ToLower(n.Text) {
	case "", "remote":
		if n.Kind == document.Text {
			return // it does not say which
		}
	case "http", "streamable-http", "streamablehttp", "streamable_http":
		n = made(n, document.Text, "streamable-http")
	case "sse", "stdio", "auto":
		n = made(n, document.Text, strings.ToLower(n.Text))
	case "local":
		n = made(n, document.Text, "stdio")
	case "builtin", "platform", "frontend", "inline_python": // of Goose
		t.isInside = true
	}
	t.set(p.Key, "transport", n)
}

func (t *taken) tools(p document.Pair) {
	if p.Value.Kind == document.List {
		allow(t, p)
	} else {
		t.pairs = append(t.pairs, p)
	}
}

func allow(t *taken, p document.Pair) {
	if p.Key.Text != "available_tools" || len(p.Value.Items) > 0 { // of Goose, where none are all
		t.choice(&t.on, p)
	}
}

func deny(t *taken, p document.Pair) { t.choice(&t.off, p) }

func (t *taken) choice(to **document.Node, p document.Pair) {
	if p.Value.Kind != document.List {
		t.refuse(p.Key, p.Key.Text+" must be a list of tools, not "+string(p.Value.Kind), "")
		return
	}
	*to = t.words(p.Value)
}

// chooseTools makes a choice of tools as we have it: a tool by its name goes before the
// pattern for all.
func (t *taken) chooseTools() {
	if t.on == nil && t.off == nil {
		return
	}
	at := cmp.Or(t.on, t.off)
	choice := made(at, document.Mapping, "")
	seen := map[string]bool{}
	add := func(item *document.Node, value *document.Node) {
		if item.Kind == document.Text && !seen[item.Text] {
			seen[item.Text] = true
			choice.Pairs = append(choice.Pairs, document.Pair{Key: item, Value: value})
		}
	}
	none := func(at *document.Node) *document.Node {
		n := made(at, document.Mapping, "")
		n.Pairs = []document.Pair{{Key: made(at, document.Text, "enabled"), Value: made(at, document.Bool, "false")}}
		return n
	}
	if t.off != nil {
		for _, item := range t.off.Items {
			add(item, none(item))
		}
	}
	if t.on != nil && !slices.ContainsFunc(t.on.Items, func(item *document.Node) bool { return item.Text == "*" }) {
		for _, item := range t.on.Items {
			add(item, made(item, document.Mapping, ""))
		}
		add(made(at, document.Text, "*"), none(at))
	}
	t.set(made(at, document.Text, "tools"), "tools", choice)
}

// timeout takes a duration whose unit is documented, and reports whether it is one.
func (t *taken) timeout(p document.Pair) bool {
	of, known := t.timeouts[p.Key.Text]
	if !known || p.Value.Kind != document.Number {
		return false
	}
	number, err := strconv.ParseFloat(p.Value.Text, 64)
	d := time.Duration(number * float64(of.Unit)).Round(time.Millisecond)
	if err != nil || d <= 0 || number*float64(of.Unit) > float64(maxDuration) {
		return false
	}
	ours := "connect_timeout"
	if of.Call {
		ours = "call_timeout"
	}
	t.set(p.Key, ours, made(p.Value, document.Text, shortDuration(d)))
	return true
}

// ofServer are our keys that a clients.Server has.
var ofServer = []string{"command", "args", "env", "cwd", "url", "headers", "transport", "description", "connect_timeout", "call_timeout", "tools"}

// server is what is taken as it is written: no variable is replaced.
func (t *taken) server(name string) clients.Server {
	s := clients.Server{Name: name}
	refuse := func(key *document.Node, why string) {
		if key.Line > 0 {
			why = fmt.Sprintf("line %d: %s", key.Line, why)
		}
		s.Problem = cmp.Or(s.Problem, why)
	}
	for _, p := range t.pairs {
		switch key := p.Key.Text; {
		case key == "enabled" || key == "disabled":
			if !isBool(p.Value.Text) {
				refuse(p.Key, key+" is neither true nor false")
			}
			s.Disabled = s.Disabled || p.Value.Text == strconv.FormatBool(key == "disabled")
		case !slices.Contains(ofServer, key):
			s.NotTaken = append(s.NotTaken, key)
		default:
			member := made(p.Value, document.Mapping, "")
			member.Pairs = []document.Pair{{Key: p.Key, Value: (&taken{}).word(p.Value)}}
			if json.Unmarshal(member.JSON(), &s) != nil {
				refuse(p.Key, fmt.Sprintf("%s has a value of another kind than is known: %s", cmp.Or(p.Key.WrittenAs, key), p.Value.Kind))
			}
		}
	}
	for _, n := range t.unused {
		s.NotTaken = append(s.NotTaken, n.text)
	}
	slices.Sort(s.NotTaken)
	for _, n := range t.refused {
		refuse(n.key, n.text)
	}
	switch {
	case s.Problem != "":
	case t.isInside && s.Command == "" && s.URL == "":
		s.Problem = "it is a part of the program, not a server"
	case s.Command == "" && s.URL == "":
		s.Problem = "it has neither a command nor a URL"
	case s.Command != "" && s.URL != "":
		s.Problem = "it has both a command and a URL"
	}
	if s.Command != "" || s.Problem != "" || s.Transport == "auto" {
		s.Transport = ""
	}
	return s
}

// serversOf are the servers of a block: a mapping by name, or a list of servers that have
// names. It reports whether it is either.
func serversOf(block *document.Node) (servers []document.Pair, ok bool) {
	if block.Kind != document.List {
		return block.Pairs, block.Kind == document.Mapping || block.Kind == document.Null
	}
	for _, item := range block.Items {
		name := item.Find("name")
		if name == nil || name.Kind != document.Text {
			return nil, false
		}
		servers = append(servers, document.Pair{Key: name, Value: item})
	}
	return servers, true
}

// ServersIn returns the servers in the bytes of a client's file as they are written, in
// its order, those of TOML by name. What each has that is not understood is in its
// NotTaken, and why it cannot be used in its Problem.
func ServersIn(f clients.File, data []byte) ([]clients.Server, error) {
	block, err := clientTree(f, data)
	for _, key := range f.Block {
		if block != nil {
			block = block.Find(key)
		}
	}
	if err != nil || block == nil {
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

// maxPlain bounds the values of a file: aliases repeat what they name.
const maxPlain = 100_000

// clientTree is the file as a tree, nil where it is empty. Errors have the place and
// quote nothing.
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

// treeOfGo is a tree without places, mappings in the order of their keys.
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

// ErrNoServers says that a file has nothing that any known client keeps servers in.
var ErrNoServers = errors.New("has none of the keys that clients keep servers under: mcpServers, servers, mcp, context_servers, amp.mcpServers, mcp_servers, extensions")

// shapes tell by its keys in which client's format a file is, the first that is there.
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

// ClientFile returns the file at a path and tells by its place, its name and its contents
// in which client's format it is.
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
		value := root
		for _, key := range shape.block {
			if value != nil {
				value = value.Find(key)
			}
		}
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
