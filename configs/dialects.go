package configs

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"toolfinch/configs/clients"
	"toolfinch/internal/document"
)

// A dialect is a program's way to write a server; the zero dialect is ours. dialect.read
// returns servers in our keys.
type dialect struct {
	notation func(string) string // rewrites the variables of a text as ours; nil leaves them
	timeouts map[string]clients.Timeout
	off      func(name string) bool // says which servers the rest of the file switches off; nil for none
}

// block is a mapping or list of servers of a file.
type block struct {
	key     string // of the top level
	label   string
	at      *document.Node
	dialect dialect
}

// row translates a key of some program's server.
type row struct {
	take func(t *taken, p document.Pair) // nil for a key without effect
	also string                          // other names of the key
	hint string                          // for a key without effect: what to write instead
	lost bool                            // of two servers that differ in this key alone, neither is the other
}

// rows are keys of other programs, and our keys with other programs' values. A key means
// the same in all programs, however it joins its words. folded has their keys by the letters
// and digits of all their names: programs write env_vars and envVars.
var rows, folded = map[string]row{}, map[string]string{}

// The functions in rows use rows, so it is filled here.
func init() {
	rows = map[string]row{
		"command": {take: (*taken).command, also: "cmd executable"}, // a list, for opencode
		"args":    {take: as("args", (*taken).words), also: "arguments"},
		"env":     {take: as("env", (*taken).named), also: "environment envs"},
		"envVars": {take: as("env", (*taken).named), also: "env_keys"}, // a list of names, for Codex and Goose
		"cwd":     {take: as("cwd", (*taken).text), also: "workingDir workingDirectory workdir"},

		"url":     {take: as("url", (*taken).text), also: "serverUrl uri baseUrl endpoint"},
		"httpUrl": {take: (*taken).httpURL}, // of Gemini CLI, where url may be SSE

		"headers":           {take: as("headers", (*taken).named), also: "httpHeaders"},
		"envHttpHeaders":    {take: as("headers", (*taken).namedVariables)},
		"bearerTokenEnvVar": {take: as("headers", (*taken).bearer)},
		"requestOptions":    {take: (*taken).nest, also: "requestInit"}, // of Continue
		"oauth":             {take: (*taken).oauth},

		"transport":   {take: (*taken).transport, also: "type transportType"},
		"protocol":    {take: (*taken).protocol}, // the transport, for mcpproxy-go
		"anythingllm": {take: (*taken).nest},

		"enabled":  {take: (*taken).toggle, also: "enable isEnabled active isActive"},
		"disabled": {take: (*taken).toggle, also: "disable isDisabled inactive paused suspended deactivated archived skip ignore off quarantined"},
		"status":   {take: (*taken).status, also: "state autoStart"},

		"tools":        {take: (*taken).tools}, // a list, for Copilot CLI
		"includeTools": {take: allow, also: "enabledTools allowedTools availableTools"},
		"excludeTools": {take: deny, also: "disabledTools"},

		// Other keys have the same information, or it is the name of an item of a list.
		"name": {take: nothing, also: "id serverName serverLabel label title source displayName bundled"},

		// Approval is the client's task; other keys are for editors.
		"autoApprove":   {also: "alwaysAllow trust authProviderType dev gallery version sandboxEnabled"},
		"auth":          {hint: "write the token under headers, or oauth: {client_id: ...}", lost: true},
		"headersHelper": {hint: "write the headers under headers", lost: true},
		"envFile":       {hint: "write the variables under env", lost: true},
		// Units differ between clients, so only keys of known clients are read.
		"timeout":           {hint: "write connect_timeout or call_timeout"},
		"connectionTimeout": {hint: "write connect_timeout", also: "startupTimeoutSec startupTimeoutMs"},
		"toolTimeoutSec":    {hint: "write call_timeout"},
	}
	for key, row := range rows {
		for _, name := range append(strings.Fields(row.also), key) {
			folded[foldKey(name)] = key
		}
	}
}

// oauthRows are other programs' keys of oauth, and ours for them; "" for what toolfinch
// discovers.
var oauthRows = map[string]string{
	"clientId": "client_id", "clientSecret": "client_secret", "redirectUri": "redirect_url", "callbackPort": "redirect_url", "scope": "scopes", "enabled": "enabled",
	"authorizationUrl": "", "tokenUrl": "", "authServerMetadataUrl": "", "registrationUrl": "", "tokenParamName": "",
}

