package retrieve

import (
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/index"
	"toolfinch/internal/printable"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// head returns the first line about a tool: its name, marks, and use.
func head(name string, marks []string, description string) string {
	if len(marks) > 0 {
		name += " (" + strings.Join(marks, ", ") + ")"
	}
	if about := printable.Line(FirstSentence(description)); about != "" {
		name += ": " + about
	}
	return name
}

// describeNonTool describes a prompt, resource or template.
func (r *Retriever) describeNonTool(q Query, hit Hit) string {
	kind := hit.Def.ID.Kind
	name := exact(hit.Name)
	if kind == tool.KindPrompt && q.Detail != DetailName {
		name += promptSignature(rawjson.Member(hit.Def.Raw, "arguments"))
	}
	if q.Detail == DetailName {
		return kind.String() + " " + name
	}
	return head(kind.String()+" "+name, nil, hit.Def.Description) + "\n use: " + r.use(hit)
}

// use says how to use a hit that is not a tool.
func (r *Retriever) use(hit Hit) string {
	use, through := "resources/read with this uri", "name = this uri"
	switch hit.Def.ID.Kind {
	case tool.KindPrompt:
		use, through = "prompts/get with this name", "this name"
	case tool.KindSkill:
		return ReadSkill + " with this uri"
	case tool.KindTemplate:
		use, through = "fill in the uriTemplate, then resources/read with that uri", "name = that uri"
	}
	if _, taken := r.catalog.Lookup(hit.Name); r.settings.Offer.Call && !taken { // call_tool would call the tool of that name
		use += ", or call_tool with " + through
	}
	return use
}

// promptSignature is Signature for a prompt's arguments, which are all text: "(city, units?)".
func promptSignature(arguments json.RawMessage) string {
	var names []string
	for argument := range rawjson.Elements(arguments) {
		name := exact(rawjson.Text(rawjson.Member(argument, "name")))
		if string(rawjson.Member(argument, "required")) != "true" {
			name += "?"
		}
		names = append(names, name)
	}
	return "(" + rawjson.Clip(strings.Join(names, ", "), maxAnswer/10) + ")"
}

// why returns the words of a query that occur in a definition, in any form; else what else found the definition.
func why(query string, hybrid bool, hit Hit) string {
	def := hit.Def
	query = rawjson.Head(query, maxUseQuery) // bounds the work per word
	asked := index.Terms(query)
	says := index.Terms(strings.Join([]string{hit.Name, def.ID.Name, def.ID.Server, def.Title, def.Full().Description}, "\n"))
	var shared []string
	for word := range strings.FieldsFuncSeq(query, func(c rune) bool { return strings.ContainsRune(" ,.;:!?\"'()\n\t", c) }) {
		if len(shared) == 4 {
			break
		}
		word = strings.ToLower(word)
		terms := index.Terms(word)
		if len(terms) > 0 && !slices.Contains(shared, word) &&
			!slices.ContainsFunc(terms, func(term string) bool { return !slices.Contains(asked, term) || !slices.Contains(says, term) }) {
			shared = append(shared, word)
		}
	}
	switch {
	case shared != nil:
		return strings.Join(shared, " ")
	case hybrid:
		return "meaning"
	}
	return "related words"
}
