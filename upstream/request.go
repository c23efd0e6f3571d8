package upstream

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// request is what is asked of a server on behalf of a client.
type request struct {
	method     string
	op         string    // for errors
	def        *tool.Def // nil when it is about none
	task       string    // ID of the task that it is about, the server's own
	needs      string    // capability that the server must have; "" for none
	without    json.RawMessage
	repeatable bool

	// Of a call that somebody has to log in for.
	asksLogin *askedLogin // the client was asked to open the page
	declined  bool        // its user does not want to

	// Of a call that the server wants more input for.
	responses json.RawMessage // inputResponses; nil for none
	state     *string         // requestState, the server's own; nil for none
}

// newRequest is the request that gets, reads or calls what def defines.
func newRequest(def *tool.Def) request {
	switch def.ID.Kind {
	case tool.KindPrompt:
		return request{method: "prompts/get", op: "get " + def.ID.Name, def: def, repeatable: true}
	case tool.KindResource:
		return request{method: "resources/read", op: "read " + def.ID.Name, def: def, repeatable: true}
	}
	return request{method: "tools/call", op: "call " + def.ID.Name, def: def, repeatable: def.Annotations.Repeatable()}
}

// tokenPrefix and the ID of the request are the progress token that servers get in
// place of the client's.
const tokenPrefix = "toolfinch-"

// params is the params object of a request as the server gets it: the client's
// own, with the server's name for what it is about. A member task is left out: it
// asks for a task of revision 2025-11-25 in place of a result, and those are not
// proxied.
func (c *connection) params(r request, call *tool.Call, id int64) json.RawMessage {
	out := rawjson.NewObject(len(call.Params) + len(call.Arguments) + 256)
	named := ""
	if r.def != nil {
		named = r.def.ID.Kind.Key()
		out.AddText(named, r.def.ID.Name)
		if call.Arguments != nil {
			out.Add("arguments", call.Arguments)
		}
	}
	token, level := "", requestLevel(call)
	if call.Notify != nil {
		token = tokenPrefix + strconv.FormatInt(id, 10)
	}
	abilities := abilitiesOf(call.Client)
	// Unless both sides are of the legacy era, these members are ours to send.
	bridges := c.Era == EraModern || call.Client != nil && call.Client.Modern
	sent := false
	for key, value := range rawjson.Members(call.Params) {
		switch {
		case key == "_meta":
			sent = true
			out.Add(key, c.meta(value, token, level, abilities))
		case misspelt(key): // many servers would read it as the key that it looks like
		case key == "taskId" && r.task != "":
			out.AddText(key, r.task)
		case r.def == nil:
			out.Add(key, value)
		case key == named, key == "arguments", key == "task":
		case bridges && (key == "requestState" || key == "inputResponses"):
		default:
			out.Add(key, value)
		}
	}
	if c.Era != EraModern {
		return out.JSON()
	}
	if !sent {
		out.Add("_meta", c.meta(nil, token, level, abilities))
	}
	if r.responses != nil {
		out.Add("inputResponses", r.responses)
	}
	if r.state != nil {
		out.AddText("requestState", *r.state)
	}
	return out.JSON()
}

// paramKeys are the members of params that say what a request is about.
var paramKeys = []string{"_meta", "name", "uri", "arguments", "task", "taskId", "ref", "argument", "context", "requestState", "inputResponses"}

// misspelt reports whether a key is one of paramKeys but for the case of its
// letters. Servers whose JSON library does not look at case, as that of Go, take
// it for the key itself, and the last one counts.
func misspelt(key string) bool {
	return slices.ContainsFunc(paramKeys, func(known string) bool { return key != known && strings.EqualFold(key, known) })
}

// abilitiesOf is what a 2026-07-28 server is told that a call's client can do:
// what it declared, without tasks of revision 2025-11-25, and of a legacy
// client without those of 2026-07-28, which it has no way to ask for.
func abilitiesOf(client *tool.Client) json.RawMessage {
	if client == nil {
		return []byte(`{}`)
	}
	own := without(client.Capabilities, "tasks")
	extensions := rawjson.Member(own, "extensions")
	if client.Modern || rawjson.Member(extensions, tool.ExtensionTasks) == nil {
		return own
	}
	if rest, err := rawjson.Set(own, "extensions", without(extensions, tool.ExtensionTasks)); err == nil {
		return rest
	}
	return own
}

// protocolKeys are the keys of a client's own protocol in _meta: they speak of
// its connection to us, not of ours to the server.
var protocolKeys = map[string]bool{
	mcp.MetaKeyProtocolVersion:    true,
	mcp.MetaKeyClientCapabilities: true,
	mcp.MetaKeyClientInfo:         true,
	mcp.MetaKeyLogLevel:           true,
}

// meta is the _meta that this connection's protocol wants: a progress token of
// ours, if not empty, in place of the client's; everything else of the client's
// as it is, trace context among it; and what a 2026-07-28 server wants to know
// with every request.
func (c *connection) meta(sent json.RawMessage, token, level string, abilities []byte) json.RawMessage {
	out := rawjson.NewObject(len(sent) + 256)
	for key, value := range rawjson.Members(sent) {
		switch {
		case key == "progressToken":
			if token != "" {
				out.AddText(key, token)
			}
		case !protocolKeys[key]:
			out.Add(key, value)
		}
	}
	if c.Era == EraModern {
		c.Meta(out, abilities)
		if level != "" {
			out.AddText(mcp.MetaKeyLogLevel, level)
		}
	}
	return out.JSON()
}
