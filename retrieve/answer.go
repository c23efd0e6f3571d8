package retrieve

import (
	"encoding/json"
	"slices"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// answer is a meta-tool's answer in JSON.
type answer json.RawMessage

// item is one hit of an answer. Each kind fills only its own members.
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
	Execution    json.RawMessage `json:"execution,omitempty"`
	Icons        json.RawMessage `json:"icons,omitempty"`
	Meta         json.RawMessage `json:"_meta,omitempty"`
	Arguments    json.RawMessage `json:"arguments,omitempty"` // of a prompt, as listed
	MimeType     string          `json:"mimeType,omitempty"`
	Use          string          `json:"use,omitempty"` // how to use it; only of non-tools
	Score        float64         `json:"score"`
	Registered   *bool           `json:"registered,omitempty"` // of a tool
	LeftOut      string          `json:"left_out,omitempty"`   // how to get the rest of a definition that is too long
}

// short returns the item without what makes definitions long.
func (it item) short() item {
	out := item{Name: it.Name, Kind: it.Kind, URI: it.URI, URITemplate: it.URITemplate, Server: it.Server, Title: it.Title,
		MimeType: it.MimeType, Use: it.Use, Score: it.Score, Registered: it.Registered, LeftOut: "ask for it alone"}
	if it.Description != nil {
		about := FirstSentence(*it.Description)
		out.Description = &about
	}
	return out
}

// answer returns the answer to a query. Whole definitions have room for so many bytes: of the best hit in any case, of
// others if they fit.
func (r *Retriever) answer(q Query, found Found, registered Registration, room int) answer {
	type indexState struct {
		Tools   int    `json:"tools"`
		Ready   int    `json:"servers_ready"`
		Pending int    `json:"servers_pending"`
		Failed  int    `json:"servers_failed"`
		Search  string `json:"search"`             // "words", or "hybrid": words and vectors
		Vectors *int   `json:"embedded,omitempty"` // tools with a vector, while some lack one
		Reason  string `json:"reason,omitempty"`   // why the search was not hybrid
	}
	out := struct {
		Tools       []item            `json:"tools"`
		Confident   bool              `json:"confident"` // false: perhaps no hit is right
		Unmentioned []string          `json:"unmentioned,omitempty"`
		Missing     []string          `json:"missing,omitempty"` // absent servers, and why
		Servers     map[string]string `json:"servers,omitempty"`
		Index       indexState        `json:"index"`
		Next        string            `json:"next,omitempty"` // what to do before the tools can be called
		Tokens      int               `json:"tokens"`
		TokensSaved *int              `json:"tokens_saved,omitempty"`
	}{Tools: []item{}}

	about := descriptions(r.catalog.Servers())
	for i, hit := range found.Hits {
		it, tokens := r.item(hit, q, registered), r.tokens(hit.Tool, q)
		if size := len(hit.Def.Full().Raw); i == 0 || size <= room {
			room -= size
		} else {
			it = it.short()
			tokens = r.catalog.costs.cost("short "+hit.Name+hit.Def.Hash, func() []byte { return rawjson.Of(it) })
		}
		out.Tools = append(out.Tools, it)
		out.Tokens += tokens
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
	out.Confident, out.Unmentioned, out.Missing = found.Confidence >= Confident, found.Unmentioned, described(found.Absent)
	out.Index.Tools = r.catalog.Len()
	out.Index.Search, out.Index.Reason = "words", found.Reason
	if found.Hybrid {
		out.Index.Search = "hybrid"
		if n, of := r.catalog.Embedded(), r.catalog.Indexed(); n < of { // some without a vector may be tools
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

// with adds the producers that the hits need.
func (a answer) with(needed []Needed) answer {
	if len(needed) == 0 {
		return a
	}
	type item struct {
		Name        string          `json:"name"`
		For         []string        `json:"for"` // parameters of the hits
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	}
	items := make([]item, len(needed))
	for i, n := range needed {
		items[i] = item{n.Name, n.For, n.Def.Full().Description, n.Def.InputSchema}
	}
	out := rawjson.NewObject(len(a))
	out.AddAll(a)
	out.Add("producers", rawjson.Of(items))
	return answer(out.JSON())
}

// withNames adds a list of tools, if there are any.
func (a answer) withNames(member string, names []string) answer {
	if len(names) == 0 {
		return a
	}
	out := rawjson.NewObject(len(a))
	out.AddAll(a)
	out.Add(member, rawjson.Of(names))
	return answer(out.JSON())
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
	it.Icons, it.Meta = rawjson.Member(def.Raw, "icons"), rawjson.Member(def.Raw, "_meta")
	switch def.ID.Kind {
	case tool.KindTool:
		it.Execution = rawjson.Member(def.Raw, "execution")
		is := registered.Names[hit.Name]
		it.Name, it.Registered = hit.Name, &is
		it.InputSchema, it.OutputSchema, it.Annotations = def.InputSchema, def.OutputSchema, rawjson.Member(def.Raw, "annotations")
		return it
	case tool.KindPrompt:
		it.Name, it.Arguments = hit.Name, rawjson.Member(def.Raw, "arguments")
	case tool.KindResource, tool.KindSkill:
		it.URI = hit.Name
	case tool.KindTemplate:
		it.URITemplate = hit.Name
	}
	it.MimeType = rawjson.Text(rawjson.Member(def.Raw, "mimeType"))
	it.Use = r.use(hit)
	return it
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

// result returns the JSON as text alone: some clients would show their models structured content as well.
func (a answer) result() tool.Result { return tool.TextResult(string(a)) }

// Answer returns the answer of retrieve_tools with all details as JSON, for commands and measurements. It registers
// nothing.
func (r *Retriever) Answer(q Query, found Found) json.RawMessage {
	return json.RawMessage(r.answer(q, found, Registration{}, maxHit))
}

// notProvisioned tells a model how to make tools callable.
const notProvisioned = "Tools that are not registered cannot be called yet: send their names to " + ProvisionTools + " as tool_ids."

// whole returns the tool with its unshortened description.
func whole(t *tool.Tool) *tool.Tool {
	if t.Def.Whole == nil {
		return t
	}
	whole := *t
	whole.Def = t.Def.Whole
	return &whole
}
