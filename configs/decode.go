package configs

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/embed"
)

// decoder turns the tree into a Config and collects what is wrong with it.
type decoder struct {
	file     string // name of the file in errors
	dir      string // folder of the file: relative paths of the file start here
	workDir  string // relative paths of environment and flags start here
	home     string
	env      lookup
	isJSON   bool
	lenient  bool // in a disabled server: what has variables is not looked at
	later    bool // variables that are not set are no mistake: they may be where the file is used
	errors   []*Error
	warnings []*Error
	openAI   openAIOrigins
	known    []string        // names of all servers, in file order
	off      map[string]bool // the disabled ones among them
	viewsAt  *node           // tool_views, read once the servers are known; nil without
	views    []viewOrigin    // of Config.Views, in their order
	proxy    origin          // proxy_tool of the top level
	exec     origin          // list_changed_exec
	baseName claims          // names that tools blocks under servers expose
	secrets  *secrets        // what came from variables with telling names
}

func (d *decoder) at(n *node, message, hint string) *Error {
	if n.outside() {
		return &Error{Message: message, Hint: hint}
	}
	return &Error{File: d.file, Line: n.line, Column: n.column, Message: message, Hint: hint}
}

func (d *decoder) fail(n *node, message, hint string) {
	if n.kind == kindBroken { // one error each
		return
	}
	d.errors = append(d.errors, d.at(n, message, hint))
}

func (d *decoder) warn(n *node, message, hint string) {
	d.warnings = append(d.warnings, d.at(n, message, hint))
}

// unique returns the pairs without those whose key was there before, which are
// reported.
func (d *decoder) unique(n *node, what string) []pair {
	first := make(map[string]*node, len(n.pairs))
	kept := make([]pair, 0, len(n.pairs))
	for _, p := range n.pairs {
		if known := first[p.key.text]; known != nil {
			d.fail(p.key, fmt.Sprintf("duplicate %s %q", what, shorten(p.key.text)), fmt.Sprintf("first on line %d", known.line))
			continue
		}
		first[p.key.text] = p.key
		kept = append(kept, p)
	}
	return kept
}

// setting is a key of the file's top level.
type setting struct {
	key string
	set func(d *decoder, c *Config, n *node, label string)
}

