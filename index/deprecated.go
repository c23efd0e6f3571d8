package index

import (
	"regexp"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// The field of deprecated documents has this only term.
const (
	fieldDeprecated = "deprecated"
	deprecatedTerm  = "deprecated"
)

var (
	deprecatedName = regexp.MustCompile(`(?i)[(\[]deprecated[)\]]|^deprecated\b|(?:^|[^\pL])(?-i:DEPRECATED)(?:[^\pL]|$)`)
	// A sentence that begins so, or says so of the tool, but not of packages or fields.
	deprecatedText = regexp.MustCompile(`(?i)(?:^|[.!;\n])[^\pL]*deprecated(?:\s*[-:.,!)\]–—]|\s+(?:please|use|in favou?r|since|and)\b)|\bthis (?:tool|method|endpoint|function|operation) (?:is|has been) (?:now )?deprecated\b` +
		// The same for an alias, and for a tool that is kept for old clients.
		`|\bthis (?:tool )?is an alias (?:for|of)\b|\(alias (?:for|of) [\w.-]+\)|^\W*(?:alias (?:for|of)|legacy (?:tool|alias|version))\b`)
)

// deprecated reports whether a definition says that it is deprecated, or an alias.
func deprecated(def *tool.Def) bool {
	name, text := ownName(def), rawjson.Head(def.Description, maxText)
	return mayBe(name+" "+def.Title) && (deprecatedName.MatchString(name) || deprecatedName.MatchString(def.Title)) ||
		mayBe(text) && deprecatedText.MatchString(text)
}

// mayBe is a cheap test before the expressions.
func mayBe(text string) bool {
	return strings.Contains(text, "eprecated") || strings.Contains(text, "DEPRECATED") ||
		strings.Contains(text, "lias ") || strings.Contains(text, "egacy ")
}
