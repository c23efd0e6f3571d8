package configs

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"toolfinch/rawjson"
	"toolfinch/view"
)

// Resolved is the whole configuration as YAML: variables replaced, defaults
// filled in, environment and flags applied, paths absolute. Load would read it as
// this configuration again. Secrets are masked as ***: values of env and headers
// (schemes as "Bearer" stay), keys, passwords and queries of URLs, arguments that
// look like secrets or come from variables with such names. It errs on the side
// of masking.
func (c *Config) Resolved() string {
	var b strings.Builder
	b.WriteString("# " + c.Path + "\n")
	if len(c.Disabled) > 0 {
		b.WriteString("# disabled: " + strings.Join(c.Disabled, ", ") + "\n")
	}
	writeYAML(&b, c.show(), 0)
	return b.String()
}

// ResolvedJSON is Resolved as JSON.
func (c *Config) ResolvedJSON() json.RawMessage { return nodeJSON(c.show()) }

// show is the tree of the configuration, with secrets masked.
func (c *Config) show() *node {
	servers := &node{kind: kindMapping}
	for _, settings := range c.Servers {
		s := server{Settings: settings}
		if i := slices.IndexFunc(c.Tools, func(t view.UpstreamTools) bool { return t.Name == s.Name }); i >= 0 {
			s.views = c.Tools[i]
		}
		servers.pairs = append(servers.pairs, pair{textNode(s.Name), serverKeys.show(c.secrets, s)})
	}
	root := top.show(c.secrets, *c)
	root.pairs = append([]pair{{textNode(serverBlocks[0]), servers}}, root.pairs...)
	return root
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
	return string(rawjson.Quote(strings.ReplaceAll(s, "${", "$${"))) // JSON's quotes are YAML's too
}

// quoteKey is like quoteText, but variables in keys are not replaced.
func quoteKey(s string) string {
	if plainYAML.MatchString(s) && !slices.Contains(yamlWords, strings.ToLower(s)) {
		return s
	}
	return string(rawjson.Quote(s))
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
	case n.kind == kindNumber: // or a duration
		b.WriteString(" " + n.text + "\n")
	default:
		b.WriteString(" " + inline(n) + "\n")
	}
}

// inline writes a value on one line, as JSON with $${ for ${.
func inline(n *node) string { return string(nodeJSON(escaped(n))) }

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
