package retrieve

import (
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// answer is what a meta-tool answers in JSON.
type answer json.RawMessage

// item is one hit of an answer. Members are empty that only other kinds have.
type item struct {
	Name         string          `json:"name,omitempty"` // of a tool or prompt
	Kind         string          `json:"kind,omitempty"` // unless only tools were asked for
	URI          string          `json:"uri,omitempty"`
	URITemplate  string          `json:"uriTemplate,omitempty"`
	Server       string          `json:"server"`
	Title        string          `json:"title,omitempty"`
	Description  *string         `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	Annotations  json.RawMessage `json:"annotations,omitempty"`
	Arguments    json.RawMessage `json:"arguments,omitempty"` // of a prompt, as listed
	MimeType     string          `json:"mimeType,omitempty"`
	Use          string          `json:"use,omitempty"` // of other kinds than tools: how to use it
	Score        float64         `json:"score"`
	Registered   *bool           `json:"registered,omitempty"` // of a tool
}

func (r *Retriever) answer(q Query, found Found, registered Registration) answer {
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
		if text := about[hit.Def.ID.Server]; text != "" {
			if out.Servers == nil {
				out.Servers = map[string]string{}
			}
			out.Servers[hit.Def.ID.Server] = text
		}
	}
	out.Index = indexState{Ready: found.health.Ready, Pending: found.health.Pending, Failed: found.health.Failed}
	if r.gated() && slices.ContainsFunc(out.Tools, func(it item) bool { return it.Registered != nil && !*it.Registered }) {
		out.Next = notProvisioned
	}
	out.Confident, out.Missing = found.Confidence >= Confident, described(found.Absent)
	out.Index.Tools = r.catalog.Len()
	out.Index.Search, out.Index.Reason = "words", found.Reason
	if found.Hybrid {
		out.Index.Search = "hybrid"
		if n, of := r.catalog.Embedded(), r.catalog.Indexed(); n < of { // what is missing may be tools
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

func (r *Retriever) item(hit Hit, q Query, registered Registration) item {
	def := hit.Def
	it := item{Server: def.ID.Server, Title: def.Title, Score: hit.Score}
	if def.ID.Kind != tool.KindTool || q.Kinds != nil {
		it.Kind = def.ID.Kind.String()
	}
	if def.ID.Kind == tool.KindTool || def.Description != "" {
		it.Description = &def.Full().Description
	}
	switch def.ID.Kind {
	case tool.KindTool:
		is := registered.Names[hit.Name]
		it.Name, it.Registered = hit.Name, &is
		it.InputSchema, it.OutputSchema, it.Annotations = def.InputSchema, def.OutputSchema, rawjson.Member(def.Raw, "annotations")
		return it
	case tool.KindPrompt:
		it.Name, it.Arguments = hit.Name, rawjson.Member(def.Raw, "arguments")
	case tool.KindResource:
		it.URI = hit.Name
	case tool.KindTemplate:
		it.URITemplate = hit.Name
	}
	it.MimeType = rawjson.Text(rawjson.Member(def.Raw, "mimeType"))
	it.Use = r.use(hit)
	return it
}

// describeOther is describeHit for a prompt, resource or template.
func (r *Retriever) describeOther(q Query, hit Hit) string {
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

// use says how to use a hit that is no tool.
func (r *Retriever) use(hit Hit) string {
	use, through := "resources/read with this uri", "name = this uri"
	switch hit.Def.ID.Kind {
	case tool.KindPrompt:
		use, through = "prompts/get with this name", "this name"
	case tool.KindTemplate:
		use, through = "fill in the uriTemplate, then resources/read with that uri", "name = that uri"
	}
	if _, taken := r.catalog.Lookup(hit.Name); r.settings.Offer.Call && !taken { // a tool of that name comes first
		use += ", or call_tool with " + through
	}
	return use
}

// promptSignature is Signature of a prompt's arguments, which are all text:
// "(city, units?)".
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

// tokens returns how many tokens a hit takes with all details.
func (r *Retriever) tokens(t *tool.Tool, q Query) int {
	if t.Def.ID.Kind == tool.KindTool {
		return r.catalog.Tokens(whole(t))
	}
	return r.catalog.costs.cost(t.Name+t.Def.Hash, func() []byte {
		return rawjson.Of(r.item(Hit{Tool: t}, q, Registration{}))
	})
}

// result returns the tool result: the JSON as text, and not as structured content
// beside it, because some clients show their models both.
func (a answer) result() tool.Result { return tool.TextResult(string(a)) }

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
