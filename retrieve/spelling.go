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

// wrapping matches what clients and models put in front of a name: a namespace, or toolfinch's own name.
var wrapping = regexp.MustCompile(`(?i)^(?:(?:functions|tools?)[.:/]+|default_api[_.:/]+|(?:mcp[_.:/-]+)?toolfinch[_.:/-]+)`)

// bare returns a name without quotes, brackets and namespaces.
func bare(name string) string {
	name = strings.TrimSuffix(strings.Trim(name, "`'\" \t\n"), "()")
	for before := ""; name != before; {
		before, name = name, wrapping.ReplaceAllString(name, "")
	}
	return name
}

// spelling is a name as it is compared: without case and separators.
type spelling struct {
	whole []string // the name with its server's
	alone string   // the name without its server's; "" behind a prefix of another server
}

func spellingOf(plain string) spelling {
	s := spelling{[]string{nearest.Fold(plain)}, nearest.Fold(plain)}
	if rest, prefixed := strings.CutPrefix(strings.ToLower(plain), "mcp"); prefixed && strings.TrimLeft(rest, "_./:-") != rest {
		rest = strings.TrimLeft(rest, "_./:-")
		_, tail, _ := strings.Cut(rest, "__") // behind the name that a client gave to toolfinch
		s = spelling{append(s.whole, nearest.Fold(rest), nearest.Fold(tail)), ""}
	}
	s.whole = slices.DeleteFunc(s.whole, func(name string) bool { return name == "" })
	return s
}

// means reports whether a default name fits, with its server's name or without.
func (s spelling) means(id tool.ID) (whole, alone bool) {
	own := nearest.Fold(id.Name)
	return slices.Contains(s.whole, nearest.Fold(id.Server)+own), own != "" && s.alone == own
}

func (s spelling) begins(with string) bool {
	with = nearest.Fold(with)
	return with != "" && slices.ContainsFunc(s.whole, func(name string) bool { return strings.HasPrefix(name, with) })
}
