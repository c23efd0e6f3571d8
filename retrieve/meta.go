package retrieve

import (
	"encoding/json"
	"fmt"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// Names of the meta-tools. They are reserved: no tool of an upstream gets one.
const (
	RetrieveTools       = "retrieve_tools"
	CallTool            = "call_tool"
	CallToolRead        = "call_tool_read"
	CallToolWrite       = "call_tool_write"
	CallToolDestructive = "call_tool_destructive"

	DiscoverTools    = "discover_tools"
	ProvisionTools   = "provision_tools"
	UnprovisionTools = "unprovision_tools"
	ExecuteTool      = "execute_tool"
	ListProvisioned  = "list_provisioned"
)

// Calls reports whether the meta-tool of that name calls another tool.
func Calls(name string) bool {
	switch name {
	case CallTool, CallToolRead, CallToolWrite, CallToolDestructive, ExecuteTool:
		return true
	}
	return strings.HasSuffix(name, "_call_tool")
}

// Reserved returns the names of all meta-tools, offered or not.
func Reserved() []string {
	return []string{RetrieveTools, CallTool, CallToolRead, CallToolWrite, CallToolDestructive,
		DiscoverTools, ProvisionTools, UnprovisionTools, ExecuteTool, ListProvisioned}
}

// Offer selects what Retriever.MetaTools returns.
type Offer struct {
	Call  bool     // call_tool; answers name it
	Split bool     // call_tool as three tools, one a kind
	About []Server // the upstreams to name, in order; only Name, Description and Instructions are read
}

// Bounds, in bytes, of the list of upstreams and of their instructions.
const (
	maxNames        = 250
	maxInstructions = 1500
	maxOwn          = 1000 // of one upstream's instructions
	maxOwnTogether  = 6000
)

// MetaTools returns the meta-tools that Settings.Offer selects. Their definitions stay
// under 2.5 kB together.
func (r *Retriever) MetaTools() []*tool.Tool {
	offer := r.settings.Offer
	tools := []*tool.Tool{r.retrieveTools(offer)}
	switch {
	case !offer.Call:
	case offer.Split:
		for kind, text := range []string{"only reads", "changes things but destroys nothing", "may delete or overwrite"} {
			tools = append(tools, r.callTool(Kind(kind), "call_tool_"+Kind(kind).String(),
				"Call a tool found by retrieve_tools that "+text+".",
				fmt.Sprintf(`{"readOnlyHint":%t,"destructiveHint":%t}`, Kind(kind) == KindRead, Kind(kind) == KindDestructive), ""))
		}
	default:
		tools = append(tools, r.callTool(KindDestructive, CallTool,
			"Call any tool found by retrieve_tools, listed or not.", `{}`, ""))
	}
	return tools
}

func (r *Retriever) retrieveTools(offer Offer) *tool.Tool {
	description := "Find tools by what they do, in plain English; with queries, all you foresee at once. Says how to call the best matches; "
	switch {
	case r.settings.Gate != nil:
		description += ProvisionTools + " makes them callable."
	case offer.Call:
		description += "call them by name, or through call_tool if they are not listed."
	default:
		description += "call them by name."
	}
	if names := serverNames(offer.About); names != "" {
		description += " Servers: " + names
	}
	return meta(RetrieveTools, description, `{"type":"object","properties":{`+
		`"query":{"type":"string"},"queries":{"type":"array","items":{"type":"string"}},`+
		`"limit":{"type":"integer"},"server":{"type":"string"},`+
		`"detail":{"type":"string","enum":["name","full"]},`+
		`"kind":{"type":"string","enum":["tool","prompt","resource","any"]}}}`,
		`{"readOnlyHint":true,"openWorldHint":false}`, r.Retrieve)
}

// Beside is retrieve_tools with a definition of 65 tokens: for lists in which it stands beside all tools, or
// beside other tools that find some.
func (r *Retriever) Beside() *tool.Tool {
	return meta(RetrieveTools, "Find tools by what they do, in plain English.",
		`{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}`,
		`{"readOnlyHint":true,"openWorldHint":false}`, r.Retrieve)
}

func (r *Retriever) callTool(most Kind, name, description, annotations, server string) *tool.Tool {
	return meta(name, description, `{"type":"object","properties":{`+
		`"name":{"type":"string","description":"Name or uri found, or server.tool"},`+
		`"arguments":{"type":"object"},`+
		`"calls":{"type":"array","items":{"type":"object"},"description":"Instead: several {name, arguments}, in order until one fails"}}}`,
		annotations, r.CallTool(most, server))
}

// meta makes a meta-tool. It is marked so that clients with their own tool search
// keep it loaded.
func meta(name, description, input, annotations string, handler tool.Handler) *tool.Tool {
	raw := rawjson.Of(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations json.RawMessage `json:"annotations"`
		Meta        json.RawMessage `json:"_meta"`
	}{name, description, json.RawMessage(input), json.RawMessage(annotations),
		json.RawMessage(`{"anthropic/alwaysLoad":true}`)})
	def, err := tool.ParseDef("toolfinch", raw)
	if err != nil {
		panic("retrieve: meta-tool " + name + ": " + err.Error())
	}
	return &tool.Tool{Name: name, Def: def, Handler: handler}
}

