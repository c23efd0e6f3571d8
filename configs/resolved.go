package configs

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"toolfinch/embed"
	"toolfinch/upstream"
	"toolfinch/view"
)

// Resolved is the whole configuration as YAML: variables replaced, defaults
// filled in, environment and flags applied, paths absolute. Secrets are masked
// as ***: values of env and headers (schemes as "Bearer" stay), keys, passwords
// and queries of URLs, arguments that look like secrets or come from variables
// with such names. It errs on the side of masking.
func (c *Config) Resolved() string {
	r := &resolver{secrets: c.secrets}
	root := r.config(c)
	var b strings.Builder
	b.WriteString("# " + c.Path + "\n")
	if len(c.Disabled) > 0 {
		b.WriteString("# disabled: " + strings.Join(c.Disabled, ", ") + "\n")
	}
	writeYAML(&b, root, 0)
	return b.String()
}

// ResolvedJSON is Resolved as JSON.
func (c *Config) ResolvedJSON() json.RawMessage {
	r := &resolver{secrets: c.secrets}
	var b bytes.Buffer
	writeJSON(&b, r.config(c))
	return b.Bytes()
}

func writeJSON(b *bytes.Buffer, n *node) {
	number, isNumber := jsonNumber(n.text)
	switch {
	case n.kind == kindMapping:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(jsonText(p.key.text))
			b.WriteByte(':')
			writeJSON(b, p.value)
		}
		b.WriteByte('}')
	case n.kind == kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, item)
		}
		b.WriteByte(']')
	case n.kind == kindNull:
		b.WriteString("null")
	case n.kind == kindBool:
		b.WriteString(n.text)
	case n.kind == kindNumber && isNumber:
		b.WriteString(number)
	default: // a duration is written without quotes, too
		b.Write(jsonText(n.text))
	}
}

// resolver makes the tree of a Config that Load would read as that Config again.
type resolver struct{ secrets *secrets }

// block is a mapping while it is built. Empty texts, nil nodes and what has
// nothing in it are left out.
type block struct{ node }

func newBlock() *block { return &block{node{kind: kindMapping}} }

func (b *block) add(key string, value *node) {
	if value != nil {
		b.pairs = append(b.pairs, pair{textNode(key), value})
	}
}

func (b *block) text(key, value string) {
	if value != "" {
		b.add(key, textNode(value))
	}
}

func (b *block) number(key string, value int)     { b.add(key, numberNode(value)) }
func (b *block) boolean(key string, value bool)   { b.add(key, boolNode(value)) }
func (b *block) list(key string, values []string) { b.add(key, listNode(values)) }
func (b *block) some(key string, values []string) { b.addFull(key, listNode(values)) }
func (b *block) addFull(key string, value *node) {
	if len(value.pairs)+len(value.items) > 0 {
		b.add(key, value)
	}
}

// time adds a duration: written like a number, without quotes.
func (b *block) time(key string, value time.Duration) {
	b.add(key, &node{kind: kindNumber, text: shortDuration(value)})
}

func numberNode(i int) *node { return &node{kind: kindNumber, text: strconv.Itoa(i)} }
func boolNode(v bool) *node  { return &node{kind: kindBool, text: strconv.FormatBool(v)} }

func listNode(values []string) *node {
	n := &node{kind: kindList}
	for _, value := range values {
		n.items = append(n.items, textNode(value))
	}
	return n
}

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

