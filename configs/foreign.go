package configs

import (
	"fmt"
	"slices"

	"toolfinch/configs/document"
	"toolfinch/upstream"
)

// ours is a server in our own keys. What its own say beyond that is reported.
func (d *decoder) ours(n *document.Node, label string) *document.Node {
	n.Pairs = d.unique(n, "key")
	t := dialect{}.read(n)
	for _, note := range t.unused {
		d.warn(note.key, fmt.Sprintf("%s: %s is not used", label, note.text), note.hint)
	}
	for _, note := range t.refused {
		d.fail(note.key, label+": "+note.text, note.hint)
	}
	return t.node()
}

var transports = choice[upstream.Transport]{
	words: []upstream.Transport{upstream.TransportAuto, upstream.TransportStdio, upstream.TransportHTTP, upstream.TransportSSE},
	other: map[string]upstream.Transport{"http": upstream.TransportHTTP}, // what is misspelt most
}

// serverURL checks the address of a server. It is not repeated: it may carry a password
// or a key.
func serverURL(d *decoder, n *document.Node, label string, text *string) bool {
	if _, ok := isWebURL(*text); !ok {
		d.fail(n, label+" must be an http or https URL", "like https://mcp.example.com/mcp")
		return false
	}
	return true
}

// foreignPair reads a key of a server that is not one of serverKeys. It reports whether
// it is known, or has been refused.
func (d *decoder) foreignPair(p document.Pair, label string, s *server) bool {
	key := p.Key.Text
	switch {
	case key == "disabled": // of Windsurf and Cline
		if p.Value.Kind != document.Null {
			serverEnabled{on: false}.read(d, p.Value, label+": "+key, s)
		}
	case slices.Contains(topKeys(), key):
		d.fail(p.Key, fmt.Sprintf("%s: unknown key %q", label, shorten(key)), "it belongs to the top level of the file")
	default:
		near, _ := closest(key, serverKeys.names())
		s.misspelt = s.misspelt || near == "command" || near == "url"
		if !d.foreign || near != "" {
			return false
		}
		d.warn(p.Key, fmt.Sprintf("%s: key %q is not used", label, shorten(key)), "")
	}
	return true
}
