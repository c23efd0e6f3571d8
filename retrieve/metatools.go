package retrieve

import (
	"fmt"

	"toolfinch/tool"
)

// MetaTools returns the meta-tools that Settings.Offer selects. Their definitions stay under 2.5 kB together.
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
	kinds := `"tool","prompt","resource","any"`
	if r.hasSkills() {
		kinds = `"skill",` + kinds
	}
	return meta(RetrieveTools, description, `{"type":"object","properties":{`+
		`"query":{"type":"string"},"queries":{"type":"array","items":{"type":"string"}},`+
		`"limit":{"type":"integer"},"server":{"type":"string"},`+
		`"detail":{"type":"string","enum":["name","full"]},`+
		`"kind":{"type":"string","enum":[`+kinds+`]}}}`,
		`{"readOnlyHint":true,"openWorldHint":false}`, r.Retrieve)
}

func (r *Retriever) hasSkills() bool { return len(r.catalog.Items(tool.KindSkill)) > 0 }

// Beside is retrieve_tools with a definition of 65 tokens, for lists that also have all tools, or other tools for
// searching.
func (r *Retriever) Beside() *tool.Tool {
	kinds := ""
	if r.hasSkills() {
		kinds = `,"kind":{"type":"string","enum":["tool","skill"]}`
	}
	return meta(RetrieveTools, "Find tools by what they do, in plain English.",
		`{"type":"object","properties":{"query":{"type":"string"}`+kinds+`},"required":["query"]}`,
		`{"readOnlyHint":true,"openWorldHint":false}`, r.Retrieve)
}
