package configs

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"toolfinch/configs/document"
	"toolfinch/trust/pins"
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
	for _, broken := range c.Broken {
		b.WriteString("# left out: " + broken.Message + "\n")
	}
	return b.String() + document.YAML(c.ResolvedJSON())
}

// ResolvedJSON is Resolved as JSON.
func (c *Config) ResolvedJSON() json.RawMessage { return escaped(c.show()).JSON() }

// Fingerprint is a short hash of the configuration as it was read: every key of the file but those of one machine
// (listen, data_dir), without comments, and the policies. Replicas of one configuration have the same. It is "" without
// a file.
func (c *Config) Fingerprint() string {
	return c.fingerprint[:min(8, len(c.fingerprint))]
}

// digest is a hash of the values below n, but for the keys of n named in without. A node is hashed once, because aliases
// of aliases grow without end.
func digest(n *document.Node, done map[*document.Node]string, without ...string) string {
	if sum, ok := done[n]; ok {
		return sum
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %q", n.Kind, n.Text)
	for _, item := range n.Items {
		text.WriteString(" " + digest(item, done))
	}
	for _, p := range n.Pairs {
		if !slices.Contains(without, p.Key.Text) {
			fmt.Fprintf(&text, " %q %s", p.Key.Text, digest(p.Value, done))
		}
	}
	done[n] = hash(text.String())
	return done[n]
}

// hash is the SHA-256 of text in hex digits.
func hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// show is the tree of the configuration, with secrets masked.
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

// Masked is a text of the configuration, or of a file that it names, with secrets masked as
// Resolved masks them.
func (c *Config) Masked(text string) string { return c.secrets.prose(text) }

// ViewNames are the names that views have: those of tool_views, or that of the one view
// where there are none.
func (c *Config) ViewNames() (names []string) {
	for _, v := range c.Views {
		names = append(names, v.Name)
	}
	if names == nil {
		names = []string{view.Default}
	}
	return names
}