func (r *resolver) config(c *Config) *node {
	b := newBlock()
	servers := newBlock()
	for i := range c.Servers {
		s := &c.Servers[i]
		at := slices.IndexFunc(c.Tools, func(t view.UpstreamTools) bool { return t.Name == s.Name })
		var tools *view.UpstreamTools
		if at >= 0 {
			tools = &c.Tools[at]
		}
		servers.add(s.Name, r.server(s, tools))
	}
	b.add("mcp_servers", &servers.node)
	b.text("routing_type", string(c.Routing))
	b.number("top_k", c.TopK)
	r.embedder(b, &c.Embed)
	b.time("query_embed_timeout", c.QueryEmbedTimeout)
	b.boolean("learn", c.Learn)
	b.add("list_changed_exec", textNode(r.secrets.word(c.ListChangedExec)))
	b.text("data_dir", r.secrets.known(c.DataDir))
	b.text("log_level", strings.ToLower(c.LogLevel.String()))
	b.text("log_format", c.LogFormat)
	b.list("pinned", r.prose(c.Pinned))
	b.number("max_registered", c.MaxRegistered)
	b.number("max_sessions", c.MaxSessions)
	b.time("session_timeout", c.SessionTimeout)
	b.text("call_tool", string(c.CallTool))
	b.text("transport", c.Transport)
	b.text("listen", c.Listen)
	b.list("allowed_origins", r.prose(c.Origins))
	b.boolean("rest_api", c.REST)
	b.list("hook_headers", c.HookHeaders)
	b.text("principal_header", c.PrincipalHeader)
	b.add("gating", gatingNode(c.Gating))
	b.add("proxy_tool", r.proxyTool(c.ProxyTool))
	views := newBlock()
	for i := range c.Views {
		views.add(c.Views[i].Name, r.view(&c.Views[i]))
	}
	b.addFull("tool_views", &views.node)
	return &b.node
}

func (r *resolver) prose(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = r.secrets.prose(text)
	}
	return out
}

func (r *resolver) embedder(b *block, e *embed.Settings) {
	b.text("embedder", e.Kind)
	b.text("hf_model", r.secrets.prose(e.HFModel))
	b.text("openai_model", r.secrets.prose(e.OpenAI.Model))
	b.text("openai_base_url", r.url(e.OpenAI.BaseURL))
	b.text("openai_api_key", maskValue(e.OpenAI.APIKey))
	if e.OpenAI.Dimensions > 0 {
		b.number("openai_dimensions", e.OpenAI.Dimensions)
	}
	if e.OpenAI.MaxBytes > 0 {
		b.number("openai_max_bytes", e.OpenAI.MaxBytes)
	}
}

func (r *resolver) url(raw string) string {
	if raw == "" {
		return ""
	}
	return maskURL(r.secrets.known(raw))
}

func (r *resolver) server(s *upstream.Settings, tools *view.UpstreamTools) *node {
	b := newBlock()
	b.text("command", r.secrets.word(s.Command))
	b.some("args", r.secrets.words(s.Args))
	b.addFull("env", masked(s.Env))
	b.text("cwd", r.secrets.known(s.Cwd))
	b.text("url", r.url(s.URL))
	b.addFull("headers", masked(s.Headers))
	b.text("transport", string(s.Transport))
	b.text("description", r.secrets.prose(s.Description))
	b.time("connect_timeout", s.ConnectTimeout)
	b.time("call_timeout", s.CallTimeout)
	b.time("call_timeout_total", s.CallTimeoutTotal)
	b.text("protocol", string(s.Protocol))
	b.boolean("validate", s.Validate)
	if s.Prefix != nil {
		b.add("prefix", textNode(r.secrets.known(*s.Prefix)))
	}
	b.text("isolate", string(s.Isolate))
	b.time("ask_timeout", s.AskTimeout)
	if tools != nil {
		b.addFull("tools", r.overrides(tools.Tools))
		b.add("output_cache", outputNode(tools.Output))
	}
	return &b.node
}

// masked hides the values of env and headers, in the order of their names.
func masked(values map[string]string) *node {
	b := newBlock()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		b.add(name, textNode(maskValue(values[name])))
	}
	return &b.node
}

func (r *resolver) overrides(overrides []view.Override) *node {
	b := newBlock()
	for i := range overrides {
		b.add(overrides[i].Tool, r.override(&overrides[i]))
	}
	return &b.node
}

func (r *resolver) override(o *view.Override) *node {
	b := newBlock()
	b.text("name", r.secrets.known(o.Name))
	b.add("title", r.optional(o.Title))
	b.add("description", r.optional(o.Description))
	if o.Disabled {
		b.boolean("enabled", false)
	}
	parameters := newBlock()
	for i := range o.Parameters {
		parameters.add(o.Parameters[i].Name, r.parameter(&o.Parameters[i]))
	}
	b.addFull("parameters", &parameters.node)
	b.add("output_cache", outputNode(o.Output))
	return &b.node
}