func foldKey(key string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "", ".", "", " ", "", "+", "").Replace(key))
}

// keyOf returns the key of rows that a key in a file means, "" for none.
func keyOf(key *document.Node) string { return folded[foldKey(key.Text)] }

// taken is a server in our keys, with notes about its other keys.
type taken struct {
	dialect
	name     string
	in       *document.Node  // as in the file
	pairs    []document.Pair // in our keys; keys without a row unchanged
	unused   []note          // keys without effect
	mended   []note          // values that are not in the known form, and what they were taken for
	refused  []note
	lost     []document.Pair // without effect, and may make another server of it
	on, deny *document.Node  // lists of tools
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
		t.set(n, "enabled", made(n, document.Bool, "false"))
	}
	return t
}

func (t *taken) member(p document.Pair) {
	key := keyOf(p.Key)
	switch row := rows[key]; {
	case t.timeout(p):
	case key == "" && likeServer(p.Value) && !hasOwn(t.in):
		t.mend(p.Key, shorten(p.Key.Text)+" is taken as the server", "write its keys without the one around them")
		t.nest(p)
	case key == "":
		t.pairs = append(t.pairs, document.Pair{Key: p.Key, Value: t.all(p.Value)})
	case p.Value.Kind == document.Null:
	case row.take == nil:
		if t.unused = append(t.unused, note{p.Key, p.Key.Text, row.hint}); row.lost {
			t.lost = append(t.lost, p)
		}
	default:
		row.take(t, p)
	}
}

// nest takes the members of a mapping within the server, whose name may be the transport:
// Cline's CLI has one under transport, older versions of Zed under command.
func (t *taken) nest(p document.Pair) {
	for _, inner := range p.Value.Pairs {
		if inner.Key.Text == "path" && keyOf(p.Key) == "command" {
			inner.Key = made(inner.Key, document.Text, "command")
		}
		t.member(inner)
	}
	if kind := transportNames[foldKey(p.Key.Text)]; kind != "" && t.at("transport") < 0 && keyOf(p.Key) == "" {
		t.set(p.Key, "transport", made(p.Key, document.Text, kind))
	}
}

// hasOwn reports whether a mapping names a program or URL itself.
func hasOwn(n *document.Node) bool {
	return slices.ContainsFunc(n.Pairs, func(p document.Pair) bool {
		return p.Value.Kind != document.Mapping && slices.Contains([]string{"command", "url", "httpUrl"}, keyOf(p.Key))
	})
}

// likeServer reports whether a mapping names a program or URL, itself or in a mapping for
// the transport.
func likeServer(n *document.Node) bool {
	return hasOwn(n) || slices.ContainsFunc(n.Pairs, func(p document.Pair) bool {
		fold := foldKey(p.Key.Text)
		return (fold == "transport" || transportNames[fold] != "") && (likeServer(p.Value) || p.Value.Find("path") != nil)
	})
}

// node returns the server in our keys.
func (t *taken) node() *document.Node {
	if t.in.Kind != document.Mapping {
		return t.in
	}
	n := made(t.in, document.Mapping, "")
	n.Pairs = t.pairs
	return n
}

func (t *taken) at(ours string) int {
	return slices.IndexFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == ours })
}

// drop removes one of our keys.
func (t *taken) drop(ours string) {
	t.pairs = slices.DeleteFunc(t.pairs, func(p document.Pair) bool { return p.Key.Text == ours })
}

// set sets our key to the value of a key in the file. It joins mappings and lists of
// several keys, and ignores empty values, as well as nil.
func (t *taken) set(key *document.Node, ours string, value *document.Node) {
	if value == nil || value.Kind != document.Broken && len(value.Items)+len(value.Pairs)+len(strings.TrimSpace(value.Text)) == 0 {
		return
	}
	i := t.at(ours)
	switch {
	case i < 0:
		t.pairs = append(t.pairs, document.Pair{Key: called(key, ours), Value: value})
	case value.Kind != t.pairs[i].Value.Kind:
		t.refuse(key, fmt.Sprintf("%s must be %s, not %s", key.Text, t.pairs[i].Value.Kind, value.Kind), "")
	case value.Kind == document.Mapping || value.Kind == document.List:
		joined := *t.pairs[i].Value
		joined.Pairs, joined.Items = slices.Concat(joined.Pairs, value.Pairs), slices.Concat(joined.Items, value.Items)
		t.pairs[i].Value = &joined
	case value.Text != t.pairs[i].Value.Text:
		t.refuse(key, fmt.Sprintf("%s and %s contradict each other", cmp.Or(t.pairs[i].Key.WrittenAs, ours), key.Text), "keep one")
	}
}

