package configs

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"toolfinch/configs/document"
)

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
