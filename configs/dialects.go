package configs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"toolfinch/configs/clients"
	"toolfinch/configs/document"
)

// A dialect is a program's way to write a server; the zero dialect is ours. dialect.read
// returns servers in our keys.
type dialect struct {
	notation func(string) string // rewrites the variables of a text as ours; nil leaves them
	timeouts map[string]clients.Timeout
	folders  func(string) string    // replaces an editor's names of folders; nil leaves them
	off      func(name string) bool // says which servers the rest of the file switches off; nil for none
}

// row translates a key of some program's server.
type row struct {
	take func(t *taken, p document.Pair) // nil for a key without effect
	hint string                          // for a key without effect: what to write instead
	like string                          // our key with the same values; may be ""
}

// rows are keys of other programs, and our keys with other programs' values. A key means
// the same in all programs, however it joins its words: see rowOf.
var rows = map[string]row{
	"command":    {take: (*taken).command}, // a list, for opencode
	"cmd":        {take: (*taken).command, like: "command"},
	"executable": {take: (*taken).command, like: "command"},

	"args":      {take: as("args", (*taken).words)},
	"arguments": {take: as("args", (*taken).words), like: "args"},

	"env":         {take: as("env", (*taken).named)},
	"environment": {take: as("env", (*taken).named), like: "env"},
	"envs":        {take: as("env", (*taken).named), like: "env"},
	"env_keys":    {take: as("env", (*taken).named)},
	"env_vars":    {take: as("env", (*taken).named)},

	"cwd":               {take: as("cwd", (*taken).text)},
	"working_dir":       {take: as("cwd", (*taken).text), like: "cwd"},
	"working_directory": {take: as("cwd", (*taken).text), like: "cwd"},
	"workdir":           {take: as("cwd", (*taken).text), like: "cwd"},

	"url":       {take: as("url", (*taken).text)},
	"serverUrl": {take: as("url", (*taken).text), like: "url"},
	"uri":       {take: as("url", (*taken).text), like: "url"},
	"baseUrl":   {take: as("url", (*taken).text), like: "url"},
	"endpoint":  {take: as("url", (*taken).text), like: "url"},
	"httpUrl":   {take: (*taken).httpURL, like: "url"}, // of Gemini CLI, where url may be SSE

	"headers":              {take: as("headers", (*taken).named)},
	"http_headers":         {take: as("headers", (*taken).named), like: "headers"},
	"env_http_headers":     {take: as("headers", (*taken).namedVariables)},
	"bearer_token_env_var": {take: as("headers", (*taken).bearer)},
	"requestOptions":       {take: (*taken).requestOptions}, // of Continue
	"requestInit":          {take: (*taken).requestOptions},

	"oauth": {take: (*taken).oauth},

	"transport":     {take: (*taken).transport},
	"type":          {take: (*taken).transport, like: "transport"},
	"transportType": {take: (*taken).transport, like: "transport"},
	"protocol":      {take: (*taken).protocol}, // the transport, for mcpproxy-go

	"enabled":     {take: toggle(true)},
	"enable":      {take: toggle(true), like: "enabled"},
	"isEnabled":   {take: toggle(true), like: "enabled"},
	"active":      {take: toggle(true), like: "enabled"},
	"isActive":    {take: toggle(true), like: "enabled"},
	"disabled":    {take: toggle(false), like: "enabled"},
	"disable":     {take: toggle(false), like: "enabled"},
	"isDisabled":  {take: toggle(false), like: "enabled"},
	"inactive":    {take: toggle(false), like: "enabled"},
	"paused":      {take: toggle(false), like: "enabled"},
	"suspended":   {take: toggle(false), like: "enabled"},
	"deactivated": {take: toggle(false), like: "enabled"},
	"archived":    {take: toggle(false), like: "enabled"},
	"skip":        {take: toggle(false), like: "enabled"},
	"ignore":      {take: toggle(false), like: "enabled"},
	"off":         {take: toggle(false), like: "enabled"},
	"quarantined": {take: toggle(false), like: "enabled"}, // of mcpproxy-go: not approved yet
	"autoStart":   {take: (*taken).autoStart},             // of AnythingLLM
	"status":      {take: (*taken).status},
	"state":       {take: (*taken).status},

	"tools":           {take: (*taken).tools}, // a list, for Copilot CLI
	"includeTools":    {take: allow},
	"enabledTools":    {take: allow},
	"allowedTools":    {take: allow},
	"available_tools": {take: allow},
	"excludeTools":    {take: deny},
	"disabledTools":   {take: deny},

	// Other keys have the same information, or it is the name of an item of a list.
	"id": {take: nothing}, "serverName": {take: nothing}, "server_label": {take: nothing}, "label": {take: nothing}, "title": {take: nothing},
	"source": {take: nothing}, "name": {take: nothing}, "display_name": {take: nothing}, "bundled": {take: nothing},

	// Approval is the client's task; other keys are for editors.
	"alwaysAllow": {}, "autoApprove": {}, "trust": {}, "authProviderType": {}, "dev": {}, "gallery": {}, "version": {}, "sandboxEnabled": {},
	"auth":          {hint: "write the token under headers, or oauth: {client_id: ...}"},
	"headersHelper": {hint: "write the headers under headers"},
	"envFile":       {hint: "write the variables under env"},
	// Units differ between clients, so only keys of known clients are read.
	"timeout":             {hint: "write connect_timeout or call_timeout"},
	"connectionTimeout":   {hint: "write connect_timeout"},
	"startup_timeout_sec": {hint: "write connect_timeout"},
	"startup_timeout_ms":  {hint: "write connect_timeout"},
	"tool_timeout_sec":    {hint: "write call_timeout"},
}