// settings are all keys of the top level but the servers, in the order of the
// example file. The label of a value is what messages call it.
var settings = []setting{
	{"routing_type", func(d *decoder, c *Config, n *node, label string) {
		choose(d, n, label, []Routing{RoutingAuto, RoutingCallTool, RoutingDynamic}, &c.Routing)
	}},
	{"top_k", func(d *decoder, c *Config, n *node, label string) {
		d.number(n, label, 1, MaxTopK, &c.TopK)
	}},
	{"embedder", (*decoder).embedder},
	{"hf_model", func(d *decoder, c *Config, n *node, label string) {
		d.name(n, label, &c.Embed.HFModel)
	}},
	{"openai_model", func(d *decoder, c *Config, n *node, label string) {
		d.name(n, label, &c.Embed.OpenAI.Model)
	}},
	{"openai_base_url", (*decoder).openAIBaseURL},
	{"openai_api_key", (*decoder).openAIKey},
	{"openai_dimensions", func(d *decoder, c *Config, n *node, label string) {
		d.number(n, label, 1, maxDimensions, &c.Embed.OpenAI.Dimensions)
	}},
	{"openai_max_bytes", func(d *decoder, c *Config, n *node, label string) {
		d.number(n, label, 100, embed.MaxText, &c.Embed.OpenAI.MaxBytes)
	}},
	{"query_embed_timeout", (*decoder).queryEmbedTimeout},
	{"learn", func(d *decoder, c *Config, n *node, label string) {
		d.boolean(n, label, &c.Learn)
	}},
	{"list_changed_exec", func(d *decoder, c *Config, n *node, label string) {
		d.exec = origin{n, label}
		d.text(n, label, &c.ListChangedExec)
	}},
	{"data_dir", (*decoder).dataDir},
	{"log_level", (*decoder).logLevel},
	{"log_format", func(d *decoder, c *Config, n *node, label string) {
		choose(d, n, label, []string{LogText, LogJSON}, &c.LogFormat)
	}},
	{"pinned", (*decoder).pinned},
	{"max_registered", func(d *decoder, c *Config, n *node, label string) {
		d.number(n, label, 1, 1_000_000, &c.MaxRegistered)
	}},
	{"max_sessions", func(d *decoder, c *Config, n *node, label string) {
		d.number(n, label, 1, 1_000_000, &c.MaxSessions)
	}},
	{"session_timeout", func(d *decoder, c *Config, n *node, label string) {
		d.duration(n, label, &c.SessionTimeout)
	}},
	{"call_tool", func(d *decoder, c *Config, n *node, label string) {
		choose(d, n, label, []CallToolMode{CallToolSingle, CallToolSplit}, &c.CallTool)
	}},
	{"transport", func(d *decoder, c *Config, n *node, label string) {
		choose(d, n, label, []string{TransportStdio, TransportHTTP}, &c.Transport)
	}},
	{"listen", (*decoder).listen},
	{"allowed_origins", (*decoder).origins},
	{"rest_api", func(d *decoder, c *Config, n *node, label string) {
		d.boolean(n, label, &c.REST)
	}},
	{"hook_headers", func(d *decoder, c *Config, n *node, label string) {
		c.HookHeaders = d.headerNames(n, label)
	}},
	{"principal_header", func(d *decoder, c *Config, n *node, label string) {
		c.PrincipalHeader = d.headerName(n, label)
	}},
	{"gating", func(d *decoder, c *Config, n *node, label string) {
		c.Gating = d.gating(n, label)
	}},
	{"proxy_tool", func(d *decoder, c *Config, n *node, label string) {
		d.proxy = origin{n, label}
		c.ProxyTool = d.proxyTool(n, label)
	}},
	{"tool_views", func(d *decoder, _ *Config, n *node, label string) {
		if n.outside() {
			d.fail(n, label+" can only be set in the file", "")
			return
		}
		d.viewsAt = n
	}},
}

// serverBlocks are the keys that hold servers: ours, that of most clients, and
// that of VS Code.
var serverBlocks = []string{"mcp_servers", "mcpServers", "servers"}

func topKeys() []string {
	keys := []string{serverBlocks[0]}
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	return keys
}

// root reads the whole file into c.
func (d *decoder) root(root *node, c *Config) {
	if root.kind != kindMapping {
		d.fail(root, "the file must be a mapping of keys to values, not "+string(root.kind), emptyHint)
		return
	}
	foreign := d.isJSON && (root.find("mcpServers") != nil || root.find("servers") != nil)
	servers := make(map[string]*node)
	for _, p := range d.unique(root, "key") {
		key := p.key.text
		i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
		switch {
		case slices.Contains(serverBlocks, key):
			d.servers(p.value, key, c, servers)
		case i >= 0 && p.value.kind == kindNull: // left at its default
		case i >= 0:
			settings[i].set(d, c, p.value, key)
		case key == "$schema", key == "inputs", strings.HasPrefix(key, "x-"): // editors', and a place for anchors
		case foreign:
			d.warn(p.key, fmt.Sprintf("key %q is not used", shorten(key)), nearHint(key, topKeys()))
		default:
			d.fail(p.key, fmt.Sprintf("unknown key %q", shorten(key)), topHint(key))
		}
	}
	if d.viewsAt != nil {
		d.toolViews(c, d.viewsAt, "tool_views")
	}
	if len(servers) == 0 && len(d.errors) == 0 {
		d.warn(root, "no servers are configured", emptyHint)
	}
}

