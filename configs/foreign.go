package configs

import (
	"fmt"
	"slices"
	"strings"

	"toolfinch/upstream"
)

// serverURL is the address of a server, under the key of some client.
type serverURL struct{ key string }

func (k serverURL) read(d *decoder, n *node, label string, s *server) bool {
	if s.url != nil {
		d.fail(n, fmt.Sprintf("%s has both %s and %s", strings.TrimSuffix(label, ": "+k.key), s.urlKey, k.key), "keep url")
		return false
	}
	s.url, s.urlKey = n, k.key
	var text string
	if !d.text(n, label, &text) {
		return false
	}
	// The text is not repeated: a URL may carry a password or a key.
	if _, ok := isWebURL(text); !ok {
		d.fail(n, label+" must be an http or https URL", "like https://mcp.example.com/mcp")
		return false
	}
	s.URL = text
	if k.key == "httpUrl" && s.transport == nil { // Gemini CLI, whose url is SSE
		s.Transport, s.transport, s.transportKey = upstream.TransportHTTP, n, k.key
	}
	return true
}

func (serverURL) show(known *secrets, s server) *node {
	return str{mask: (*secrets).url}.show(known, s.URL)
}

// serverTransport is the way to a server, under the key of some client.
type serverTransport struct{ key string }

// transports have all the names that clients have for them.
var transports = choice[upstream.Transport]{
	words: []upstream.Transport{upstream.TransportAuto, upstream.TransportStdio, upstream.TransportHTTP, upstream.TransportSSE},
	other: map[string]upstream.Transport{
		"http": upstream.TransportHTTP, "streamableHttp": upstream.TransportHTTP, "streamable_http": upstream.TransportHTTP,
		"local": upstream.TransportStdio,
	},
}

func (k serverTransport) read(d *decoder, n *node, label string, s *server) bool {
	var transport upstream.Transport
	if !transports.read(d, n, label, &transport) {
		return false
	}
	if s.transport != nil && s.Transport != transport {
		d.fail(n, fmt.Sprintf("%s: %s and %s contradict each other", strings.TrimSuffix(label, ": "+k.key), s.transportKey, k.key), "keep transport")
		return false
	}
	s.Transport, s.transport, s.transportKey = transport, n, k.key
	return true
}

func (serverTransport) show(known *secrets, s server) *node {
	return transports.show(known, s.Transport)
}

// foreignValues are other programs' keys for what we have, too.
var foreignValues = map[string]kind[server]{
	"type":      serverTransport{"type"},  // VS Code, Cursor, Claude Code
	"serverUrl": serverURL{"serverUrl"},   // Windsurf
	"httpUrl":   serverURL{"httpUrl"},     // Gemini CLI
	"disabled":  serverEnabled{on: false}, // Windsurf, Cline
}

// foreignKeys are keys that other programs' files have in a server and that
// mean nothing here: approvals, choices of tools, editors' conveniences. They
// are accepted, so that such a file works as it is, and named in a warning with
// what to write instead.
var foreignKeys = map[string]string{
	// Approval is the client's.
	"alwaysAllow": "", "autoApprove": "", "trust": "",
	"disabledTools": "", "enabledTools": "", "includeTools": "", "excludeTools": "", "disabled_tools": "", "enabled_tools": "",
	// Units differ between clients: none is guessed.
	"timeout":              "write connect_timeout or call_timeout",
	"startup_timeout_sec":  "write connect_timeout",
	"tool_timeout_sec":     "write call_timeout",
	"auth":                 "write the token under headers, or oauth: {client_id: ...}",
	"authProviderType":     "",
	"bearer_token_env_var": "write Authorization: Bearer ${NAME} under headers",
	"envFile":              "write the variables under env",
	"dev":                  "", "gallery": "", "version": "", "name": "", "sandboxEnabled": "",
}

// foreignPair reads a key in which other programs' files differ from ours. It
// reports whether the key is one of those, or has been refused.
func (d *decoder) foreignPair(p pair, label string, s *server) bool {
	key, n := p.key.text, p.value
	hint, ignored := foreignKeys[key]
	switch {
	case foreignValues[key] != nil:
		if n.kind != kindNull {
			foreignValues[key].read(d, n, label+": "+key, s)
		}
	case ignored:
		d.warn(p.key, fmt.Sprintf("%s: %s is not used", label, key), hint)
	case slices.Contains(topKeys(), key):
		d.fail(p.key, fmt.Sprintf("%s: unknown key %q", label, shorten(key)), "it belongs to the top level of the file")
	default:
		near, _ := closest(key, serverKeys.names())
		s.misspelt = s.misspelt || near == "command" || near == "url"
		return false
	}
	return true
}
