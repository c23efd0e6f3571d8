package upstream

import (
	"encoding/json"
	"slices"
	"strings"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// request is a request to a server on behalf of a client.
type request struct {
	method     string
	op         string          // name of the operation in errors
	def        *tool.Def       // the definition that the request is about; nil for none
	task       string          // the server's own ID of the task that the request is about; "" for none
	needs      string          // capability that the server must have; "" for none
	without    json.RawMessage // result if the server lacks that capability
	repeatable bool            // the request may be sent twice

	// Set if the call needs a login.
	asksLogin *askedLogin // the login whose page the client was asked to open
	declined  bool        // the user does not want to log in

	// Set if the server wants more input for the call.
	responses json.RawMessage // inputResponses; nil for none
	state     *string         // requestState, the server's own; nil for none
}

// newRequest returns the request that calls a tool, gets a prompt or reads a resource.
func newRequest(def *tool.Def) request {
	switch def.ID.Kind {
	case tool.KindPrompt:
		return request{method: "prompts/get", op: "get " + def.ID.Name, def: def, repeatable: true}
	case tool.KindResource:
		return request{method: "resources/read", op: "read " + def.ID.Name, def: def, repeatable: true}
	}
	return request{method: "tools/call", op: "call " + def.ID.Name, def: def, repeatable: def.Annotations.Repeatable()}
}

// paramKeys are the members of params that servers act on.
var paramKeys = []string{"_meta", "name", "uri", "arguments", "task", "taskId", "ref", "argument", "context", "requestState", "inputResponses"}

// misspelt reports whether a key differs from one of paramKeys only in case. JSON libraries
// that ignore case, such as Go's, read it as the key itself, and the last member counts.
func misspelt(key string) bool {
	return slices.ContainsFunc(paramKeys, func(known string) bool { return key != known && strings.EqualFold(key, known) })
}

// abilitiesOf returns the client capabilities that a 2026-07-28 server is told with a call:
// the client's own without tasks of revision 2025-11-25, and without groups, which the client has of
// toolfinch. Tasks of 2026-07-28 are removed for a legacy client, because it cannot ask for them.
func abilitiesOf(client *tool.Client) json.RawMessage {
	if client == nil {
		return []byte(`{}`)
	}
	own := without(client.Capabilities, "tasks")
	extensions := rawjson.Member(own, "extensions")
	removed := []string{tool.ExtensionGroups}
	if !client.Modern {
		removed = append(removed, tool.ExtensionTasks)
	}
	if !slices.ContainsFunc(removed, func(name string) bool { return rawjson.Member(extensions, name) != nil }) {
		return own
	}
	if rest, err := rawjson.Set(own, "extensions", without(extensions, removed...)); err == nil {
		return rest
	}
	return own
}
