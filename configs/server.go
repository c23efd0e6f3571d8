package configs

import (
	"cmp"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"toolfinch/internal/document"
	"toolfinch/trust/leaks"
	"toolfinch/trust/pins"
	"toolfinch/upstream"
	"toolfinch/upstream/login"
	"toolfinch/upstream/sandbox"
	"toolfinch/view"
)

// server is a server while it is read or printed.
type server struct {
	upstream.Settings
	views    view.UpstreamTools // its tools block
	changes  pins.Mode          // of its definitions
	disabled bool

	name, enabled *document.Node
	misspelt      bool // has an unknown key near command or url
}

// serverKeys are the keys of a server.
var serverKeys = section[server]{sep: ": ", keys: keys{
	{
		name: "command", change: reconnect,
		doc:   "a program that speaks MCP on standard input and output",
		value: in(func(s *server) *string { return &s.Command }).is(str{check: (*decoder).command, mask: (*secrets).word, list: "put the program in command and the rest in args"}),
	},
	{
		name: "args", change: reconnect,
		doc:   "its arguments",
		value: in(func(s *server) *[]string { return &s.Args }).is(list[string]{item: str{word: true, empty: true}, mask: (*secrets).words}),
	},
	{
		name: "env", change: reconnect,
		doc:   "environment variables, added to a minimal environment",
		value: in(func(s *server) *map[string]string { return &s.Env }).is(words{check: checkVariableName, null: "write NAME: ${NAME} to pass a variable on"}),
	},
	{
		name: "inherit_env", change: reconnect, without: "`minimal`",
		doc:   "what it inherits of toolfinch's environment: `minimal`, `all`, or names with `*`",
		value: in(func(s *server) *[]string { return &s.InheritEnv }).is(inherited{}),
	},
	{
		name: "cwd", without: "the folder of the configuration file", change: reconnect,
		doc:   "its working directory",
		value: in(func(s *server) *string { return &s.Cwd }).is(str{check: (*decoder).folder}),
	},
	{
		name: "sandbox", change: reconnect, without: "`none`",
		doc:   "`none`, `landlock`, `{read: [...], write: [...], connect: [...]}`, or a command; see [security.md](security.md#what-a-local-server-may-touch)",
		value: in(func(s *server) *sandbox.Settings { return &s.Sandbox }).is(sandboxKind{}),
	},
	{
		name: "sandbox_optional", change: reconnect, without: "`false`",
		doc:   "starts the server with a warning if the sandbox is unavailable",
		value: in(func(s *server) *bool { return &s.Sandbox.Optional }).is(boolean{only: true}),
	},
	{
		name: "url", change: reconnect,
		doc:   "an HTTP server, instead of a command",
		value: in(func(s *server) *string { return &s.URL }).is(str{check: serverURL, mask: (*secrets).url}),
	},
	{
		name: "headers", change: reconnect,
		doc:   "HTTP headers of every request",
		value: in(func(s *server) *map[string]string { return &s.Headers }).is(words{check: checkHeaderName, null: `write "" to send it empty`, headers: true}),
	},
	{
		name: "ca_file", change: reconnect, without: "the machine's authorities alone",
		doc:   "certificates (PEM) of further authorities, for the server and its authorization server",
		value: in(func(s *server) *string { return &s.TLS.CAFile }).is(str{check: (*decoder).path}),
	},
	{
		name: "cert_file", change: reconnect,
		doc:   "toolfinch's certificate (PEM) for this server",
		value: in(func(s *server) *string { return &s.TLS.CertFile }).is(str{check: (*decoder).path}),
	},
	{
		name: "key_file", change: reconnect, without: "`cert_file`",
		doc:   "the key (PEM) of that certificate",
		value: in(func(s *server) *string { return &s.TLS.KeyFile }).is(str{check: (*decoder).path}),
	},
	{
		name: "oauth", change: reconnect, without: "`auto`",
		doc:   "`auto` (login when the server asks), `off`, or a mapping. See [security.md](security.md#logging-in-to-servers)",
		value: in(func(s *server) *login.Settings { return &s.Login }).is(oauthKind{}),
	},
	{
		name: "per_user", change: reconnect, without: "`false`",
		doc:   "each user has a separate login",
		value: in(func(s *server) *bool { return &s.Login.PerUser }).is(boolean{only: true}),
	},
	{
		name: "transport", without: "`auto`", change: reconnect,
		doc:   "`stdio`, `streamable-http`, `sse`; `auto` tries streamable HTTP, then SSE, for a URL",
		value: in(func(s *server) *upstream.Transport { return &s.Transport }).is(transports, upstream.TransportAuto),
	},
	{
		name:  "description",
		doc:   "the server's purpose; searched with its tools and shown in answers",
		value: in(func(s *server) *string { return &s.Description }).is(prose),
	},
	{
		name: "enabled", change: reconnect, without: "`true`",
		doc:   "`false` ignores the server",
		value: in(all[server]).is(serverEnabled{true}),
	},
	{
		name: "connect_timeout", change: reconnect, without: "the top level's, else `30s`",
		doc:   "limit for connecting, from the start of the server; `2m` until the first list if `npx`, `uvx`, `docker` or the like may download it",
		value: in(func(s *server) *time.Duration { return &s.ConnectTimeout }).is(duration{}),
	},
	{
		name:  "call_timeout",
		doc:   "limit for a call; each progress notification restarts it",
		value: in(func(s *server) *time.Duration { return &s.CallTimeout }).is(duration{}, upstream.DefaultCallTimeout),
	},
	{
		name:  "call_timeout_total",
		doc:   "limit for a call in all",
		value: in(func(s *server) *time.Duration { return &s.CallTimeoutTotal }).is(duration{}, upstream.DefaultCallTimeoutTotal),
	},
	{
		name: "protocol", change: reconnect,
		doc:   "negotiated; `legacy` never tries 2026-07-28",
		value: in(func(s *server) *upstream.Protocol { return &s.Protocol }).is(choice[upstream.Protocol]{words: []upstream.Protocol{upstream.ProtocolAuto, upstream.ProtocolLegacy}}, upstream.ProtocolAuto),
	},
	{
		name:  "validate",
		doc:   "`call_tool` checks arguments against the tool's schema first; see [below](#checking-arguments)",
		value: in(func(s *server) *bool { return &s.Validate }).is(boolean{}, true),
	},
	{
		name: "prefix", without: "the server's name",
		doc:   "first part of tool and prompt names, before a `_`; `\"\"` for none. Up to 32 letters, digits, `_` and `-`",
		value: in(func(s *server) **string { return &s.Prefix }).is(optional{str{check: prefix, word: true}}),
	},
	{
		name: "isolate", change: reconnect,
		doc: "a connection per client: `always`, `never`, or `auto` (once the server asks a client something)",
		value: in(func(s *server) *upstream.Isolation { return &s.Isolate }).is(
			choice[upstream.Isolation]{words: []upstream.Isolation{upstream.IsolateAuto, upstream.IsolateAlways, upstream.IsolateNever}}, upstream.IsolateAuto),
	},
	{
		name:  "ask_timeout",
		doc:   "limit for a client's answer to elicitation, sampling and roots, 1s to 24h",
		value: in(func(s *server) *time.Duration { return &s.AskTimeout }).is(duration{time.Second, maxDuration, "10m"}, upstream.DefaultAskTimeout),
	},
	{
		name:  "changes",
		doc:   "changed definitions: `review`, `additive`, `allow`, `approve_all_first`; see [security.md](security.md#what-changed-behind-your-back)",
		value: in(func(s *server) *pins.Mode { return &s.changes }).is(choice[pins.Mode]{words: pins.Modes}, pins.Review),
	},
	{
		name:  "tools",
		doc:   "changes of its tools, for every view; see [tools of a view](#tools-of-a-view)",
		value: in(func(s *server) *[]view.Override { return &s.views.Tools }).is(overrides),
	},
	{
		name:    "output_cache",
		doc:     "keeps large results: `true`, or a mapping; see [Large results](#large-results)",
		value:   in(func(s *server) **view.OutputCache { return &s.views.Output }).is(outputCache),
		without: "`false`",
	},
	{
		name: "trim_descriptions", without: "`0`",
		doc:   trimDoc,
		value: in(func(s *server) *int { return &s.views.Trim }).is(trim),
	},
	{
		name: "secrets", without: "the top level's",
		doc:   "see the top level",
		value: in(func(s *server) *leaks.Mode { return &s.views.Secrets }).is(leaksWords),
	},
}}

