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
)

// A dialect is how the files of one program write a server; the zero dialect is how ours
// do. Whoever reads servers from a file reads them in our own keys, from dialect.read.
type dialect struct {
	notation func(string) string // rewrites the variables of a text as ours; nil leaves them
	timeouts map[string]clients.Timeout
}

// row says what a key of any program's server is in our keys.
type row struct {
	take func(t *taken, p pair) // nil for a key that is not used
	hint string                 // for one that is not used: what to write instead
	like string                 // our key whose values it takes, "" for others
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
	in       *node  // as the file has it
	pairs    []pair // in our keys; those that are in no row as they are
	unused   []note
	refused  []note
	on, off  *node // lists of tools
	isInside bool  // a part of the program that has the file
}

// note is about a key of a server.
type note struct {
	key  *node
	text string // the key that is not used, or why it is refused
	hint string
}

// read reads a server; one that is no mapping has no keys.
func (l dialect) read(n *node) *taken {
	t := &taken{dialect: l, in: n}
	for _, p := range flat(n.pairs) {
		row, known := rows[p.key.text]
		switch {
		case t.timeout(p):
		case !known:
			t.pairs = append(t.pairs, p)
		case p.value.kind == kindNull:
		case row.take == nil:
			t.unused = append(t.unused, note{p.key, p.key.text, row.hint})
		default:
			row.take(t, p)
		}
	}
	t.chooseTools()
	return t
}

// flat are the members of a server, with those of the mappings that two programs keep
// most of them in: Cline's CLI in transport, and Zed once in command.
func flat(members []pair) (all []pair) {
	for _, p := range members {
		if (p.key.text != "transport" && p.key.text != "command") || p.value.kind != kindMapping {
			all = append(all, p)
			continue
		}
		for _, inner := range p.value.pairs {
			if inner.key.text == "path" {
				inner.key = made(inner.key, kindText, "command")
			}
			all = append(all, inner)
		}
	}
	return all
}

// node is the server in our keys.
func (t *taken) node() *node {
	if t.in.kind != kindMapping {
		return t.in
	}
	return &node{kind: kindMapping, line: t.in.line, column: t.in.column, pairs: t.pairs}
}

// set sets our key to the value of one of the file. Mappings and lists of several keys
// are joined; empty ones say nothing.
func (t *taken) set(key *node, ours string, value *node) {
	i := slices.IndexFunc(t.pairs, func(p pair) bool { return p.key.text == ours })
	several := value.kind == kindMapping || value.kind == kindList
	switch {
	case several && len(value.items)+len(value.pairs) == 0:
	case i < 0:
		t.pairs = append(t.pairs, pair{&node{kind: kindText, line: key.line, column: key.column, text: ours, inFile: key.text}, value})
	case value.kind != t.pairs[i].value.kind:
		t.refuse(key, fmt.Sprintf("%s must be %s, not %s", key.text, t.pairs[i].value.kind, value.kind), "")
	case several:
		joined := *t.pairs[i].value
		joined.pairs, joined.items = slices.Concat(joined.pairs, value.pairs), slices.Concat(joined.items, value.items)
		t.pairs[i].value = &joined
	case value.text != t.pairs[i].value.text:
		t.refuse(key, fmt.Sprintf("%s and %s contradict each other", cmp.Or(t.pairs[i].key.inFile, ours), key.text), "keep one")
	}
}

func (t *taken) refuse(key *node, why, hint string) {
	t.refused = append(t.refused, note{key, why, hint})
}

// as takes a value in another form under our key.
func as(ours string, form func(*taken, *node) *node) func(*taken, pair) {
	return func(t *taken, p pair) { t.set(p.key, ours, form(t, p.value)) }
}

func nothing(*taken, pair) {}

// made is a value at the place of another.
func made(at *node, kind nodeKind, text string) *node {
	return &node{kind: kind, line: at.line, column: at.column, text: text}
}

// text is a text with our variables. What is none stays, to be refused where it is used.
func (t *taken) text(n *node) *node {
	if n.kind != kindText || t.notation == nil {
		return n
	}
	return made(n, kindText, t.notation(n.text))
}

// word is a text, or a number or truth value as it is written.
func (t *taken) word(n *node) *node {
	if n.kind == kindNumber || n.kind == kindBool {
		return made(n, kindText, n.text)
	}
	return t.text(n)
}

func (t *taken) words(n *node) *node {
	list := *n
	list.items = nil
	for _, item := range n.items {
		list.items = append(list.items, t.word(item))
	}
	return &list
}

func (t *taken) named(n *node) *node {
	mapping := *n
	mapping.pairs = nil
	for _, p := range n.pairs {
		mapping.pairs = append(mapping.pairs, pair{p.key, t.word(p.value)})
	}
	return &mapping
}