func (r *resolver) optional(text *string) *node {
	if text == nil {
		return nil
	}
	return textNode(r.secrets.prose(*text))
}

func (r *resolver) parameter(p *view.Parameter) *node {
	b := newBlock()
	b.text("rename", r.secrets.known(p.Rename))
	b.add("description", r.optional(p.Description))
	b.add("default", r.json(p.Default, p.Name, ofData))
	if p.Hidden {
		b.boolean("hidden", true)
	}
	b.add("value", r.json(p.Value, p.Name, ofData))
	return &b.node
}

// json is the tree of a value that is called name; nil for nil.
func (r *resolver) json(raw []byte, name string, of shape) *node {
	if raw == nil {
		return nil
	}
	n := jsonNode(raw)
	if countsTokens(name, n) {
		name = ""
	}
	return r.secrets.tree(n, name, of)
}

func outputNode(o *view.OutputCache) *node {
	switch {
	case o == nil:
		return nil
	case o.MinSize == 0:
		return boolNode(false)
	}
	b := newBlock()
	b.number("min_size", o.MinSize)
	b.number("preview", o.Preview)
	b.time("ttl", o.TTL)
	return &b.node
}

func (r *resolver) view(v *view.Settings) *node {
	b := newBlock()
	b.text("description", r.secrets.prose(v.Description))
	b.text("exposure_mode", string(v.Exposure))
	b.number("direct_below", v.DirectBelow)
	tools := newBlock()
	for _, s := range v.Tools {
		tools.add(s.Name, r.overrides(s.Tools))
	}
	b.addFull("tools", &tools.node)
	if v.IncludeAll {
		b.boolean("include_all", true)
	}
	var globs []string
	for _, p := range v.Exclude {
		globs = append(globs, r.secrets.prose(p.Glob))
	}
	b.some("exclude", globs)
	hooks := newBlock()
	hooks.add("pre_call", r.hook(v.Hooks.PreCall))
	hooks.add("post_call", r.hook(v.Hooks.PostCall))
	b.addFull("hooks", &hooks.node)
	composites := newBlock()
	for i := range v.Composites {
		composites.add(v.Composites[i].Name, r.composite(&v.Composites[i]))
	}
	b.addFull("composite_tools", &composites.node)
	customs := &node{kind: kindList}
	for i := range v.Customs {
		customs.items = append(customs.items, r.custom(&v.Customs[i]))
	}
	b.addFull("custom_tools", customs)
	if v.RunScript != nil {
		b.add("run_script", &limits(newBlock(), *v.RunScript).node)
	}
	b.add("gating", gatingNode(v.Gating))
	b.add("proxy_tool", r.proxyTool(v.ProxyTool))
	return &b.node
}

func gatingNode(g *view.Gating) *node {
	if g == nil {
		return boolNode(false)
	}
	b := newBlock()
	b.boolean("enabled", true)
	b.number("max_tokens", g.MaxTokens)
	b.number("max_tools", g.MaxTools)
	if g.TTL > 0 {
		b.time("ttl", g.TTL)
	}
	return &b.node
}

func (r *resolver) proxyTool(name string) *node {
	if name == "" {
		return boolNode(false)
	}
	return textNode(r.secrets.known(name))
}

func (r *resolver) hook(h *view.Hook) *node {
	if h == nil {
		return nil
	}
	b := newBlock()
	if h.Module != "" {
		b.text("starlark", r.secrets.known(h.Module)+":"+h.Function)
	} else {
		b.list("command", r.secrets.words(h.Command))
	}
	b.text("on_error", onError(!h.Continue))
	b.time("timeout", h.Timeout)
	return &b.node
}

func onError(fail bool) string {
	if fail {
		return "fail"
	}
	return "continue"
}