// servers reads a block of servers. seen has the names of all blocks.
func (d *decoder) servers(b block, c *Config, seen map[string]*document.Node) {
	for _, p := range d.serversOf(b, seen) {
		name := p.Key.Text
		first := seen[name]
		if first != nil {
			c.Broken = append(c.Broken, d.at(p.Key, fmt.Sprintf("duplicate server name %q", shorten(name)), fmt.Sprintf("first on line %d", first.Line)))
		} else {
			seen[name] = p.Key
			d.known = append(d.known, name)
		}
		good := len(d.errors)
		d.checkName(p.Key)
		named := len(d.errors) == good && first == nil
		s := d.server(p, b.dialect)
		broken := slices.Clone(d.errors[good:])
		d.errors = d.errors[:good]
		c.Broken = append(c.Broken, broken...)
		switch {
		case !named:
		case len(broken) > 0:
			s.Fault = faultOf(s.Name, broken)
			c.Servers = append(c.Servers, s.Settings)
		case s.disabled:
			d.off[name] = true
			c.Disabled = append(c.Disabled, name)
		default:
			c.Servers = append(c.Servers, s.Settings)
			if s.changes != pins.Review {
				if c.Changes == nil {
					c.Changes = map[string]pins.Mode{}
				}
				c.Changes[name] = s.changes
			}
			if len(s.views.Tools) > 0 || s.views.Output != nil || s.views.Trim != 0 || s.views.Secrets != "" {
				c.Tools = append(c.Tools, s.views)
			}
		}
	}
}