// settle drops what does not go with the transport.
func (t *taken) settle() {
	at := t.at("transport")
	if at < 0 {
		return
	}
	transport := t.pairs[at].Value
	command, url := t.at("command") >= 0, t.at("url") >= 0
	unfit := func(key, with string) {
		t.mend(transport, key+" is not used with "+with, "keep one")
		t.drop(key)
	}
	switch isHTTP := transport.Text == "streamable-http" || transport.Text == "sse"; {
	case command && url && isHTTP:
		unfit("command", "url")
	case command && url && transport.Text == "stdio":
		unfit("url", "command")
	case command && !url && isHTTP:
		unfit("transport", "command")
	case url && !command && transport.Text == "stdio":
		unfit("transport", "url")
	}
}

func (t *taken) refuse(key *document.Node, why, hint string) {
	t.refused = append(t.refused, note{key, why, hint})
}

func (t *taken) mend(key *document.Node, what, hint string) {
	t.mended = append(t.mended, note{key, what, hint})
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

// called returns our key for a key in the file.
func called(key *document.Node, ours string) *document.Node {
	n := made(key, document.Text, ours)
	n.WrittenAs = key.Text
	return n
}

// ours returns a text of the file in our notation.
func (t *taken) ours(text string) string {
	if t.notation == nil {
		return text
	}
	return t.notation(text)
}

// text returns a text with our variables. Other values stay, and are refused later.
func (t *taken) text(p document.Pair) *document.Node { return t.all(p.Value) }

// all returns a value whose texts have our variables.
func (t *taken) all(n *document.Node) *document.Node {
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
	case document.Number, document.Bool, document.Text:
		return made(n, document.Text, t.ours(n.Text)), true
	}
	return n, n.Kind == document.Broken
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
	quote, word, begun := rune(0), "", false
	for _, r := range text + " " {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, begun = r, true
		case quote != 0 || !unicode.IsSpace(r):
			word, begun = word+string(r), true
		case begun:
			words, word, begun = append(words, word), "", false
		}
	}
	return words, quote == 0
}

// parts returns the items of a list, or the parts of a text: its lines, or its words.
func (t *taken) parts(p document.Pair, n *document.Node, lines bool, form string) []*document.Node {
	if n.Kind != document.Text && n.Kind != document.Number {
		return n.Items
	}
	words, ok := strings.Split(n.Text, "\n"), true
	if !lines {
		words, ok = wordsOfShell(n.Text)
	}
	if !ok {
		t.refuse(n, p.Key.Text+" is text with an open quote", "write a "+form)
	}
	var parts []*document.Node
	for _, word := range words {
		if !lines || strings.TrimSpace(word) != "" {
			parts = append(parts, made(n, document.Text, word))
		}
	}
	return parts
}

// words takes a list of words, or a text of words.
func (t *taken) words(p document.Pair) *document.Node {
	key, n := p.Key.Text, unquoted(p.Value)
	if n.Kind == document.Broken {
		return n
	}
	if n.Kind == document.Bool || len(n.Pairs) > 0 {
		t.refuse(p.Value, key+" must be a list, not "+string(n.Kind), "")
		return nil
	}
	list := made(n, document.List, "")
	for i, item := range t.parts(p, n, false, "list") {
		word, ok := t.word(item)
		if !ok {
			t.refuse(item, fmt.Sprintf("%s[%d] must be text, not %s", key, i, item.Kind), "")
		}
		list.Items = append(list.Items, word)
	}
	if n.Kind != document.List && len(list.Items) > 0 {
		t.mend(p.Key, key+" is no list, and is taken word by word", "write a list")
	}
	return list
}

