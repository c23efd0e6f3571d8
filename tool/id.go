package tool

// Kind says what a Def defines. The zero value is a tool: whatever is said of
// tools in this program holds for prompts and resources too, unless it says
// otherwise.
type Kind string

// The kinds of definitions, with the name that clients and commands use.
const (
	KindTool     Kind = "" // "tool"
	KindPrompt   Kind = "prompt"
	KindResource Kind = "resource"
	KindTemplate Kind = "template" // a resource template
)

// KindInstructions is that of a server's instructions, where what servers say is
// approved. They are in no list; their name is that of the kind.
const KindInstructions Kind = "instructions"

// Kinds are all kinds, in the order in which they are listed.
var Kinds = []Kind{KindTool, KindPrompt, KindResource, KindTemplate}

// String returns the name of the kind.
func (k Kind) String() string {
	if k == KindTool {
		return "tool"
	}
	return string(k)
}

// Key is the member of a definition of this kind that names it: "name", "uri"
// or "uriTemplate".
func (k Kind) Key() string {
	switch k {
	case KindResource:
		return "uri"
	case KindTemplate:
		return "uriTemplate"
	}
	return "name"
}

// ID names a tool of an upstream. It is what configuration and commands use;
// what a client sees is the tool's exposed name.
type ID struct {
	Server string // configured name of the upstream
	Name   string // the tool's own name, as the upstream lists it; a URI or URI template for resources
	Kind   Kind
}

// String returns "server.name". It is for people and look-ups by table: both
// parts may contain dots, so it cannot be split back.
func (id ID) String() string { return id.Server + "." + id.Name }