// serversOf returns the servers of a block, those of another program under legal names.
func (d *decoder) serversOf(b block, seen map[string]*document.Node) []document.Pair {
	pairs, ok := serversOf(b.at)
	if !ok {
		d.isMapping(b.at, b.label, "names to servers", "")
	}
	if !d.foreign {
		return pairs
	}
	pairs = slices.Clone(pairs)
	for i, legal := range legalNames(pairs, seen) {
		if key := pairs[i].Key; legal != key.Text {
			d.warn(key, fmt.Sprintf("server %q is called %q here", shorten(key.Text), legal), "")
			pairs[i].Key = made(key, document.Text, legal)
		}
	}
	return pairs
}

// server reads one server.
func (d *decoder) server(p document.Pair, l dialect) server {
	label, n := fmt.Sprintf("server %q", shorten(p.Key.Text)), p.Value
	s := serverKeys.fresh()
	s.Name, s.name = p.Key.Text, p.Key
	s.views.Name, s.views.At = s.Name, placeOf(p.Key)
	if n.Kind != document.Mapping {
		d.fail(n, label+" must be a mapping with command or url, not "+string(n.Kind), "")
		return s
	}
	n = d.ours(l.read(s.Name, n), label)
	if d.lenient = d.isOff(n); d.lenient {
		taken := d.taken
		d.taken = make(claims)
		defer func() { d.lenient, d.taken = false, taken }()
	}
	keys := serverKeys
	keys.foreign = (*decoder).foreignPair
	keys.read(d, n, label, &s)
	d.checkServer(&s, n, label)
	for _, key := range []string{"command", "args", "env", "url", "headers"} {
		d.checkDollars(n.Given(key), label+": "+key)
	}
	if s.Command != "" {
		d.partCommand(&s, n.Given("command"), label)
		s.Cwd = cmp.Or(s.Cwd, d.dir)
	}
	s.Secrets = d.secretsOf(&s.Settings, n)
	return s
}