var upperName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// named takes a mapping of names to words, or a list or text of NAME=VALUE. In a list of
// variables NAME alone is passed on.
func (t *taken) named(p document.Pair) *document.Node {
	key, n := p.Key.Text, unquoted(p.Value)
	header := strings.HasSuffix(foldKey(key), "headers")
	if n.Kind == document.Broken {
		return n
	}
	if n.Kind == document.Bool || n.Kind == document.Number {
		t.refuse(p.Value, fmt.Sprintf("%s must be a mapping of names to text, not %s", key, n.Kind), "")
		return nil
	}
	mapping := made(n, document.Mapping, "")
	add := func(name, value *document.Node) {
		word, ok := t.word(value)
		switch {
		case ok:
			mapping.Pairs = append(mapping.Pairs, document.Pair{Key: name, Value: word})
		case value.Kind == document.Null:
			t.refuse(name, fmt.Sprintf("%s %s has no value", key, shorten(name.Text)), map[bool]string{true: `write "" to send it empty`, false: "write NAME: ${NAME} to pass a variable on"}[header])
		default:
			t.refuse(value, fmt.Sprintf("%s %s must be text, not %s", key, shorten(name.Text), value.Kind), "")
		}
	}
	for _, pair := range n.Pairs {
		add(pair.Key, pair.Value)
	}
	ofNames := keyOf(p.Key) == "envVars"
	items := t.parts(p, n, header || strings.Contains(n.Text, "\n"), "mapping")
	for i, item := range items {
		name, value := pairIn(item, map[bool]string{true: ":=", false: "="}[header])
		switch {
		case name != nil:
			add(name, value)
		case n.Kind == document.List && !header && (ofNames && variableName.MatchString(item.Text) || upperName.MatchString(item.Text)):
			mapping.Pairs = append(mapping.Pairs, document.Pair{Key: item, Value: made(item, document.Text, "${"+item.Text+"}")})
		default:
			t.refuse(item, fmt.Sprintf("%s[%d] has no name and value", key, i), "write a mapping of names to text")
		}
	}
	if len(items) > 0 && !ofNames {
		t.mend(p.Key, key+" is no mapping, and is taken as names with values", "write a mapping")
	}
	return mapping
}

// pairIn returns the name and the value of an item of a list, nil if it has none.
func pairIn(item *document.Node, between string) (name, value *document.Node) {
	if at := strings.IndexAny(item.Text, between); item.Kind == document.Text && at > 0 {
		return made(item, document.Text, strings.TrimSpace(item.Text[:at])), made(item, document.Text, strings.TrimSpace(item.Text[at+1:]))
	}
	for _, p := range item.Pairs {
		switch foldKey(p.Key.Text) {
		case "name", "key", "variable", "header":
			name = p.Value
		case "value":
			value = p.Value
		default:
			if len(item.Pairs) == 1 {
				return p.Key, p.Value
			}
		}
	}
	if name == nil || name.Kind != document.Text || value == nil {
		return nil, nil
	}
	return name, value
}