// toolLists are the keys of rows whose lists choose a server's tools.
var toolLists = []string{"tools", "includeTools", "enabledTools", "allowedTools", "available_tools", "excludeTools", "disabledTools"}

// folded has the keys of rows by their letters and digits: programs write env_vars and envVars.
var folded = func() map[string]string {
	names := map[string]string{}
	for name := range rows {
		names[foldKey(name)] = name
	}
	return names
}()

// isOurs has our keys of a server, and oauthNames has those of oauth that are read, folded.
// Their tables fill them, because what reads a server is below the tables.
var isOurs, oauthNames = map[string]bool{}, map[string]string{}

func foldKey(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "", "+", "").Replace(key))
}

// rowOf returns the row of a key. Our own keys win.
func rowOf(key string) (row, bool) {
	if _, exact := rows[key]; !exact && isOurs[key] {
		return row{}, false
	}
	r, known := rows[folded[foldKey(key)]]
	return r, known
}

// taken is a server in our keys, with notes about its other keys.
type taken struct {
	dialect
	name     string
	in       *document.Node  // as in the file
	pairs    []document.Pair // in our keys; keys without a row unchanged
	unused   []note          // keys without effect
	mended   []note          // values that are not in the known form, and what they were taken for
	refused  []note
	lost     []document.Pair // what may make another server of it: unknown keys, and some of unused
	on, deny *document.Node  // lists of tools
	isInside bool            // a part of the file's program, no server
}

// note is about a key of a server.
type note struct {
	key  *document.Node
	text string // the unused key, or a sentence about it
	hint string
}

// read reads a server; a value that is no mapping has no keys.
func (l dialect) read(name string, n *document.Node) *taken {
	t := &taken{dialect: l, name: name, in: n}
	seen := map[string]*document.Node{}
	for _, p := range n.Pairs {
		if first := seen[p.Key.Text]; first != nil {
			t.refuse(p.Key, fmt.Sprintf("duplicate key %q", shorten(p.Key.Text)), fmt.Sprintf("first on line %d", first.Line))
			continue
		}
		seen[p.Key.Text] = p.Key
		t.member(p)
	}
	t.chooseTools()
	t.settle()
	if l.off != nil && l.off(name) {
		t.drop("enabled")
		t.pairs = append(t.pairs, document.Pair{Key: made(n, document.Text, "enabled"), Value: made(n, document.Bool, "false")})
	}
	return t
}

func (t *taken) member(p document.Pair) {
	row, known := rowOf(p.Key.Text)
	switch {
	case t.nested(p):
	case t.timeout(p):
	case !known && !isOurs[p.Key.Text]:
		t.pairs, t.lost = append(t.pairs, p), append(t.lost, p)
	case !known:
		t.pairs = append(t.pairs, document.Pair{Key: p.Key, Value: t.all(p.Value)})
	case p.Value.Kind == document.Null:
	case row.take == nil:
		t.skip(p, row.hint)
	default:
		row.take(t, p)
	}
}