// isOff reports whether a server is disabled, before its other keys are read.
func (d *decoder) isOff(n *document.Node) bool {
	probe, s := &decoder{scalars: scalars{env: d.env}}, server{}
	for _, key := range []string{"enabled", "disabled"} {
		if v := n.Given(key); v != nil {
			serverEnabled{key == "enabled"}.read(probe, v, ": "+key, &s)
		}
	}
	return s.disabled
}

// checkServer looks for contradictions between the keys of a server.
func (d *decoder) checkServer(s *server, n *document.Node, label string) {
	command, url, transport := n.Given("command"), n.Given("url"), n.Given("transport")
	switch {
	case command != nil && url != nil:
		d.fail(s.name, label+" has both command and url", "keep one")
	case command == nil && url == nil:
		if !s.misspelt {
			d.fail(s.name, label+" has neither command nor url", "")
		}
	case url != nil:
		if s.TLS.KeyFile != "" && s.TLS.CertFile == "" {
			d.fail(n.Given("key_file"), label+": key_file needs cert_file", "")
		}
		if strings.HasPrefix(s.URL, "http:") {
			d.unused(n, label, "an http URL", "ca_file", "cert_file", "key_file")
		}
		if s.Login.PerUser && s.Login.Grant != "" && s.Login.Grant != login.GrantCode {
			d.fail(n.Given("per_user"), label+": per_user and oauth.grant "+string(s.Login.Grant)+" contradict each other", "only a browser proves who logs in; remove per_user, or the grant")
		}
		if s.Transport == upstream.TransportStdio {
			d.fail(transport, label+": transport stdio needs command, not url", "remove it, or write "+string(upstream.TransportHTTP)+" or "+string(upstream.TransportSSE))
		}
		if s.Login.Set && slices.ContainsFunc(slices.Collect(maps.Keys(s.Headers)), func(name string) bool { return strings.EqualFold(name, "Authorization") }) {
			d.warn(n.Given("oauth"), label+": oauth is not used with a header Authorization", "keep one")
		}
		d.unused(n, label, "url", "args", "env", "cwd", "sandbox", "sandbox_optional")
	default:
		if s.Transport == upstream.TransportHTTP || s.Transport == upstream.TransportSSE {
			d.fail(transport, fmt.Sprintf("%s: transport %s needs url, not command", label, s.Transport), "remove it, or write "+string(upstream.TransportStdio))
		}
		d.unused(n, label, "command", "headers", "ca_file", "cert_file", "key_file", "oauth", "per_user")
	}
}

func (d *decoder) unused(n *document.Node, label, with string, keys ...string) {
	for _, key := range keys {
		if v := n.Given(key); v != nil && len(v.Items)+len(v.Pairs)+len(v.Text) > 0 {
			d.warn(v, fmt.Sprintf("%s: %s is not used with %s", label, key, with), "")
		}
	}
}

func (d *decoder) command(n *document.Node, label string, command *string) bool {
	if strings.TrimSpace(*command) == "" {
		d.fail(n, label+" is empty", "")
		return false
	}
	if isRelativeCommand(*command) || strings.HasPrefix(*command, "~") {
		return d.absolute(n, label, command)
	}
	return true
}

// bareVariable matches a value that ends in a variable of a shell.
var bareVariable = regexp.MustCompile(`^(?:\w+[ =])?\$([A-Za-z_][A-Za-z0-9_]*)$`)

