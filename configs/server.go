package configs

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"toolfinch/upstream"
	"toolfinch/view"
)

// server is one server while it is read.
type server struct {
	upstream.Settings
	views   view.UpstreamTools // what every view has of it
	label   string             // what messages call it
	enabled bool

	// Where things stand in the file, nil when they do not.
	name, command, url, transport, args, env, cwd, headers *node
	enabledBy                                              *node
	urlKey, transportKey                                   string // the keys used: clients have several
	misspelt                                               bool   // has an unknown key near command or url
}

// serverSetting is a key of a server.
type serverSetting struct {
	key string
	set func(d *decoder, s *server, n *node, label string)
}

// serverSettings are all keys of a server, in the order of the example file.
var serverSettings = []serverSetting{
	{"command", func(d *decoder, s *server, n *node, label string) {
		s.command = n
		d.command(n, label, &s.Command)
	}},
	{"args", func(d *decoder, s *server, n *node, label string) {
		s.args = n
		d.list(n, label, func(n *node, label string) {
			var arg string
			if d.word(n, label, &arg) {
				s.Args = append(s.Args, arg)
			}
		})
	}},
	{"env", func(d *decoder, s *server, n *node, label string) {
		s.env = n
		s.Env = d.words(n, label, "write NAME: ${NAME} to pass a variable on", checkVariableName)
	}},
	{"cwd", func(d *decoder, s *server, n *node, label string) {
		s.cwd = n
		d.folder(n, label, &s.Cwd)
	}},
	{"url", func(d *decoder, s *server, n *node, label string) {
		d.url(s, n, "url", label)
	}},
	{"headers", func(d *decoder, s *server, n *node, label string) {
		s.headers = n
		s.Headers = d.headers(n, label)
	}},
	{"transport", func(d *decoder, s *server, n *node, label string) {
		d.transport(s, n, "transport", label)
	}},
	{"description", func(d *decoder, s *server, n *node, label string) {
		d.text(n, label, &s.Description)
	}},
	{"enabled", func(d *decoder, s *server, n *node, label string) {
		d.enabled(s, n, true, label)
	}},
	{"connect_timeout", func(d *decoder, s *server, n *node, label string) {
		d.duration(n, label, &s.ConnectTimeout)
	}},
	{"call_timeout", func(d *decoder, s *server, n *node, label string) {
		d.duration(n, label, &s.CallTimeout)
	}},
	{"call_timeout_total", func(d *decoder, s *server, n *node, label string) {
		d.duration(n, label, &s.CallTimeoutTotal)
	}},
	{"protocol", func(d *decoder, s *server, n *node, label string) {
		choose(d, n, label, []upstream.Protocol{upstream.ProtocolAuto, upstream.ProtocolLegacy}, &s.Protocol)
	}},
	{"validate", func(d *decoder, s *server, n *node, label string) {
		d.boolean(n, label, &s.Validate)
	}},
	{"prefix", func(d *decoder, s *server, n *node, label string) {
		d.prefix(n, label, &s.Prefix)
	}},
	{"isolate", func(d *decoder, s *server, n *node, label string) {
		choose(d, n, label, []upstream.Isolation{upstream.IsolateAuto, upstream.IsolateAlways, upstream.IsolateNever}, &s.Isolate)
	}},
	{"ask_timeout", func(d *decoder, s *server, n *node, label string) {
		const want, hint = "a duration from 1s to 24h", `like "10m", or a number of seconds`
		d.durationWithin(n, label, want, hint, time.Second, maxDuration, &s.AskTimeout)
	}},
	{"tools", func(d *decoder, s *server, n *node, label string) {
		if n.kind == kindList { // a choice of tools in other programs' files
			d.warn(n, label+" is not used as a list", "write what changes of each tool: {name: {...}}; choose tools in tool_views")
			return
		}
		taken := d.baseName
		if d.lenient {
			taken = make(claims)
		}
		s.views.Tools = d.toolsBlock(n, label, taken)
	}},
	{"output_cache", func(d *decoder, s *server, n *node, label string) {
		s.views.Output = d.outputCache(n, label)
	}},
}