// nests are keys that can have a part of a server in a mapping: Cline's CLI has one under
// transport, older versions of Zed under command.
var nests = []string{"transport", "command", "connection", "config", "server", "params", "serverparams", "stdio", "http", "sse", "streamablehttp", "remote", "local", "anythingllm"}

// nested takes the members of a mapping within the server. A nest's name can be the transport.
func (t *taken) nested(p document.Pair) bool {
	fold := foldKey(p.Key.Text)
	old := fold == "command" && p.Value.Find("path") != nil
	if p.Value.Kind != document.Mapping || !slices.Contains(nests, fold) || !old && fold != "transport" && fold != "anythingllm" && (!likeServer(p.Value) || hasOwn(t.in)) {
		return false
	}
	if kind := transportNames[fold]; kind != "" && fold != "command" && p.Value.Find("type") == nil {
		t.set(p.Key, "transport", made(p.Key, document.Text, kind))
	}
	for _, inner := range p.Value.Pairs {
		if old && inner.Key.Text == "path" {
			inner.Key = made(inner.Key, document.Text, "command")
		}
		t.member(inner)
	}
	return true
}

// isOwn reports whether a pair names a program or URL.
func isOwn(p document.Pair) bool {
	like := folded[foldKey(p.Key.Text)]
	return p.Value.Kind != document.Mapping && (like == "command" || like == "url" || rows[like].like == "command" || rows[like].like == "url")
}

func hasOwn(n *document.Node) bool { return slices.ContainsFunc(n.Pairs, isOwn) }

// likeServer reports whether a value names a program or URL, or has a nest that does.
func likeServer(n *document.Node) bool {
	return hasOwn(n) || slices.ContainsFunc(n.Pairs, func(p document.Pair) bool {
		return slices.Contains(nests, foldKey(p.Key.Text)) && (likeServer(p.Value) || p.Value.Find("path") != nil)
	})
}

// node returns the server in our keys.
func (t *taken) node() *document.Node {
	if t.in.Kind != document.Mapping {
		return t.in
	}
	return &document.Node{Kind: document.Mapping, Line: t.in.Line, Column: t.in.Column, Pairs: t.pairs}
}

func (t *taken) at(ours string) int {
	return slices.IndexFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == ours })
}

// drop removes one of our keys.
func (t *taken) drop(ours string) {
	t.pairs = slices.DeleteFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == ours })
}