// namedVariables makes variables of the names in the values.
func (t *taken) namedVariables(p document.Pair) *document.Node {
	mapping := t.named(p)
	if mapping != nil {
		for _, pair := range mapping.Pairs {
			pair.Value.Text = "${" + pair.Value.Text + "}"
		}
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
	switch p.Value.Kind {
	case document.Mapping:
		t.nest(p)
		return
	case document.List:
	default:
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

// oauth takes other programs' keys of it.
func (t *taken) oauth(p document.Pair) {
	n := t.all(p.Value)
	pairs := n.Pairs
	n.Pairs = nil
	for _, inner := range pairs {
		ours, key := inner.Key.Text, inner.Key.Text
		for name, of := range oauthRows {
			if foldKey(key) == foldKey(name) {
				ours, key = of, name
			}
		}
		switch port, err := strconv.Atoi(inner.Value.Text); {
		case ours == "":
			t.unused = append(t.unused, note{inner.Key, p.Key.Text + "." + key, "the server says so itself"})
			continue
		case key == "enabled":
			if is, known := truth(inner.Value); known && !is {
				*n = *made(p.Value, document.Bool, "false")
			} else if !known {
				t.refuse(inner.Value, p.Key.Text+".enabled must be true or false, not "+string(inner.Value.Kind), "")
			}
			continue
		case key == "callbackPort" && (err != nil || port < 1 || port > 65535):
			t.refuse(inner.Value, p.Key.Text+".callbackPort must be a number from 1 to 65535", "")
			continue
		case key == "callbackPort":
			inner.Value = made(inner.Value, document.Text, fmt.Sprintf("http://localhost:%d/callback", port))
		}
		if ours != inner.Key.Text {
			inner.Key = called(inner.Key, ours)
		}
		n.Pairs = append(n.Pairs, inner)
	}
	t.pairs = append(t.pairs, document.Pair{Key: p.Key, Value: n})
}

// transportNames are programs' names of transports, folded.
var transportNames = map[string]string{
	"http": "streamable-http", "https": "streamable-http", "streamable": "streamable-http", "streamablehttp": "streamable-http", "httpstream": "streamable-http",
	"httpstreaming": "streamable-http", "streaminghttp": "streamable-http", "httpstreamable": "streamable-http", "httponly": "streamable-http",
	"sse": "sse", "httpsse": "sse", "serversentevents": "sse", "sseonly": "sse",
	"stdio": "stdio", "local": "stdio", "process": "stdio", "command": "stdio", "cli": "stdio", "standardio": "stdio",
	"auto": "auto", "": "", "remote": "", "mcp": "", "custom": "", "url": "", // not a transport
}

// transport reads clients' names of transports.
func (t *taken) transport(p document.Pair) {
	kind, known := transportNames[foldKey(p.Value.Text)]
	switch {
	case p.Value.Kind == document.Mapping:
		t.nest(p)
	case p.Value.Kind == document.Text && known:
		t.set(p.Key, "transport", made(p.Value, document.Text, kind))
	default:
		t.set(p.Key, "transport", p.Value)
	}
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
	"false": false, "no": false, "off": false, "0": false, "disabled": false, "inactive": false, "paused": false, "stopped": false,
}

func truth(n *document.Node) (is, known bool) {
	is, known = truths[strings.ToLower(strings.TrimSpace(n.Text))]
	return is, known && len(n.Items)+len(n.Pairs) == 0
}

// toggle takes a key that switches a server on or off, when it is true.
func (t *taken) toggle(p document.Pair) {
	n, key := p.Value, keyOf(p.Key)
	if n.Kind == document.Text && strings.Contains(t.ours(n.Text), "${") {
		t.pairs = append(t.pairs, document.Pair{Key: called(p.Key, key), Value: t.text(p)})
		return
	}
	is, known := truth(n)
	if !known {
		t.refuse(n, fmt.Sprintf("%s must be true or false, not %s", p.Key.Text, n.Kind), "")
		return
	}
	if n.Kind != document.Bool {
		t.mend(p.Key, fmt.Sprintf("%s is %s, and is taken as %t", p.Key.Text, n.Kind, is), "write true or false")
	}
	t.set(p.Key, "enabled", made(n, document.Bool, strconv.FormatBool(is == (key == "enabled"))))
}

// status switches a server off if it says so; else it is a state without effect.
func (t *taken) status(p document.Pair) {
	if is, known := truth(p.Value); known && !is {
		t.mend(p.Key, p.Key.Text+" is taken as disabled", "write enabled")
		t.set(p.Key, "enabled", made(p.Value, document.Bool, "false"))
	}
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
	if foldKey(p.Key.Text) != "availabletools" || len(p.Value.Items) > 0 { // of Goose, where an empty list means all
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
		name := nameIn(item, fmt.Sprintf("server-%d", i+1))
		key := *name
		for n := 2; taken[key.Text]; n++ {
			key.Text = fmt.Sprintf("%s-%d", name.Text, n)
		}
		taken[key.Text] = true
		servers = append(servers, document.Pair{Key: &key, Value: item})
	}
	return servers, true
}

// nameIn returns the name of an item of a list, by default other.
func nameIn(item *document.Node, other string) *document.Node {
	for _, key := range []string{"name", "id", "serverName", "server_name", "server_label", "label", "title"} {
		if name := item.Find(key); name != nil && name.Kind == document.Text && name.Text != "" {
			return name
		}
	}
	return made(item, document.Text, other)
}