func serverKeys() []string {
	keys := make([]string, len(serverSettings))
	for i, s := range serverSettings {
		keys[i] = s.key
	}
	return keys
}

// servers reads one block of servers. seen has the names of all blocks.
func (d *decoder) servers(block *node, label string, c *Config, seen map[string]*node) {
	if block.kind == kindNull {
		return
	}
	if block.kind != kindMapping {
		d.fail(block, label+" must be a mapping of names to servers, not "+string(block.kind), "")
		return
	}
	for _, p := range block.pairs {
		name := p.key.text
		if first := seen[name]; first != nil {
			d.fail(p.key, fmt.Sprintf("duplicate server name %q", shorten(name)), fmt.Sprintf("first on line %d", first.line))
		} else {
			seen[name] = p.key
			d.known = append(d.known, name)
		}
		d.checkName(p.key)
		s := d.server(p.key, p.value)
		switch {
		case s == nil:
		case s.enabled:
			c.Servers = append(c.Servers, s.Settings)
			if len(s.views.Tools) > 0 || s.views.Output != nil {
				c.Tools = append(c.Tools, s.views)
			}
		default:
			d.off[name] = true
			c.Disabled = append(c.Disabled, name)
		}
	}
}

const maxName = 64

func (d *decoder) checkName(key *node) {
	name := key.text
	for i, r := range name {
		if !legalInName(r, i == 0) {
			d.fail(key, fmt.Sprintf("illegal server name %q: %s", shorten(name), nameRule), nameHint(name))
			return
		}
	}
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName {
		d.fail(key, fmt.Sprintf("illegal server name %q: %d characters; %s", shorten(name), n, nameRule), nameHint(name))
	}
}

const nameRule = "1 to 64 letters, digits, spaces and _ - . / @ : beginning with a letter or digit"

func legalInName(r rune, first bool) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || !first && strings.ContainsRune("_-./@: ", r)
}

// nameHint makes a legal name of an illegal one.
func nameHint(name string) string {
	legal := strings.Map(func(r rune) rune {
		if legalInName(r, false) {
			return r
		}
		return '-'
	}, name)
	legal = strings.TrimLeft(legal, "_-./@: ")
	if r := []rune(legal); len(r) > maxName {
		legal = string(r[:maxName])
	}
	if legal == "" {
		return ""
	}
	return fmt.Sprintf("for example %q", legal)
}

// server reads one server; nil when it is none at all.
func (d *decoder) server(key, n *node) *server {
	s := &server{
		Settings: upstream.Settings{
			Name:             key.text,
			Transport:        upstream.TransportAuto,
			Protocol:         upstream.ProtocolAuto,
			ConnectTimeout:   upstream.DefaultConnectTimeout,
			CallTimeout:      upstream.DefaultCallTimeout,
			CallTimeoutTotal: upstream.DefaultCallTimeoutTotal,
			Validate:         true,
			AskTimeout:       upstream.DefaultAskTimeout,
			Isolate:          upstream.IsolateAuto,
		},
		views:   view.UpstreamTools{Name: key.text, At: placeOf(key)},
		label:   fmt.Sprintf("server %q", shorten(key.text)),
		name:    key,
		enabled: true,
	}
	if n.kind != kindMapping {
		d.fail(n, s.label+" must be a mapping with command or url, not "+string(n.kind), "")
		return nil
	}
	d.lenient = d.isOff(n)
	defer func() { d.lenient = false }()
	for _, p := range d.unique(n, "key") {
		d.serverPair(s, p)
	}
	d.checkServer(s)
	s.Secrets = d.secretsOf(s)
	return s
}

// isOff looks ahead: what a disabled server says does not depend on the order
// of its keys.
func (d *decoder) isOff(n *node) bool {
	probe := &decoder{env: d.env}
	s := &server{enabled: true}
	for _, key := range []string{"enabled", "disabled"} {
		if v := n.find(key); v != nil && v.kind != kindNull {
			probe.enabled(s, v, key == "enabled", key)
		}
	}
	return !s.enabled
}