// variables passes on the variables of a list of names.
func (t *taken) variables(n *node) *node {
	if n.kind != kindList {
		return n
	}
	mapping := made(n, kindMapping, "")
	for _, item := range n.items {
		if item.kind != kindText {
			t.unused = append(t.unused, note{item, "env_vars that are no names", ""})
			continue
		}
		mapping.pairs = append(mapping.pairs, pair{item, made(item, kindText, "${"+item.text+"}")})
	}
	return mapping
}

// namedVariables has the name of a variable for each value.
func (t *taken) namedVariables(n *node) *node {
	mapping := *n
	mapping.pairs = nil
	for _, p := range n.pairs {
		mapping.pairs = append(mapping.pairs, pair{p.key, made(p.value, p.value.kind, "${"+p.value.text+"}")})
	}
	return &mapping
}

// bearer sends the token in a variable.
func (t *taken) bearer(n *node) *node {
	if n.kind != kindText {
		return n
	}
	mapping := made(n, kindMapping, "")
	mapping.pairs = []pair{{made(n, kindText, "Authorization"), made(n, kindText, "Bearer ${"+n.text+"}")}}
	return mapping
}

func (t *taken) command(p pair) {
	if p.value.kind != kindList || len(p.value.items) == 0 {
		t.set(p.key, "command", t.text(p.value))
		return
	}
	words := t.words(p.value)
	t.set(p.key, "command", words.items[0])
	words.items = words.items[1:]
	if i := slices.IndexFunc(t.pairs, func(p pair) bool { return p.key.text == "args" }); i >= 0 {
		words.items = append(words.items, t.pairs[i].value.items...)
		t.pairs = slices.Delete(t.pairs, i, i+1)
	}
	t.set(p.key, "args", words)
}

func (t *taken) httpURL(p pair) {
	t.set(p.key, "url", t.text(p.value))
	t.set(p.key, "transport", made(p.value, kindText, "streamable-http"))
}

func (t *taken) requestOptions(p pair) {
	for _, inner := range p.value.pairs {
		if inner.key.text == "headers" {
			t.set(p.key, "headers", t.named(inner.value))
		} else {
			t.unused = append(t.unused, note{inner.key, p.key.text + "." + inner.key.text, ""})
		}
	}
}

// transport has all the names that clients have for the ways to a server.
func (t *taken) transport(p pair) {
	n := p.value
	switch strings.ToLower(n.text) {
	case "", "remote":
		if n.kind == kindText {
			return // it does not say which
		}
	case "http", "streamable-http", "streamablehttp", "streamable_http":
		n = made(n, kindText, "streamable-http")
	case "sse", "stdio", "auto":
		n = made(n, kindText, strings.ToLower(n.text))
	case "local":
		n = made(n, kindText, "stdio")
	case "builtin", "platform", "frontend", "inline_python": // of Goose
		t.isInside = true
	}
	t.set(p.key, "transport", n)
}

func (t *taken) tools(p pair) {
	if p.value.kind == kindList {
		allow(t, p)
	} else {
		t.pairs = append(t.pairs, p)
	}
}

func allow(t *taken, p pair) {
	if p.key.text != "available_tools" || len(p.value.items) > 0 { // of Goose, where none are all
		t.choice(&t.on, p)
	}
}

func deny(t *taken, p pair) { t.choice(&t.off, p) }

func (t *taken) choice(to **node, p pair) {
	if p.value.kind != kindList {
		t.refuse(p.key, p.key.text+" must be a list of tools, not "+string(p.value.kind), "")
		return
	}
	*to = t.words(p.value)
}

// chooseTools makes a choice of tools as we have it: a tool by its name goes before the
// pattern for all.
func (t *taken) chooseTools() {
	if t.on == nil && t.off == nil {
		return
	}
	at := cmp.Or(t.on, t.off)
	choice := made(at, kindMapping, "")
	seen := map[string]bool{}
	add := func(item *node, value *node) {
		if item.kind == kindText && !seen[item.text] {
			seen[item.text] = true
			choice.pairs = append(choice.pairs, pair{item, value})
		}
	}
	none := func(at *node) *node {
		n := made(at, kindMapping, "")
		n.pairs = []pair{{made(at, kindText, "enabled"), made(at, kindBool, "false")}}
		return n
	}
	if t.off != nil {
		for _, item := range t.off.items {
			add(item, none(item))
		}
	}
	if t.on != nil && !slices.ContainsFunc(t.on.items, func(item *node) bool { return item.text == "*" }) {
		for _, item := range t.on.items {
			add(item, made(item, kindMapping, ""))
		}
		add(made(at, kindText, "*"), none(at))
	}
	t.set(made(at, kindText, "tools"), "tools", choice)
}

