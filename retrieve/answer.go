package retrieve

import (
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// answer is the structured content of retrieve_tools, as JSON.
type answer json.RawMessage

// item is one hit of an answer. Members are empty that the level of detail leaves out or
// that only other kinds have.
type item struct {
	Name         string          `json:"name,omitempty"` // of a tool or prompt
	Kind         string          `json:"kind,omitempty"` // unless only tools were asked for
	URI          string          `json:"uri,omitempty"`
	URITemplate  string          `json:"uriTemplate,omitempty"`
	Server       string          `json:"server"`
	Title        string          `json:"title,omitempty"`
	Description  *string         `json:"description,omitempty"`
	Summary      string          `json:"summary,omitempty"`
	Signature    string          `json:"signature,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	Arguments    json.RawMessage `json:"arguments,omitempty"` // of a prompt, as listed
	MimeType     string          `json:"mimeType,omitempty"`
	Use          string          `json:"use,omitempty"` // of other kinds than tools: how to use it
	Score        float64         `json:"score"`
	Registered   *bool           `json:"registered,omitempty"` // of a tool
}

func (r *Retriever) answer(q Query, found Found, registered map[string]bool) answer {
	type indexState struct {
		Tools   int    `json:"tools"`
		Ready   int    `json:"servers_ready"`
		Pending int    `json:"servers_pending"`
		Failed  int    `json:"servers_failed"`
		Search  string `json:"search"`             // "words", or "hybrid": words and vectors
		Vectors *int   `json:"embedded,omitempty"` // tools that have a vector, while not all have
		Reason  string `json:"reason,omitempty"`   // why not hybrid
	}
	out := struct {
		Tools       []item            `json:"tools"`
		Confident   bool              `json:"confident"`         // false: perhaps nothing here is what was asked for
		Missing     []string          `json:"missing,omitempty"` // servers that are not there, and why
		Servers     map[string]string `json:"servers,omitempty"`
		Index       indexState        `json:"index"`
		Next        string            `json:"next,omitempty"` // what to do before tools can be called
		Tokens      int               `json:"tokens"`
		TokensSaved *int              `json:"tokens_saved,omitempty"`
	}{Tools: []item{}}

	about := descriptions(r.catalog.Servers())
	for _, hit := range found.Hits {
		out.Tools = append(out.Tools, r.item(hit, q, registered))
		out.Tokens += r.tokens(hit.Tool, q)
		if text := about[hit.Def.ID.Server]; text != "" && q.Detail != DetailName {
			if out.Servers == nil {
				out.Servers = map[string]string{}
			}
			out.Servers[hit.Def.ID.Server] = text
		}
	}
	out.Index = indexState{Ready: found.health.Ready, Pending: found.health.Pending, Failed: found.health.Failed}
	if r.gated() && slices.ContainsFunc(out.Tools, func(it item) bool { return it.Registered != nil && !*it.Registered }) {
		out.Next = "Tools that are not registered cannot be called yet: send their names to " + ProvisionTools + " as tool_ids."
	}
	out.Confident, out.Missing = found.Confidence >= Confident, described(found.Absent)
	out.Index.Tools = r.catalog.Len()
	out.Index.Search, out.Index.Reason = "words", found.Reason
	if found.Hybrid {
		out.Index.Search = "hybrid"
		if n, of := r.catalog.embedded(); n < of { // what is missing may be tools
			n = max(0, out.Index.Tools-(of-n))
			out.Index.Vectors = &n
		}
	}
	if q.tools() {
		saved := r.catalog.ListingCost() - out.Tokens
		out.TokensSaved = &saved
	}
	return answer(rawjson.Of(out))
}

func (r *Retriever) item(hit Hit, q Query, registered map[string]bool) item {
	if hit.Def.ID.Kind != tool.KindTool {
		return r.otherItem(hit, q.Detail)
	}
	it := newItem(hit, q.Detail, registered[hit.Name])
	if q.Kinds != nil {
		it.Kind = tool.KindTool.String()
	}
	return it
}

func newItem(hit Hit, detail Detail, registered bool) item {
	def := hit.Def
	it := item{Name: hit.Name, Server: def.ID.Server, Score: hit.Score, Registered: &registered}
	switch detail {
	case DetailSummary:
		it.Summary = FirstSentence(def.Description)
		it.Signature = Signature(def.InputSchema)
	case DetailFull:
		it.Title = def.Title
		it.Description = &def.Description
		it.InputSchema = def.InputSchema
		it.OutputSchema = def.OutputSchema
		it.Annotations = rawjson.Member(def.Raw, "annotations")
	}
	return it
}

// otherItem is the item of a prompt, resource or template, with how to use it.
func (r *Retriever) otherItem(hit Hit, detail Detail) item {
	def := hit.Def
	it := item{Kind: def.ID.Kind.String(), Server: def.ID.Server, Score: hit.Score}
	use, through := "resources/read with this uri", "name = this uri"
	switch def.ID.Kind {
	case tool.KindPrompt:
		it.Name = hit.Name
		use, through = "prompts/get with this name", "this name"
	case tool.KindResource:
		it.URI = hit.Name
	case tool.KindTemplate:
		it.URITemplate = hit.Name
		use, through = "fill in the uriTemplate, then resources/read with that uri", "name = that uri"
	}
	arguments := rawjson.Member(def.Raw, "arguments")
	switch detail {
	case DetailName:
		return it
	case DetailSummary:
		it.Summary = FirstSentence(def.Description)
		if it.Name != "" {
			it.Signature = promptSignature(arguments)
		}
	case DetailFull:
		it.Title = def.Title
		if def.Description != "" {
			it.Description = &def.Description
		}
		if it.Name != "" {
			it.Arguments = arguments
		}
		it.MimeType = rawjson.Text(rawjson.Member(def.Raw, "mimeType"))
	}
	it.Use = use
	if _, taken := r.catalog.Lookup(hit.Name); r.settings.Offer.Call && !taken { // a tool of that name comes first
		it.Use += ", or call_tool with " + through
	}
	return it
}

// promptSignature is Signature of a prompt's arguments, which are all text:
// "(city*, units)".
func promptSignature(arguments json.RawMessage) string {
	var names []string
	for argument := range rawjson.Elements(arguments) {
		name := rawjson.Text(rawjson.Member(argument, "name"))
		if string(rawjson.Member(argument, "required")) == "true" {
			name += "*"
		}
		names = append(names, name)
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// tokens returns how many tokens a hit takes at this level of detail.
func (r *Retriever) tokens(t *tool.Tool, q Query) int {
	if q.Detail == DetailFull && t.Def.ID.Kind == tool.KindTool {
		return r.catalog.Tokens(t)
	}
	return r.catalog.costs.cost(string(q.Detail)+t.Name+t.Def.Hash, func() []byte {
		return rawjson.Of(r.item(Hit{Tool: t}, q, nil))
	})
}

// result returns the tool result: structured content, and the same JSON as text.
func (a answer) result() tool.Result {
	return append(append(append(append(tool.Result(`{"content":[{"type":"text","text":`),
		rawjson.Of(string(a))...), `}],"structuredContent":`...), a...), '}')
}

// FirstSentence returns the first sentence or line of a description, at most
// 200 bytes of it.
func FirstSentence(description string) string {
	s := strings.TrimSpace(description)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = strings.TrimSpace(s[:i])
	}
	if i := strings.Index(s, ". "); i >= 0 {
		s = s[:i+1]
	}
	return rawjson.Clip(s, 200)
}

// Signature returns the parameters of an input schema in one line, with a star for
// required ones: "(title*: string, labels: string[])". It is "()" for a schema that is
// not an object.
func Signature(schema json.RawMessage) string {
	var required []string
	_ = json.Unmarshal(rawjson.Member(schema, "required"), &required)
	var b strings.Builder
	b.WriteByte('(')
	first := true
	for name, property := range rawjson.Members(rawjson.Member(schema, "properties")) {
		if !first {
			b.WriteString(", ")
		}
		first = false
		b.WriteString(name)
		for _, r := range required {
			if r == name {
				b.WriteByte('*')
				break
			}
		}
		b.WriteString(": ")
		b.WriteString(typeName(property, 0))
	}
	b.WriteByte(')')
	return b.String()
}

// typeName is a short name of a property's type: string, number[], "a"|"b".
func typeName(schema json.RawMessage, depth int) string {
	const most = 6 // enum values, or alternatives
	if depth > 3 {
		return "any"
	}
	var s struct {
		Type  json.RawMessage   `json:"type"`
		Enum  []json.RawMessage `json:"enum"`
		Items json.RawMessage   `json:"items"`
		AnyOf []json.RawMessage `json:"anyOf"`
		OneOf []json.RawMessage `json:"oneOf"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return "any"
	}
	var names []string
	switch {
	case len(s.Enum) > 0:
		for _, v := range s.Enum[:min(most, len(s.Enum))] {
			names = append(names, string(v))
		}
		if len(s.Enum) > most {
			names = append(names, "...")
		}
	case len(s.AnyOf)+len(s.OneOf) > 0:
		for _, v := range append(s.AnyOf, s.OneOf...)[:min(most, len(s.AnyOf)+len(s.OneOf))] {
			names = append(names, typeName(v, depth+1))
		}
	default:
		if json.Unmarshal(s.Type, &names) != nil {
			var one string
			if json.Unmarshal(s.Type, &one) != nil {
				return "any"
			}
			names = []string{one}
		}
		for i, name := range names {
			if name == "array" {
				item := typeName(s.Items, depth+1)
				if strings.Contains(item, "|") {
					item = "(" + item + ")"
				}
				names[i] = item + "[]"
			}
		}
	}
	return strings.Join(names, "|")
}