func topHint(key string) string {
	if slices.Contains(serverKeys(), key) {
		return "it belongs to a server under " + serverBlocks[0]
	}
	return didYouMean(key, topKeys())
}

// override sets a value from outside the file. Empty is as good as unset, but
// for the hook, which it turns off.
func (d *decoder) override(c *Config, key, label, value string) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		d.errors = append(d.errors, &Error{Message: "unknown setting " + label, Hint: didYouMean(key, topKeys())})
		return
	}
	if value == "" && key != "list_changed_exec" {
		return
	}
	n := &node{kind: kindText, text: value}
	if key == "pinned" || key == "allowed_origins" || key == "hook_headers" {
		n = &node{kind: kindList}
		for item := range strings.SplitSeq(value, ",") {
			n.items = append(n.items, &node{kind: kindText, text: strings.TrimSpace(item)})
		}
	}
	settings[i].set(d, c, n, label)
}

// text reads text with its variables replaced. It reports whether to was set.
func (d *decoder) text(n *node, label string, to *string) bool {
	if n.kind != kindText {
		hint := ""
		if n.kind == kindNumber || n.kind == kindBool {
			hint = "put it in quotes"
		}
		d.fail(n, label+" must be text, not "+string(n.kind), hint)
		return false
	}
	return d.expand(n, label, to)
}

// word reads text, or a number or truth value as it is written.
func (d *decoder) word(n *node, label string, to *string) bool {
	if n.kind == kindNumber || n.kind == kindBool {
		*to = n.text
		return true
	}
	return d.text(n, label, to)
}

func (d *decoder) expand(n *node, label string, to *string) bool {
	if n.outside() { // a shell has done so
		*to = n.text
		return true
	}
	if d.lenient && n.hasVariables() {
		return false
	}
	text, err := expand(n.text, d.env)
	for _, e := range substitutionErrors(err) {
		if e.unset == "" || !d.later {
			d.fail(n, label+": "+e.message, e.hint)
		}
	}
	if err == nil && strings.ContainsRune(text, 0) {
		d.fail(n, label+" has a NUL character", "")
		return false
	}
	if err == nil {
		*to = text
		d.secrets.note(n, text, d.env)
	}
	return err == nil
}