// timeout takes a duration whose unit is documented, and reports whether it is one.
func (t *taken) timeout(p pair) bool {
	of, known := t.timeouts[p.key.text]
	if !known || p.value.kind != kindNumber {
		return false
	}
	number, err := strconv.ParseFloat(p.value.text, 64)
	d := time.Duration(number * float64(of.Unit)).Round(time.Millisecond)
	if err != nil || d <= 0 || number*float64(of.Unit) > float64(maxDuration) {
		return false
	}
	ours := "connect_timeout"
	if of.Call {
		ours = "call_timeout"
	}
	t.set(p.key, ours, made(p.value, kindText, shortDuration(d)))
	return true
}

// ofServer are our keys that a clients.Server has.
var ofServer = []string{"command", "args", "env", "cwd", "url", "headers", "transport", "description", "connect_timeout", "call_timeout", "tools"}

// server is what is taken as it is written: no variable is replaced.
func (t *taken) server(name string) clients.Server {
	s := clients.Server{Name: name}
	refuse := func(key *node, why string) {
		if key.line > 0 {
			why = fmt.Sprintf("line %d: %s", key.line, why)
		}
		s.Problem = cmp.Or(s.Problem, why)
	}
	for _, p := range t.pairs {
		switch key := p.key.text; {
		case key == "enabled" || key == "disabled":
			if !isBool(p.value.text) {
				refuse(p.key, key+" is neither true nor false")
			}
			s.Disabled = s.Disabled || p.value.text == strconv.FormatBool(key == "disabled")
		case !slices.Contains(ofServer, key):
			s.NotTaken = append(s.NotTaken, key)
		default:
			member := made(p.value, kindMapping, "")
			member.pairs = []pair{{p.key, (&taken{}).word(p.value)}}
			if json.Unmarshal(nodeJSON(member), &s) != nil {
				refuse(p.key, fmt.Sprintf("%s has a value of another kind than is known: %s", cmp.Or(p.key.inFile, key), p.value.kind))
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
func serversOf(block *node) (servers []pair, ok bool) {
	if block.kind != kindList {
		return block.pairs, block.kind == kindMapping || block.kind == kindNull
	}
	for _, item := range block.items {
		name := item.find("name")
		if name == nil || name.kind != kindText {
			return nil, false
		}
		servers = append(servers, pair{name, item})
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
			block = block.find(key)
		}
	}
	if err != nil || block == nil {
		return nil, err
	}
	pairs, ok := serversOf(block)
	if !ok {
		return nil, inClient(f, "line %d: %s must be a mapping of servers, not %s", block.line, f.Block[len(f.Block)-1], block.kind)
	}
	var servers []clients.Server
	for _, p := range pairs {
		s := dialect{f.Client.Notation, f.Client.Timeouts}.read(p.value).server(p.key.text)
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
func clientTree(f clients.File, data []byte) (*node, error) {
	if f.Client.TOML {
		tables, err := clients.PlainTOML(data)
		if err != nil {
			return nil, inClient(f, "%w", err)
		}
		return treeOfGo(tables), nil
	}
	if isBlank(data) {
		return nil, nil
	}
	data, bad := cleanText(data)
	if bad != nil {
		return nil, inClient(f, "%s", bad.message)
	}
	var root *node
	problems := make([]problem, 0, 1)
	if f.IsYAML() {
		root, problems = parseYAML(data)
	} else if root, bad = parseJSON(data); bad != nil {
		problems = append(problems, *bad)
	}
	if len(problems) > 0 {
		return nil, inClient(f, "line %d, column %d: %s", problems[0].line, problems[0].column, problems[0].message)
	}
	if left := maxPlain; f.IsYAML() && !root.fits(&left) {
		return nil, inClient(f, "it has more than %d values", maxPlain)
	}
	if root.kind != kindMapping {
		return nil, inClient(f, "it must be a mapping, not %s", root.kind)
	}
	return root, nil
}

// treeOfGo is a tree without places, mappings in the order of their keys.
func treeOfGo(value any) *node {
	switch v := value.(type) {
	case map[string]any:
		n := &node{kind: kindMapping}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			n.pairs = append(n.pairs, pair{textNode(key), treeOfGo(v[key])})
		}
		return n
	case []any:
		n := &node{kind: kindList}
		for _, item := range v {
			n.items = append(n.items, treeOfGo(item))
		}
		return n
	case bool:
		return &node{kind: kindBool, text: strconv.FormatBool(v)}
	case int64, float64:
		return &node{kind: kindNumber, text: fmt.Sprint(v)}
	}
	return textNode(fmt.Sprint(value))
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
				value = value.find(key)
			}
		}
		if value == nil || value.kind != kindMapping && value.kind != kindList || shape.yaml && !f.IsYAML() {
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
