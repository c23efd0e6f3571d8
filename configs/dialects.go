package configs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

// A dialect is a program's way to write a server; the zero dialect is ours. dialect.read
// returns servers in our keys.
type dialect struct {
	notation func(string) string // rewrites the variables of a text as ours; nil leaves them
	timeouts map[string]clients.Timeout
}

// row translates a key of some program's server.
type row struct {
	take func(t *taken, p document.Pair) // nil for a key without effect
	hint string                          // for a key without effect: what to write instead
	like string                          // our key with the same values; may be ""
}

// rows are keys of other programs, and our keys with other programs' values. A key means
// the same in all programs.
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
	"httpUrl":   {take: (*taken).httpURL, like: "url"}, // of Gemini CLI, where url may be SSE

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

	// Other keys have the same information.
	"source": {take: nothing}, "name": {take: nothing}, "display_name": {take: nothing}, "bundled": {take: nothing},

	// Approval is the client's task; other keys are for editors.
	"alwaysAllow": {}, "autoApprove": {}, "trust": {}, "authProviderType": {}, "dev": {}, "gallery": {}, "version": {}, "sandboxEnabled": {},
	"auth":    {hint: "write the token under headers, or oauth: {client_id: ...}"},
	"envFile": {hint: "write the variables under env"},
	// Units differ between clients, so only keys of known clients are read.
	"timeout":             {hint: "write connect_timeout or call_timeout"},
	"connectionTimeout":   {hint: "write connect_timeout"},
	"startup_timeout_sec": {hint: "write connect_timeout"},
	"startup_timeout_ms":  {hint: "write connect_timeout"},
	"tool_timeout_sec":    {hint: "write call_timeout"},
}

// toolLists are the keys of rows whose lists choose a server's tools.
var toolLists = []string{"tools", "includeTools", "enabledTools", "enabled_tools", "available_tools", "excludeTools", "disabledTools", "disabled_tools"}

// taken is a server in our keys, with notes about its other keys.
type taken struct {
	dialect
	in       *document.Node  // as in the file
	pairs    []document.Pair // in our keys; keys without a row unchanged
	unused   []note
	refused  []note
	on, off  *document.Node // lists of tools
	isInside bool           // a part of the file's program, no server
}

// note is about a key of a server.
type note struct {
	key  *document.Node
	text string // the unused key, or why the key is refused
	hint string
}

// read reads a server; a value that is no mapping has no keys.
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

// flat returns the members of a server, without the mappings around them: Cline's CLI has
// one under transport, older versions of Zed under command.
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

// node returns the server in our keys.
func (t *taken) node() *document.Node {
	if t.in.Kind != document.Mapping {
		return t.in
	}
	return &document.Node{Kind: document.Mapping, Line: t.in.Line, Column: t.in.Column, Pairs: t.pairs}
}

// set sets our key to the value of a key in the file. It joins mappings and lists of
// several keys, and ignores empty ones.
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

// as takes a value under our key in the form that form returns.
func as(ours string, form func(*taken, *document.Node) *document.Node) func(*taken, document.Pair) {
	return func(t *taken, p document.Pair) { t.set(p.Key, ours, form(t, p.Value)) }
}

func nothing(*taken, document.Pair) {}

// made returns a value with the place of another.
func made(at *document.Node, kind document.Kind, text string) *document.Node {
	return &document.Node{Kind: kind, Line: at.Line, Column: at.Column, Text: text}
}

// text returns a text with our variables. Other values stay, and are refused later.
func (t *taken) text(n *document.Node) *document.Node {
	if n.Kind != document.Text || t.notation == nil {
		return n
	}
	return made(n, document.Text, t.notation(n.Text))
}

// word returns a text, number or truth value as text.
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

// variables makes a mapping of variables from a list of names.
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

// namedVariables makes variables of the names in the values.
func (t *taken) namedVariables(n *document.Node) *document.Node {
	mapping := *n
	mapping.Pairs = nil
	for _, p := range n.Pairs {
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: p.Key, Value: made(p.Value, p.Value.Kind, "${"+p.Value.Text+"}")})
	}
	return &mapping
}

// bearer makes a header of the name of a token's variable.
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

// transport reads clients' names of transports.
func (t *taken) transport(p document.Pair) {
	n := p.Value
	switch strings.ToLower(n.Text) {
	case "", "remote":
		if n.Kind == document.Text {
			return // not a transport
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
	if p.Key.Text != "available_tools" || len(p.Value.Items) > 0 { // of Goose, where an empty list means all
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

// chooseTools writes a choice of tools in our keys, where a name wins over the pattern for
// all tools.
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

// timeout takes a duration with a documented unit, and reports whether it did.
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

// ofServer are our keys of a clients.Server.
var ofServer = []string{"command", "args", "env", "cwd", "url", "headers", "transport", "description", "connect_timeout", "call_timeout", "tools"}

// server returns the server with variables as they are written.
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

// serversOf returns the servers of a block: a mapping by name, or a list of servers with
// names. ok is false for any other value.
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
