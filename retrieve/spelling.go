package retrieve

import (
	"regexp"
	"slices"
	"strings"

	"toolfinch/internal/nearest"
	"toolfinch/tool"
)

// maxSpelled bounds the names that are compared in another spelling, in bytes.
const maxSpelled = 128

var (
	// wrapping matches what models put in front of a name: namespaces of clients and of toolfinch itself.
	wrapping = regexp.MustCompile(`(?i)^(?:(?:functions|tools?)[.:/]+|default_api[_.:/]+|(?:mcp_+)?toolfinch[_.:/-]+)`)
	// client matches the prefix of clients, mcp__SERVER__, where the server may be any name.
	client = regexp.MustCompile(`(?i)^mcp(?:__([a-z0-9-]+(?:_[a-z0-9-]+)*?)__|[_.:/-]+)(.+)$`)
)

// bare returns a name without quotes, brackets and namespaces of clients.
func bare(name string) string {
	name = strings.TrimSuffix(strings.TrimSpace(strings.Trim(strings.TrimSpace(name), "`'\"")), "()")
	for range 3 {
		name = wrapping.ReplaceAllString(name, "")
	}
	return name
}

// spelling is a name that nothing has exactly, as it is compared.
type spelling struct {
	whole []string // the name with its server's
	alone string   // the name without it; "" if a client's prefix says which server is meant
}

func spellingOf(name string) spelling {
	m := client.FindStringSubmatch(name)
	if m == nil {
		return spelling{[]string{nearest.Fold(name)}, nearest.Fold(name)}
	}
	// What follows mcp__SERVER__ may be a tool of that server, or have its own server's name in it.
	return spelling{[]string{nearest.Fold(name), nearest.Fold(m[1] + m[2]), nearest.Fold(m[2])}, ""}
}

// means reports whether the spelling means a tool, with its server's name or without.
func (s spelling) means(id tool.ID, name string) (whole, alone bool) {
	if id.Kind != tool.KindTool || len(id.Server)+len(id.Name) > maxSpelled {
		return false, false
	}
	own := nearest.Fold(id.Name)
	whole = slices.Contains(s.whole, nearest.Fold(id.Server)+own) || name != "" && slices.Contains(s.whole, nearest.Fold(name))
	return whole, s.alone != "" && s.alone == own
}

// begins reports whether the spelling begins with a server's name.
func (s spelling) begins(server string) bool {
	server = nearest.Fold(server)
	return server != "" && slices.ContainsFunc(s.whole, func(name string) bool { return strings.HasPrefix(name, server) })
}

// isReserved reports whether a name is a meta-tool's in any spelling.
func isReserved(name string) bool {
	for meta := range offeredWith {
		if nearest.Fold(meta) == nearest.Fold(name) {
			return true
		}
	}
	return false
}