func (d *decoder) serverPair(s *server, p pair) {
	key := p.key.text
	label := s.label + ": " + key
	if i := slices.IndexFunc(serverSettings, func(s serverSetting) bool { return s.key == key }); i >= 0 {
		if p.value.kind != kindNull { // nothing is the default
			serverSettings[i].set(d, s, p.value, label)
		}
		return
	}
	if d.foreignPair(s, p, label) {
		return
	}
	hint := didYouMean(key, serverKeys())
	if slices.Contains(topKeys(), key) {
		hint = "it belongs to the top level of the file"
	}
	if near, _ := closest(key, serverKeys()); near == "command" || near == "url" {
		s.misspelt = true
	}
	d.fail(p.key, fmt.Sprintf("%s: unknown key %q", s.label, shorten(key)), hint)
}

// checkServer looks at what several keys say together.
func (d *decoder) checkServer(s *server) {
	switch {
	case s.command != nil && s.url != nil:
		d.fail(s.name, fmt.Sprintf("%s has both command and %s", s.label, s.urlKey), "keep one")
		return
	case s.command == nil && s.url == nil:
		if !s.misspelt {
			d.fail(s.name, s.label+" has neither command nor url", "")
		}
		return
	}
	if s.url != nil {
		if s.Transport == upstream.TransportStdio {
			d.fail(s.transport, fmt.Sprintf("%s: %s stdio needs command, not %s", s.label, s.transportKey, s.urlKey), "remove it, or write "+string(upstream.TransportHTTP)+" or "+string(upstream.TransportSSE))
		}
		d.unused(s, s.urlKey, map[string]*node{"args": s.args, "env": s.env, "cwd": s.cwd})
		return
	}
	if s.Transport == upstream.TransportHTTP || s.Transport == upstream.TransportSSE {
		d.fail(s.transport, fmt.Sprintf("%s: %s %s needs url, not command", s.label, s.transportKey, s.Transport), "remove it, or write "+string(upstream.TransportStdio))
	}
	d.unused(s, "command", map[string]*node{"headers": s.headers})
}

func (d *decoder) unused(s *server, with string, keys map[string]*node) {
	for key, n := range keys {
		if n != nil && len(n.items)+len(n.pairs)+len(n.text) > 0 {
			d.warn(n, fmt.Sprintf("%s: %s is not used with %s", s.label, key, with), "")
		}
	}
}

func (d *decoder) command(n *node, label string, to *string) {
	if n.kind == kindList {
		d.fail(n, label+" must be text, not a list", "put the program in command and the rest in args")
		return
	}
	var command string
	if !d.text(n, label, &command) {
		return
	}
	if strings.TrimSpace(command) == "" {
		d.fail(n, label+" is empty", "")
		return
	}
	command, err := tilde(command, d.home)
	if err != nil {
		d.fail(n, label+": "+err.Error(), "write the path in full")
		return
	}
	if isRelativeCommand(command) {
		command = within(d.dir, command)
	}
	*to = command
}

