package tool

// Kind says what a Def defines. The zero value is a tool. In this program, statements about tools also hold for
// prompts and resources, unless they say otherwise.
type Kind string

// The kinds of definitions, with their names for clients and commands.
const (
	KindTool     Kind = "" // "tool"
	KindPrompt   Kind = "prompt"
	KindResource Kind = "resource"
	KindTemplate Kind = "template" // a resource template
	KindSkill    Kind = "skill"    // of the extension io.modelcontextprotocol/skills
)

// KindInstructions is the kind of a server's instructions in approvals. They are in no list; their name is that of
// the kind.
const KindInstructions Kind = "instructions"

// Kinds are all kinds, in the order of lists, by name.
var Kinds = []Kind{KindTool, KindPrompt, KindResource, KindSkill, KindTemplate}

// String returns the name of the kind.
func (k Kind) String() string {
	if k == KindTool {
		return "tool"
	}
	return string(k)
}

// Key returns the member that names a definition of this kind: "name", "uri" or "uriTemplate".
func (k Kind) Key() string {
	switch k {
	case KindResource, KindSkill:
		return "uri"
	case KindTemplate:
		return "uriTemplate"
	}
	return "name"
}

// ID names a tool of an upstream in configuration and commands. Clients see the tool's exposed name.
type ID struct {
	Server string // configured name of the upstream
	Name   string // the tool's own name, as the upstream lists it; a URI or URI template for resources, the URI of SKILL.md for skills
	Kind   Kind
}

// String returns "server.name", for people and for look-ups by table. It cannot be split back, because both names
// may contain dots.
func (id ID) String() string { return id.Server + "." + id.Name }