// checkDollars warns of variables without braces, which are not replaced.
func (d *decoder) checkDollars(n *document.Node, label string) {
	if n == nil {
		return
	}
	if m := bareVariable.FindStringSubmatch(n.Text); n.Kind == document.Text && m != nil {
		d.warn(n, label+": $"+m[1]+" is not replaced", "write ${"+m[1]+"} for the variable")
	}
	for _, item := range n.Items {
		d.checkDollars(item, label)
	}
	for _, p := range n.Pairs {
		d.checkDollars(p.Value, label+" "+shorten(p.Key.Text))
	}
}

// partCommand splits a command that has its arguments in it.
func (d *decoder) partCommand(s *server, n *document.Node, label string) {
	words := strings.Fields(s.Command)
	if len(words) < 2 || strings.ContainsAny(s.Command, `"'\`) {
		return
	}
	if _, err := exec.LookPath(s.Command); err == nil {
		return // a program with blanks in its name
	}
	if strings.ContainsRune(words[0], filepath.Separator) && !exists(words[0]) {
		return // a folder with blanks in its name
	}
	s.Command, s.Args = words[0], append(words[1:], s.Args...)
	d.warn(n, label+": command has arguments in it, which are taken as args", "write them under args")
}

var legalPrefix = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,32}$`)

func prefix(d *decoder, n *document.Node, label string, text *string) bool {
	return d.require(legalPrefix.MatchString(*text), n, label, "at most 32 letters, digits, _ and -", `like "gh", or "" for none`)
}

// serverEnabled is enabled (on) or disabled (not on). Both may be given if they agree.
type serverEnabled struct{ on bool }

func (k serverEnabled) read(d *decoder, n *document.Node, label string, s *server) bool {
	// The key decides lenient, so its own variables are always checked.
	lenient := d.lenient
	d.lenient = false
	var off bool
	ok := boolean{not: k.on}.read(d, n, label, &off)
	d.lenient = lenient
	if ok && s.enabled != nil && off != s.disabled {
		d.fail(n, label[:strings.LastIndexByte(label, ':')]+": enabled and disabled contradict each other", "keep enabled")
		return false
	}
	if ok {
		s.disabled, s.enabled = off, n
	}
	return ok
}

func (serverEnabled) show(*secrets, server) *document.Node { return nil } // only enabled servers are printed

// ours returns a server in our keys, and reports keys without effect.
func (d *decoder) ours(t *taken, label string) *document.Node {
	for _, note := range t.unused {
		d.warn(note.key, fmt.Sprintf("%s: %s is not used", label, note.text), note.hint)
	}
	for _, note := range t.mended {
		d.warn(note.key, label+": "+note.text, note.hint)
	}
	for _, note := range t.refused {
		d.fail(note.key, label+": "+note.text, note.hint)
	}
	return t.node()
}

func (serverEnabled) schema() schema { return boolean{}.schema() }

var transports = choice[upstream.Transport]{
	words: []upstream.Transport{upstream.TransportAuto, upstream.TransportStdio, upstream.TransportHTTP, upstream.TransportSSE},
	other: map[string]upstream.Transport{"http": upstream.TransportHTTP}, // the most frequent mistake
}

// foreignPair reads a key of a server that is not in serverKeys, and reports whether it
// dealt with the key.
func (d *decoder) foreignPair(p document.Pair, label string, s *server) bool {
	key := p.Key.Text
	switch {
	case key == "disabled": // a variable; dialect.read takes other values
		serverEnabled{on: false}.read(d, p.Value, label+": "+cmp.Or(p.Key.WrittenAs, key), s)
	case d.foreign:
		d.warn(p.Key, fmt.Sprintf("%s: key %q is not used", label, shorten(key)), nearHint(key, serverKeys.names()))
	case slices.Contains(topKeys(), key):
		d.fail(p.Key, fmt.Sprintf("%s: unknown key %q", label, shorten(key)), "it belongs to the top level of the file")
	default:
		near, _ := closest(key, serverKeys.names())
		s.misspelt = s.misspelt || near == "command" || near == "url"
		return false
	}
	return true
}