var legalPrefix = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,32}$`)

func (d *decoder) prefix(n *node, label string, to **string) {
	var text string
	if !d.word(n, label, &text) {
		return
	}
	if !legalPrefix.MatchString(text) {
		d.mustBe(n, label, "at most 32 letters, digits, _ and -", `like "gh", or "" for none`)
		return
	}
	*to = &text
}

func (d *decoder) folder(n *node, label string, to *string) {
	var dir string
	if !d.text(n, label, &dir) || dir == "" {
		return
	}
	dir, err := tilde(dir, d.home)
	if err != nil {
		d.fail(n, label+": "+err.Error(), "write the path in full")
		return
	}
	*to = within(d.dir, dir)
}

// enabled reads enabled (on) or disabled (not on); both may stand there when
// they agree.
func (d *decoder) enabled(s *server, n *node, on bool, label string) {
	// Even the variables of a disabled server count here.
	lenient := d.lenient
	d.lenient = false
	var value bool
	ok := d.boolean(n, label, &value)
	d.lenient = lenient
	if !ok {
		return
	}
	enabled := value == on
	if s.enabledBy != nil && enabled != s.enabled {
		d.fail(n, s.label+": enabled and disabled contradict each other", "keep enabled")
		return
	}
	s.enabled, s.enabledBy = enabled, n
}

func (d *decoder) url(s *server, n *node, key, label string) {
	if s.url != nil {
		d.fail(n, fmt.Sprintf("%s has both %s and %s", s.label, s.urlKey, key), "keep url")
		return
	}
	s.url, s.urlKey = n, key
	var text string
	if !d.text(n, label, &text) {
		return
	}
	// The text is not repeated: a URL may carry a password or a key.
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		d.fail(n, label+" must be an http or https URL", "like https://mcp.example.com/mcp")
		return
	}
	s.URL = text
}

// transportNames are the ways to a server under all the names that clients
// have for them.
var transportNames = []struct {
	name      string
	transport upstream.Transport
}{
	{"auto", upstream.TransportAuto},
	{"stdio", upstream.TransportStdio},
	{"streamable-http", upstream.TransportHTTP},
	{"sse", upstream.TransportSSE},
	{"http", upstream.TransportHTTP},
	{"streamableHttp", upstream.TransportHTTP},
	{"streamable_http", upstream.TransportHTTP},
	{"local", upstream.TransportStdio},
}

func (d *decoder) transport(s *server, n *node, key, label string) {
	const canonical = 4 // how many of transportNames are ours
	var names []string
	for _, t := range transportNames {
		names = append(names, t.name)
	}
	var text string
	if !d.text(n, label, &text) {
		return
	}
	word, ok := matchFold(text, names)
	if !ok {
		d.mustBe(n, label, oneOf(names[:canonical]), d.nearHint(n, text, names))
		return
	}
	transport := transportNames[slices.Index(names, word)].transport
	if s.transport != nil && s.Transport != transport {
		d.fail(n, fmt.Sprintf("%s: %s and %s contradict each other", s.label, s.transportKey, key), "keep transport")
		return
	}
	s.Transport, s.transport, s.transportKey = transport, n, key
}

// words reads a mapping of names to words. No message shows a value: these are
// where secrets stand.
func (d *decoder) words(n *node, label, nullHint string, check func(name string) string) map[string]string {
	if n.kind != kindMapping {
		d.fail(n, label+" must be a mapping of names to text, not "+string(n.kind), "")
		return nil
	}
	words := make(map[string]string, len(n.pairs))
	for _, p := range d.unique(n, "key") {
		name := p.key.text
		item := label + " " + shorten(name)
		if problem := check(name); problem != "" {
			d.fail(p.key, fmt.Sprintf("%s: %q %s", label, shorten(name), problem), "")
			continue
		}
		if p.value.kind == kindNull {
			d.fail(p.key, item+" has no value", nullHint)
			continue
		}
		var word string
		if d.word(p.value, item, &word) {
			words[name] = word
		}
	}
	if len(words) == 0 {
		return nil
	}
	return words
}

func checkVariableName(name string) string {
	if name == "" || strings.ContainsAny(name, "=\x00") {
		return "is no name of a variable"
	}
	return ""
}

func (d *decoder) headers(n *node, label string) map[string]string {
	headers := d.words(n, label, `write "" to send it empty`, checkHeaderName)
	seen := make(map[string]string, len(n.pairs))
	for _, p := range n.pairs {
		name, lower := p.key.text, strings.ToLower(p.key.text)
		if first, ok := seen[lower]; ok && first != name {
			d.fail(p.key, fmt.Sprintf("%s: %q and %q are one header", label, shorten(first), shorten(name)), "keep one")
		}
		seen[lower] = name
		if strings.ContainsFunc(headers[name], isControl) {
			d.fail(p.value, label+" "+shorten(name)+" has a line break or another control character", "")
		}
	}
	return headers
}

func checkHeaderName(name string) string {
	legal := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return "is no name of a header"
	}
	return ""
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
