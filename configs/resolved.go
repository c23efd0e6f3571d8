package configs

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/document"
	"toolfinch/trust/pins"
	"toolfinch/view"
)

// Resolved is the whole configuration as YAML, with variables, defaults, environment and
// flags applied and paths absolute. Load reads it as the same configuration. Secrets become
// ***: values of env and headers except schemes, keys, passwords and queries of URLs, and
// arguments that look like secrets. In doubt a text is masked.
func (c *Config) Resolved() string {
	var b strings.Builder
	b.WriteString("# " + c.Path + "\n")
	if len(c.Disabled) > 0 {
		b.WriteString("# disabled: " + strings.Join(c.Disabled, ", ") + "\n")
	}
	for _, broken := range c.Broken {
		b.WriteString("# left out: " + broken.Message + "\n")
	}
	return b.String() + document.YAML(c.ResolvedJSON())
}

// ResolvedJSON is Resolved as JSON.
func (c *Config) ResolvedJSON() json.RawMessage { return escaped(c.show()).JSON() }

// show returns the configuration as a tree with secrets masked.
func (c *Config) show() *document.Node {
	servers := &document.Node{Kind: document.Mapping}
	for _, settings := range c.Servers {
		if settings.Fault != "" {
			continue
		}
		s := server{Settings: settings, changes: cmp.Or(c.Changes[settings.Name], pins.Review)}
		if i := slices.IndexFunc(c.Tools, func(t view.UpstreamTools) bool { return t.Name == s.Name }); i >= 0 {
			s.views = c.Tools[i]
		}
		servers.Pairs = append(servers.Pairs, document.Pair{Key: document.NewText(s.Name), Value: serverKeys.show(c.secrets, s)})
	}
	root := top.show(c.secrets, *c)
	root.Pairs = append([]document.Pair{{Key: document.NewText(serverBlocks[0]), Value: servers}}, root.Pairs...)
	return root
}

// escaped returns n with $${ for ${ in its texts.
func escaped(n *document.Node) *document.Node {
	out := *n
	if n.Kind == document.Text {
		out.Text = strings.ReplaceAll(n.Text, "${", "$${")
	}
	out.Items = slices.Clone(n.Items)
	for i, item := range out.Items {
		out.Items[i] = escaped(item)
	}
	out.Pairs = slices.Clone(n.Pairs)
	for i, p := range out.Pairs {
		out.Pairs[i] = document.Pair{Key: p.Key, Value: escaped(p.Value)}
	}
	return &out
}

// Masked masks secrets in a text of the configuration or of a file that it names.
func (c *Config) Masked(text string) string { return c.secrets.prose(text) }

// ViewNames returns the names in tool_views, or the default view's without tool_views.
func (c *Config) ViewNames() (names []string) {
	for _, v := range c.Views {
		names = append(names, v.Name)
	}
	if names == nil {
		names = []string{view.Default}
	}
	return names
}