func (r *resolver) composite(c *view.Composite) *node {
	b := newBlock()
	b.text("title", r.secrets.prose(c.Title))
	b.text("description", r.secrets.prose(c.Description))
	inputs := newBlock()
	for _, input := range c.Inputs {
		n := r.json(input.Schema, input.Name, ofSchema)
		if input.Required {
			n.pairs = append([]pair{{textNode("required"), boolNode(true)}}, n.pairs...)
		}
		inputs.add(input.Name, n)
	}
	b.addFull("inputs", &inputs.node)
	steps := newBlock()
	for _, s := range c.Steps {
		step := newBlock()
		step.text("tool", r.secrets.known(s.Tool))
		step.addFull("args", r.json(s.Args, "", ofData))
		if s.Timeout > 0 {
			step.time("timeout", s.Timeout)
		}
		steps.add(s.Key, &step.node)
	}
	b.add("parallel", &steps.node)
	b.text("on_error", onError(c.FailFast))
	b.number("concurrency", c.Concurrency)
	b.time("timeout", c.Timeout)
	return &b.node
}

func (r *resolver) custom(c *view.Custom) *node {
	b := newBlock()
	b.text("module", r.secrets.known(c.Module)+":"+c.Function)
	b.text("name", r.secrets.known(c.Name))
	return &limits(b, c.Limits).node
}

func limits(b *block, l view.ScriptLimits) *block {
	b.number("max_calls", l.Calls)
	b.add("max_steps", &node{kind: kindNumber, text: strconv.FormatUint(l.Steps, 10)})
	b.time("timeout", l.Time)
	b.number("max_output", l.Output)
	return b
}

// plainYAML is text that YAML reads as itself without quotes: it begins with a
// letter or /, and no mark of YAML's stands in it.
var plainYAML = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./+@-]*( [A-Za-z0-9_./+@-]+)*$`)

// yamlWords are read as something else than text, by us or by older readers.
var yamlWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"}

func quoteText(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return string(jsonText(strings.ReplaceAll(s, "${", "$${"))) // JSON's quotes are YAML's too
}

// quoteKey is like quoteText, but variables in keys are not replaced.
func quoteKey(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return string(jsonText(s))
}

// writeYAML writes a mapping in block style, and what has no mapping in it on
// one line.
func writeYAML(b *strings.Builder, n *node, depth int) {
	indent := strings.Repeat("  ", depth)
	for _, p := range n.pairs {
		b.WriteString(indent + quoteKey(p.key.text) + ":")
		writeValue(b, p.value, depth)
	}
}

func writeValue(b *strings.Builder, n *node, depth int) {
	switch {
	case n.kind == kindMapping && len(n.pairs) > 0:
		b.WriteByte('\n')
		writeYAML(b, n, depth+1)
	case n.kind == kindList && slices.ContainsFunc(n.items, func(i *node) bool { return i.kind == kindMapping && len(i.pairs) > 0 }):
		b.WriteByte('\n')
		indent := strings.Repeat("  ", depth+1)
		for _, item := range n.items {
			if item.kind != kindMapping || len(item.pairs) == 0 {
				b.WriteString(indent + "-")
				writeValue(b, item, depth+1)
				continue
			}
			var inner strings.Builder
			writeYAML(&inner, item, depth+2)
			b.WriteString(indent + "- " + strings.TrimPrefix(inner.String(), indent+"  "))
		}
	case n.kind == kindText:
		b.WriteString(" " + quoteText(n.text) + "\n")
	default:
		b.WriteString(" " + inline(n) + "\n")
	}
}

// inline writes a value on one line, as JSON with $${ for ${.
func inline(n *node) string {
	var b bytes.Buffer
	appendJSON(&b, escaped(n))
	return b.String()
}

// escaped returns n with $${ for ${ in its texts.
func escaped(n *node) *node {
	out := *n
	if n.kind == kindText {
		out.text = strings.ReplaceAll(n.text, "${", "$${")
	}
	out.items = slices.Clone(n.items)
	for i, item := range out.items {
		out.items[i] = escaped(item)
	}
	out.pairs = slices.Clone(n.pairs)
	for i, p := range out.pairs {
		out.pairs[i] = pair{p.key, escaped(p.value)}
	}
	return &out
}