// plain reads the text of a number, duration or truth value. Quoted text is
// none, unless it is wholly one variable: those have no other form.
func (d *decoder) plain(n *node, label, want string, of kind, to *string) bool {
	switch {
	case n.kind == of:
		*to = n.text
		return true
	case n.kind == kindText && (n.outside() || isVariable(n.text)):
		return d.expand(n, label, to)
	}
	hint := ""
	if n.kind == kindText && (of == kindNumber && isDigits(n.text) || of == kindBool && isBool(n.text)) {
		hint = "remove the quotes"
	}
	d.mustBe(n, label, want, hint)
	return false
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
func isBool(s string) bool   { return s == "true" || s == "false" }

func (d *decoder) mustBe(n *node, label, want, hint string) {
	d.fail(n, label+" must be "+want+", not "+n.String(), hint)
}

func (d *decoder) number(n *node, label string, low, high int, to *int) {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	var text string
	if !d.plain(n, label, want, kindNumber, &text) {
		return
	}
	i, err := strconv.Atoi(text)
	if err != nil || i < low || i > high {
		d.mustBe(n, label, want, "")
		return
	}
	*to = i
}

func (d *decoder) boolean(n *node, label string, to *bool) bool {
	var text string
	if !d.plain(n, label, string(kindBool), kindBool, &text) {
		return false
	}
	if !isBool(text) {
		d.mustBe(n, label, string(kindBool), "")
		return false
	}
	*to = text == "true"
	return true
}

// maxDuration bounds every wait.
const maxDuration = 24 * time.Hour

func (d *decoder) duration(n *node, label string, to *time.Duration) {
	const want, hint = "a duration above 0 and up to 24h", `like "30s", "2m", or a number of seconds`
	d.durationWithin(n, label, want, hint, 1, maxDuration, to)
}

func (d *decoder) queryEmbedTimeout(c *Config, n *node, label string) {
	want := fmt.Sprintf("a duration from %v to %v", MinQueryEmbedTimeout, MaxQueryEmbedTimeout)
	const hint = `like "800ms", or a number of seconds`
	d.durationWithin(n, label, want, hint, MinQueryEmbedTimeout, MaxQueryEmbedTimeout, &c.QueryEmbedTimeout)
}

// quantity reads a number, or text that has one with its unit.
func (d *decoder) quantity(n *node, label, want, hint string) (text string, ok bool) {
	switch n.kind {
	case kindNumber:
		return n.text, true
	case kindText:
		ok = d.expand(n, label, &text)
		return text, ok
	}
	d.mustBe(n, label, want, hint)
	return "", false
}

func (d *decoder) durationWithin(n *node, label, want, hint string, low, high time.Duration, to *time.Duration) {
	text, ok := d.quantity(n, label, want, hint)
	if !ok {
		return
	}
	duration, err := time.ParseDuration(text)
	if n.kind == kindNumber || err != nil && isVariable(n.text) {
		duration, err = parseSeconds(text)
	}
	if err != nil || duration < low || duration > high {
		d.mustBe(n, label, want, hint)
		return
	}
	*to = duration
}

// parseSeconds returns 0 for what is no time: not a number, or far too long.
func parseSeconds(s string) (time.Duration, error) {
	seconds, err := strconv.ParseFloat(s, 64)
	if err != nil || !(seconds <= maxDuration.Seconds()) {
		return 0, err
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// choose reads one of several words, in any case.
func choose[T ~string](d *decoder, n *node, label string, valid []T, to *T) bool {
	words := make([]string, len(valid))
	for i, v := range valid {
		words[i] = string(v)
	}
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	word, ok := matchFold(text, words)
	if !ok {
		d.mustBe(n, label, oneOf(words), d.nearHint(n, text, words))
		return false
	}
	*to = T(word)
	return true
}

// nearHint names the valid word nearest to text, unless text came from a
// variable: its value is not hinted at.
func (d *decoder) nearHint(n *node, text string, valid []string) string {
	if n.hasVariables() {
		return ""
	}
	return nearHint(text, valid)
}

// list calls each for the items of a list.
func (d *decoder) list(n *node, label string, each func(n *node, label string)) {
	if n.kind != kindList {
		hint := ""
		if n.kind == kindText {
			hint = "write a list: [...]"
		}
		d.fail(n, label+" must be a list, not "+string(n.kind), hint)
		return
	}
	for i, item := range n.items {
		each(item, fmt.Sprintf("%s[%d]", label, i))
	}
}

// maxDimensions is beyond what any model makes.
const maxDimensions = 65_536

func (d *decoder) embedder(c *Config, n *node, label string) {
	kinds := []string{embed.KindAuto, embed.KindBM25, embed.KindHF, embed.KindOpenAI}
	if choose(d, n, label, kinds, &c.Embed.Kind) {
		d.openAI.kind = origin{n, label}
	}
}

// name reads text that is not empty.
func (d *decoder) name(n *node, label string, to *string) {
	var text string
	if !d.text(n, label, &text) {
		return
	}
	if strings.TrimSpace(text) == "" {
		d.fail(n, label+" is empty", "remove it for the default")
		return
	}
	*to = text
}

func (d *decoder) openAIBaseURL(c *Config, n *node, label string) {
	d.openAI.url = origin{n, label}
	d.openAI.broken = !d.text(n, label, &c.Embed.OpenAI.BaseURL) || d.openAI.broken
}

func (d *decoder) openAIKey(c *Config, n *node, label string) {
	d.openAI.key = origin{n, label}
	d.openAI.broken = !d.text(n, label, &c.Embed.OpenAI.APIKey) || d.openAI.broken
	c.Embed.OpenAI.APIKey = strings.TrimSpace(c.Embed.OpenAI.APIKey) // a file ends with a line break
}

// origin is where a value came from, and what messages call it.
type origin struct {
	node  *node
	label string
}

// openAIOrigins is what checkOpenAI needs to know.
type openAIOrigins struct {
	kind, key, url origin
	broken         bool // one of them is reported already
}

// checkOpenAI looks at what OPENAI needs, once it is known to be wanted: its
// variables may be there for another program. Values are not repeated: they are
// secrets, or may carry one.
func (d *decoder) checkOpenAI(c *Config) {
	s, from := c.Embed.OpenAI, d.openAI
	if c.Embed.Kind != embed.KindOpenAI || from.broken {
		return
	}
	if s.APIKey == "" && s.BaseURL == "" {
		d.fail(from.kind.node, from.kind.label+": "+embed.KindOpenAI+" needs a key or a server", "set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own")
	}
	if strings.ContainsFunc(s.APIKey, isControl) {
		d.fail(from.key.node, from.key.label+" has a line break or another control character", "")
	}
	if s.BaseURL == "" {
		return
	}
	u, err := url.Parse(s.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		d.fail(from.url.node, from.url.label+" must be an http or https URL without a query", "like http://localhost:11434/v1")
	}
}

func (d *decoder) dataDir(c *Config, n *node, label string) {
	var text string
	if !d.text(n, label, &text) {
		return
	}
	if text == "" {
		d.fail(n, label+" is empty", "remove it for the default")
		return
	}
	dir, err := tilde(text, d.home)
	if err != nil {
		d.fail(n, label+": "+err.Error(), "write the path in full")
		return
	}
	if n.outside() {
		c.DataDir = within(d.workDir, dir)
		return
	}
	c.DataDir = within(d.dir, dir)
}

func (d *decoder) logLevel(c *Config, n *node, label string) {
	var level string
	if choose(d, n, label, []string{"debug", "info", "warn", "error"}, &level) {
		// Cannot fail: slog knows the four.
		_ = c.LogLevel.UnmarshalText([]byte(level))
	}
}

func (d *decoder) pinned(c *Config, n *node, label string) {
	c.Pinned = nil
	d.list(n, label, func(n *node, label string) {
		var glob string
		if !d.text(n, label, &glob) {
			return
		}
		if _, err := path.Match(glob, ""); err != nil || glob == "" {
			d.fail(n, label+" is not a valid glob", "* and ? match anything, [a-z] a range, a backslash the character after it")
			return
		}
		c.Pinned = append(c.Pinned, glob)
	})
}

func (d *decoder) listen(c *Config, n *node, label string) {
	const want = "host:port"
	var text string
	if !d.text(n, label, &text) {
		return
	}
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		d.mustBe(n, label, want, "like "+DefaultListen)
		return
	}
	c.Listen = text
}

func (d *decoder) origins(c *Config, n *node, label string) {
	c.Origins = nil
	d.list(n, label, func(n *node, label string) {
		var text string
		if !d.text(n, label, &text) {
			return
		}
		if checkOrigin(text) != nil {
			d.mustBe(n, label, "scheme://host or scheme://host:port, without a path", "like https://app.example.com")
			return
		}
		// Browsers send both parts in lower case.
		c.Origins = append(c.Origins, strings.ToLower(text))
	})
}

var errNoOrigin = errors.New("no origin")

func checkOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if u.Scheme == "" || u.Hostname() == "" || strings.Contains(u.Host, "*") || !strings.EqualFold(s, u.Scheme+"://"+u.Host) {
		return errNoOrigin
	}
	return nil
}

// shorten keeps a foreign key from filling a message.
func shorten(s string) string {
	const most = 64
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "..."
	}
	return s
}