// Intro tells clients how to use the meta-tools; it is for Instructions.
func (o Offer) Intro() string {
	return "This server finds tools for you instead of listing them all: " + o.steps()
}

// AutoIntro is Intro for views that may list all tools instead.
func (o Offer) AutoIntro() string {
	return "Call tools that are listed by their names. For what is not, " + o.steps()
}

func (o Offer) steps() string {
	const steps = "say what you need to retrieve_tools; then call what it found by its name"
	if o.Call {
		return steps + ", or through call_tool when it is not in your list."
	}
	return steps + "."
}

// Instructions returns the instructions for clients: how to use this server (intro),
// its upstreams, and their own instructions, within bounds.
func Instructions(intro string, about []Server) string {
	var b strings.Builder
	b.WriteString(intro)
	if len(about) == 0 {
		return b.String()
	}
	b.WriteString("\nServers behind it:")
	for i, s := range about {
		line := "\n- " + s.Name
		if s.Description != "" {
			line += ": " + FirstSentence(s.Description)
		}
		if b.Len()+len(line) > maxInstructions {
			fmt.Fprintf(&b, "\n- and %d more", len(about)-i)
			break
		}
		b.WriteString(line)
	}
	return strings.TrimLeft(b.String()+ownInstructions(about), "\n")
}

// ownInstructions returns the upstreams' instructions, each under a heading.
func ownInstructions(servers []Server) string {
	var b strings.Builder
	var without []Server
	for _, s := range servers {
		text := strings.TrimSpace(s.Instructions)
		if text == "" {
			continue
		}
		text = "\n\nInstructions of " + s.Name + ":\n" + clipWords(text, maxOwn)
		if b.Len()+len(text) > maxOwnTogether {
			without = append(without, s)
			continue
		}
		b.WriteString(text)
	}
	if len(without) > 0 {
		fmt.Fprintf(&b, "\n\nThe instructions of %s are left out.", serverNames(without))
	}
	return b.String()
}

// clipWords cuts text to at most n bytes, including the mark of the cut, between two
// words if it has any.
func clipWords(text string, n int) string {
	const mark = "..."
	if len(text) <= n {
		return text
	}
	text = text[:n-len(mark)+1]
	if space := strings.LastIndexAny(text, " \t\r\n"); space > 0 {
		return strings.TrimRight(text[:space], " \t\r\n") + mark
	}
	return strings.ToValidUTF8(text[:len(text)-1], "") + mark
}

func serverNames(servers []Server) string {
	var b strings.Builder
	for i, s := range servers {
		if b.Len()+len(s.Name) > maxNames {
			fmt.Fprintf(&b, " and %d more", len(servers)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.Name)
	}
	return b.String()
}