// set sets our key to the value of a key in the file. It joins mappings and lists of
// several keys, and ignores empty ones, as well as a nil value.
func (t *taken) set(key *document.Node, ours string, value *document.Node) {
	if value == nil {
		return
	}
	i := t.at(ours)
	several := value.Kind == document.Mapping || value.Kind == document.List
	switch {
	case several && len(value.Items)+len(value.Pairs) == 0:
	case i < 0:
		t.pairs = append(t.pairs, document.Pair{Key: &document.Node{Kind: document.Text, Line: key.Line, Column: key.Column, Text: ours, WrittenAs: key.Text}, Value: value})
	case isEmpty(value):
	case isEmpty(t.pairs[i].Value):
		t.drop(ours)
		t.set(key, ours, value)
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

func isEmpty(n *document.Node) bool {
	return n.Kind == document.Text && strings.TrimSpace(n.Text) == ""
}

// settle decides between a program and a URL, and drops what does not go with it.
func (t *taken) settle() {
	var given [3]*document.Node
	for i, ours := range []string{"command", "url", "transport"} {
		if at := t.at(ours); at >= 0 && t.pairs[at].Value.Kind == document.Text {
			given[i] = t.pairs[at].Value
		}
	}
	command, url, transport := given[0], given[1], given[2]
	if command != nil && url != nil && (isEmpty(command) || isEmpty(url)) {
		if isEmpty(url) {
			url = nil
			t.drop("url")
		} else {
			command = nil
			t.drop("command")
		}
	}
	if transport == nil {
		return
	}
	stdio, http := transport.Text == "stdio", transport.Text == "streamable-http" || transport.Text == "sse"
	unfit := func(key string) {
		t.mend(transport, fmt.Sprintf("%s is not used with %s", key, map[bool]string{true: "command", false: "url"}[key == "url" || command != nil && url == nil]), "keep one")
		t.drop(key)
	}
	switch {
	case command != nil && url != nil && stdio:
		unfit("url")
	case command != nil && url != nil && http:
		unfit("command")
	case command != nil && url == nil && http, command == nil && url != nil && stdio:
		unfit("transport")
	}
}

func (t *taken) refuse(key *document.Node, why, hint string) {
	t.refused = append(t.refused, note{key, why, hint})
}

func (t *taken) mend(key *document.Node, what, hint string) {
	t.mended = append(t.mended, note{key, what, hint})
}

// skip notes a key without effect.
func (t *taken) skip(p document.Pair, hint string) {
	if t.unused = append(t.unused, note{p.Key, p.Key.Text, hint}); slices.Contains([]string{"auth", "headershelper", "envfile"}, foldKey(p.Key.Text)) {
		t.lost = append(t.lost, p)
	}
}

// as takes a value under our key in the form that form returns.
func as(ours string, form func(*taken, document.Pair) *document.Node) func(*taken, document.Pair) {
	return func(t *taken, p document.Pair) { t.set(p.Key, ours, form(t, p)) }
}

func nothing(*taken, document.Pair) {}

// made returns a value with the place of another.
func made(at *document.Node, kind document.Kind, text string) *document.Node {
	return &document.Node{Kind: kind, Line: at.Line, Column: at.Column, Text: text}
}

// ours returns a text of the file in our notation.
func (t *taken) ours(text string) string {
	if t.notation != nil {
		text = t.notation(text)
	}
	if t.folders != nil {
		text = t.folders(text)
	}
	return text
}

// text returns a text with our variables. Other values stay, and are refused later.
func (t *taken) text(p document.Pair) *document.Node {
	if p.Value.Kind != document.Text {
		return p.Value
	}
	return made(p.Value, document.Text, t.ours(p.Value.Text))
}

// all returns a value whose texts have our variables.
func (t *taken) all(n *document.Node) *document.Node {
	if t.notation == nil && t.folders == nil {
		return n
	}
	out := *n
	if out.Kind == document.Text {
		out.Text = t.ours(out.Text)
	}
	out.Items, out.Pairs = nil, nil
	for _, item := range n.Items {
		out.Items = append(out.Items, t.all(item))
	}
	for _, p := range n.Pairs {
		out.Pairs = append(out.Pairs, document.Pair{Key: p.Key, Value: t.all(p.Value)})
	}
	return &out
}

// word returns a text, number or truth value as text; ok is false for other values.
func (t *taken) word(n *document.Node) (text *document.Node, ok bool) {
	switch n.Kind {
	case document.Number, document.Bool:
		return made(n, document.Text, n.Text), true
	case document.Text:
		return made(n, document.Text, t.ours(n.Text)), true
	}
	return nil, n.Kind == document.Broken
}

// unquoted returns the list or mapping that a text has as JSON; else the value.
func unquoted(n *document.Node) *document.Node {
	if n.Kind != document.Text || !strings.HasPrefix(n.Text, "[") && !strings.HasPrefix(n.Text, "{") {
		return n
	}
	inner, bad := document.ParseJSON([]byte(n.Text))
	if bad != nil {
		return n
	}
	return placed(inner, n)
}

// placed gives a value and all its parts the place of another.
func placed(n, at *document.Node) *document.Node {
	n.Line, n.Column = at.Line, at.Column
	for _, item := range n.Items {
		placed(item, at)
	}
	for _, p := range n.Pairs {
		placed(p.Key, at)
		placed(p.Value, at)
	}
	return n
}

// wordsOfShell splits a text into words at blanks outside of quotes. A backslash is a
// character of a path.
func wordsOfShell(text string) (words []string, ok bool) {
	var word strings.Builder
	quote, begun := rune(0), false
	for _, r := range text {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote == 0 && unicode.IsSpace(r):
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if begun {
		words = append(words, word.String())
	}
	return words, quote == 0
}

// words takes a list of words, or a text of words.
func (t *taken) words(p document.Pair) *document.Node {
	key, n := p.Key.Text, unquoted(p.Value)
	list := made(n, document.List, "")
	switch {
	case n.Kind == document.Broken:
		return n
	case n.Kind == document.Text || n.Kind == document.Number:
		words, ok := wordsOfShell(n.Text)
		if !ok {
			t.refuse(n, key+" is text with an open quote", "write a list")
			return nil
		}
		for _, word := range words {
			list.Items = append(list.Items, made(n, document.Text, t.ours(word)))
		}
		if len(words) > 0 {
			t.mend(p.Key, key+" is no list, and is taken word by word", "write a list")
		}
		return list
	case n.Kind != document.List && len(n.Pairs)+len(n.Text) > 0:
		t.refuse(p.Value, key+" must be a list, not "+string(n.Kind), "")
		return nil
	}
	for i, item := range n.Items {
		if word, ok := t.word(item); ok {
			list.Items = append(list.Items, cmp.Or(word, item))
		} else {
			t.refuse(item, fmt.Sprintf("%s[%d] must be text, not %s", key, i, item.Kind), "")
		}
	}
	return list
}

var upperName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// named takes a mapping of names to words, or a list or text of NAME=VALUE. In a list of
// variables NAME alone is passed on.
func (t *taken) named(p document.Pair) *document.Node {
	key, n := p.Key.Text, unquoted(p.Value)
	header := strings.HasSuffix(foldKey(key), "headers")
	mapping := made(n, document.Mapping, "")
	add := func(name, value *document.Node) {
		switch word, ok := t.word(value); {
		case ok:
			mapping.Pairs = append(mapping.Pairs, document.Pair{Key: name, Value: cmp.Or(word, value)})
		case value.Kind == document.Null && header:
			t.refuse(name, fmt.Sprintf("%s %s has no value", key, shorten(name.Text)), `write "" to send it empty`)
		case value.Kind == document.Null:
			t.refuse(name, fmt.Sprintf("%s %s has no value", key, shorten(name.Text)), "write NAME: ${NAME} to pass a variable on")
		default:
			t.refuse(value, fmt.Sprintf("%s %s must be text, not %s", key, shorten(name.Text), value.Kind), "")
		}
	}
	items := n.Items
	switch {
	case n.Kind == document.Broken:
		return n
	case n.Kind == document.Text && (header || strings.Contains(n.Text, "\n")):
		for line := range strings.Lines(n.Text) {
			if line = strings.TrimSpace(line); line != "" {
				items = append(items, made(n, document.Text, line))
			}
		}
	case n.Kind == document.Text:
		words, _ := wordsOfShell(n.Text)
		for _, word := range words {
			items = append(items, made(n, document.Text, word))
		}
	case n.Kind != document.Mapping && n.Kind != document.List:
		t.refuse(p.Value, fmt.Sprintf("%s must be a mapping of names to text, not %s", key, n.Kind), "")
		return nil
	}
	for _, pair := range n.Pairs {
		add(pair.Key, pair.Value)
	}
	isList := foldKey(key) == "envkeys" || foldKey(key) == "envvars" // of names
	for i, item := range items {
		name := item.Text
		switch {
		case t.namedItem(item, header, add):
		case item.Kind == document.Text && n.Kind == document.List && !header && (isList && variableName.MatchString(name) || upperName.MatchString(name)):
			mapping.Pairs = append(mapping.Pairs, document.Pair{Key: item, Value: made(item, document.Text, "${"+name+"}")})
		default:
			t.refuse(item, fmt.Sprintf("%s[%d] has no name and value", key, i), "write a mapping of names to text")
		}
	}
	if len(items) > 0 && !isList {
		t.mend(p.Key, key+" is no mapping, and is taken as names with values", "write a mapping")
	}
	return mapping
}

// namedItem takes an item of a list of names and values.
func (t *taken) namedItem(item *document.Node, header bool, add func(name, value *document.Node)) bool {
	between := "="
	if header {
		between = ":="
	}
	switch at := strings.IndexAny(item.Text, between); {
	case item.Kind == document.Mapping:
		var name, value *document.Node
		for _, p := range item.Pairs {
			switch foldKey(p.Key.Text) {
			case "name", "key", "variable", "header":
				name = p.Value
			case "value":
				value = p.Value
			}
		}
		switch {
		case name != nil && name.Kind == document.Text && value != nil:
			add(name, value)
		case name != nil || len(item.Pairs) != 1:
			return false
		default:
			add(item.Pairs[0].Key, item.Pairs[0].Value)
		}
		return true
	case item.Kind != document.Text:
	case at > 0:
		add(made(item, document.Text, strings.TrimSpace(item.Text[:at])), made(item, document.Text, strings.TrimSpace(item.Text[at+1:])))
		return true
	}
	return false
}

// namedVariables makes variables of the names in the values.
func (t *taken) namedVariables(p document.Pair) *document.Node {
	mapping := made(p.Value, document.Mapping, "")
	for _, pair := range p.Value.Pairs {
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: pair.Key, Value: made(pair.Value, pair.Value.Kind, "${"+pair.Value.Text+"}")})
	}
	if p.Value.Kind != document.Mapping {
		t.refuse(p.Value, fmt.Sprintf("%s must be a mapping of names to variables, not %s", p.Key.Text, p.Value.Kind), "")
	}
	return mapping
}

// bearer makes a header of the name of a token's variable.
func (t *taken) bearer(p document.Pair) *document.Node {
	if p.Value.Kind != document.Text {
		t.refuse(p.Value, fmt.Sprintf("%s must be the name of a variable, not %s", p.Key.Text, p.Value.Kind), "")
		return nil
	}
	mapping := made(p.Value, document.Mapping, "")
	mapping.Pairs = []document.Pair{{Key: made(p.Value, document.Text, "Authorization"), Value: made(p.Value, document.Text, "Bearer ${"+p.Value.Text+"}")}}
	return mapping
}

func (t *taken) command(p document.Pair) {
	if p.Value.Kind != document.List || len(p.Value.Items) == 0 {
		t.set(p.Key, "command", t.text(p))
		return
	}
	words := t.words(p)
	if len(words.Items) == 0 {
		return
	}
	t.set(p.Key, "command", words.Items[0])
	words.Items = words.Items[1:]
	if i := t.at("args"); i >= 0 {
		words.Items = append(words.Items, t.pairs[i].Value.Items...)
		t.drop("args")
	}
	t.set(p.Key, "args", words)
}

func (t *taken) httpURL(p document.Pair) {
	t.set(p.Key, "url", t.text(p))
	t.set(p.Key, "transport", made(p.Value, document.Text, "streamable-http"))
}

func (t *taken) requestOptions(p document.Pair) {
	for _, inner := range p.Value.Pairs {
		if inner.Key.Text == "headers" {
			t.set(p.Key, "headers", t.named(inner))
		} else {
			t.unused = append(t.unused, note{inner.Key, p.Key.Text + "." + inner.Key.Text, ""})
			t.lost = append(t.lost, inner)
		}
	}
}

// transportNames are programs' names of transports, folded.
var transportNames = map[string]string{
	"http": "streamable-http", "https": "streamable-http", "streamable": "streamable-http", "streamablehttp": "streamable-http", "httpstream": "streamable-http",
	"httpstreaming": "streamable-http", "streaminghttp": "streamable-http", "httpstreamable": "streamable-http", "httponly": "streamable-http",
	"sse": "sse", "httpsse": "sse", "serversentevents": "sse", "sseonly": "sse",
	"stdio": "stdio", "local": "stdio", "process": "stdio", "command": "stdio", "cli": "stdio", "standardio": "stdio",
	"auto": "auto",
}

// transport reads clients' names of transports.
func (t *taken) transport(p document.Pair) {
	n := p.Value
	switch fold := foldKey(n.Text); {
	case n.Kind != document.Text:
	case fold == "", fold == "remote", fold == "mcp", fold == "custom", fold == "url":
		return // not a transport
	case transportNames[fold] != "":
		n = made(n, document.Text, transportNames[fold])
	case slices.Contains([]string{"builtin", "platform", "frontend", "inlinepython"}, fold): // of Goose
		t.isInside = true
	}
	t.set(p.Key, "transport", n)
}

// protocol is ours, or the transport.
func (t *taken) protocol(p document.Pair) {
	if kind := transportNames[foldKey(p.Value.Text)]; p.Value.Kind == document.Text && kind != "" && kind != "auto" {
		t.transport(p)
		return
	}
	t.pairs = append(t.pairs, p)
}

// truths are words for true and false, in small letters.
var truths = map[string]bool{
	"true": true, "yes": true, "on": true, "1": true, "enabled": true, "active": true,
	"false": false, "no": false, "off": false, "0": false, "disabled": false, "inactive": false,
}

// toggle takes a key that switches a server on or off, when it is true.
func toggle(on bool) func(*taken, document.Pair) {
	return func(t *taken, p document.Pair) {
		n := p.Value
		if n.Kind == document.Text && strings.Contains(t.ours(n.Text), "${") {
			t.pairs = append(t.pairs, document.Pair{
				Key:   &document.Node{Kind: document.Text, Line: p.Key.Line, Column: p.Key.Column, Text: map[bool]string{true: "enabled", false: "disabled"}[on], WrittenAs: p.Key.Text},
				Value: t.text(p),
			})
			return
		}
		is, known := truths[strings.ToLower(strings.TrimSpace(n.Text))]
		if !known || n.Kind == document.List || n.Kind == document.Mapping {
			t.refuse(n, fmt.Sprintf("%s must be true or false, not %s", p.Key.Text, asWritten(n)), "")
			return
		}
		if n.Kind != document.Bool {
			t.mend(p.Key, fmt.Sprintf("%s is %s, and is taken as %t", p.Key.Text, n.Kind, is), "write true or false")
		}
		t.set(p.Key, "enabled", made(n, document.Bool, strconv.FormatBool(is == on)))
	}
}

// autoStart is false for a server that the program starts only when it is told to.
func (t *taken) autoStart(p document.Pair) {
	if is, known := truths[strings.ToLower(p.Value.Text)]; known && !is {
		t.mend(p.Key, p.Key.Text+" is false, and is taken as disabled", "write enabled")
		t.set(p.Key, "enabled", made(p.Value, document.Bool, "false"))
	}
}

// oauth keeps the keys that are known, in a file of another program.
func (t *taken) oauth(p document.Pair) {
	if p.Value.Kind != document.Mapping || t.notation == nil {
		t.pairs = append(t.pairs, document.Pair{Key: p.Key, Value: t.all(p.Value)})
		return
	}
	mapping := made(p.Value, document.Mapping, "")
	for _, inner := range p.Value.Pairs {
		key := oauthNames[foldKey(inner.Key.Text)]
		if key == "" {
			t.unused = append(t.unused, note{inner.Key, p.Key.Text + "." + inner.Key.Text, ""})
			continue
		}
		inner.Key = &document.Node{Kind: document.Text, Line: inner.Key.Line, Column: inner.Key.Column, Text: key, WrittenAs: inner.Key.Text}
		mapping.Pairs = append(mapping.Pairs, document.Pair{Key: inner.Key, Value: t.all(inner.Value)})
	}
	t.pairs = append(t.pairs, document.Pair{Key: p.Key, Value: mapping})
}

// status switches a server off if it says so; else it is a state without effect.
func (t *taken) status(p document.Pair) {
	if is, known := truths[strings.ToLower(p.Value.Text)]; known && !is || foldKey(p.Value.Text) == "paused" {
		t.set(p.Key, "enabled", made(p.Value, document.Bool, "false"))
		return
	}
	t.skip(p, "")
}

func (t *taken) tools(p document.Pair) {
	switch {
	case p.Value.Kind == document.List:
		allow(t, p)
	case p.Value.Kind == document.Text && (p.Value.Text == "*" || strings.EqualFold(p.Value.Text, "all")):
	default:
		t.pairs = append(t.pairs, p)
	}
}

func allow(t *taken, p document.Pair) {
	if p.Key.Text != "available_tools" || len(p.Value.Items) > 0 { // of Goose, where an empty list means all
		t.choice(&t.on, p)
	}
}

func deny(t *taken, p document.Pair) { t.choice(&t.deny, p) }

func (t *taken) choice(to **document.Node, p document.Pair) {
	if p.Value.Kind != document.List {
		t.refuse(p.Key, p.Key.Text+" must be a list of tools, not "+string(p.Value.Kind), "")
		return
	}
	*to = t.words(p)
}

// chooseTools writes a choice of tools in our keys, where a name wins over the pattern for
// all tools.
func (t *taken) chooseTools() {
	if t.on == nil && t.deny == nil {
		return
	}
	at := cmp.Or(t.on, t.deny)
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
	if t.deny != nil {
		for _, item := range t.deny.Items {
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

// maxDuration bounds every wait.
const maxDuration = 24 * time.Hour

// shortDuration writes 2m0s as 2m.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
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
	for _, n := range t.refused {
		refuse(n.key, n.text)
	}
	for _, p := range t.pairs {
		switch key := p.Key.Text; {
		case key == "enabled" || key == "disabled":
			if !isBool(p.Value.Text) {
				refuse(p.Key, cmp.Or(p.Key.WrittenAs, key)+" is neither true nor false")
			}
			s.Disabled = s.Disabled || p.Value.Text == strconv.FormatBool(key == "disabled")
		case slices.Contains(ofServer, key):
			value := p.Value
			if word, ok := (&taken{}).word(value); ok && word != nil {
				value = word
			}
			member := made(value, document.Mapping, "")
			member.Pairs = []document.Pair{{Key: p.Key, Value: value}}
			if json.Unmarshal(member.JSON(), &s) != nil {
				refuse(p.Key, fmt.Sprintf("%s has a value of another kind than is known: %s", cmp.Or(p.Key.WrittenAs, key), p.Value.Kind))
			}
		case isOurs[key]:
			if s.Others == nil {
				s.Others = map[string]json.RawMessage{}
			}
			s.Others[key] = p.Value.JSON()
		default:
			s.NotTaken = append(s.NotTaken, key)
		}
	}
	for _, n := range t.unused {
		s.NotTaken = append(s.NotTaken, n.text)
	}
	slices.Sort(s.NotTaken)
	for _, n := range t.mended {
		s.Mended = append(s.Mended, n.text)
	}
	lost := made(t.in, document.Mapping, "")
	if lost.Pairs = t.lost; len(lost.Pairs) > 0 {
		s.Lost = lost.JSON()
	}
	switch {
	case s.Problem != "":
	case t.isInside && s.Command == "" && s.URL == "":
		s.Problem = "it is a part of the program, not a server"
	case s.Command == "" && s.URL == "":
		s.Problem = "it has neither a command nor a URL"
	case s.Command != "" && s.URL != "":
		s.Problem = "it has both a command and a URL"
	case s.Transport != "" && !slices.Contains([]string{"auto", "stdio", "sse", "streamable-http"}, s.Transport) && !strings.Contains(s.Transport, "${"):
		s.Problem = fmt.Sprintf("its transport is %q, which toolfinch does not speak", shorten(s.Transport))
	}
	if s.Command != "" || s.Problem != "" || s.Transport == "auto" {
		s.Transport = ""
	}
	return s
}

// serversOf returns the servers of a block: a mapping by name, or a list of servers, where
// one without a name, or with the name of another, gets one. ok is false for any other value.
func serversOf(block *document.Node) (servers []document.Pair, ok bool) {
	if block.Kind != document.List {
		return block.Pairs, block.Kind == document.Mapping || block.Kind == document.Null
	}
	if !slices.ContainsFunc(block.Items, func(item *document.Node) bool { return item.Kind == document.Mapping }) {
		return nil, len(block.Items) == 0
	}
	taken := map[string]bool{}
	for i, item := range block.Items {
		key := *nameIn(item, i)
		for n := 2; taken[key.Text]; n++ {
			key.Text = fmt.Sprintf("%s-%d", nameIn(item, i).Text, n)
		}
		taken[key.Text] = true
		servers = append(servers, document.Pair{Key: &key, Value: item})
	}
	return servers, true
}

// nameIn returns the name of an item of a list.
func nameIn(item *document.Node, i int) *document.Node {
	for _, key := range []string{"name", "id", "serverName", "server_name", "server_label", "label", "title"} {
		if name := item.Find(key); name != nil && name.Kind == document.Text && name.Text != "" {
			return name
		}
	}
	return made(item, document.Text, fmt.Sprintf("server-%d", i+1))
}

// wordsOf returns a value and the values of a list as they are written.
func wordsOf(n *document.Node) (words []string) {
	if n == nil {
		return nil
	}
	if n.Text != "" {
		words = append(words, n.Text)
	}
	for _, item := range n.Items {
		words = append(words, wordsOf(item)...)
	}
	return words
}
