package configs

import (
	"fmt"
	"slices"

	"toolfinch/upstream"
)

// foreignKeys are keys that other programs' files have in a server and that
// mean nothing here: approvals, choices of tools, editors' conveniences. They
// are accepted, so that such a file works as it is, and named in a warning.
var foreignKeys = []string{
	"alwaysAllow", "autoApprove", "trust", // approval is the client's
	"disabledTools", "enabledTools", "includeTools", "excludeTools", "disabled_tools", "enabled_tools",
	"timeout", "startup_timeout_sec", "tool_timeout_sec", // units differ between clients: none is guessed
	"auth", "oauth", "authProviderType", "bearer_token_env_var",
	"dev", "envFile", "gallery", "version", "name", "sandbox", "sandboxEnabled",
}

// foreignHints say what to write instead, where there is something.
var foreignHints = map[string]string{
	"timeout":              "write connect_timeout or call_timeout",
	"startup_timeout_sec":  "write connect_timeout",
	"tool_timeout_sec":     "write call_timeout",
	"envFile":              "write the variables under env",
	"auth":                 "write the token under headers",
	"oauth":                "write the token under headers",
	"bearer_token_env_var": "write Authorization: Bearer ${NAME} under headers",
}

// foreignPair reads a key in which other programs' files differ from ours. It
// reports whether the key is one of those.
func (d *decoder) foreignPair(s *server, p pair, label string) bool {
	key := p.key.text
	nothing := p.value.kind == kindNull
	switch key {
	case "type": // VS Code, Cursor, Claude Code
		if !nothing {
			d.transport(s, p.value, key, label)
		}
	case "serverUrl": // Windsurf
		if !nothing {
			d.url(s, p.value, key, label)
		}
	case "httpUrl": // Gemini CLI, whose url is SSE
		if !nothing {
			d.url(s, p.value, key, label)
			if s.transport == nil {
				s.Transport, s.transport, s.transportKey = upstream.TransportHTTP, p.value, key
			}
		}
	case "disabled": // Windsurf, Cline
		if !nothing {
			d.enabled(s, p.value, false, label)
		}
	default:
		if !slices.Contains(foreignKeys, key) {
			return false
		}
		d.warn(p.key, fmt.Sprintf("%s: %s is not used", s.label, key), foreignHints[key])
	}
	return true
}
