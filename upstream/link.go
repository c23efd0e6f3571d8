package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// capabilities are the client capabilities for connections and requests of no single client.
const capabilities = `{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}},` +
	`"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]},"io.modelcontextprotocol/skills":{}}}`

// capabilities are those of the settings.
func (s Settings) capabilities() json.RawMessage {
	if s.Groups {
		return json.RawMessage(strings.TrimSuffix(capabilities, "}}") + `,"` + tool.ExtensionGroups + `":{}}}`)
	}
	return json.RawMessage(capabilities)
}

// link writes requests as the protocol era of a connection's server wants them.
type link struct {
	*conn.Conn
	declares json.RawMessage // client capabilities in requests of no single client
}

// groups returns what the server declares for the groups extension; nil if one side does not declare it.
func (c link) groups() json.RawMessage {
	if rawjson.Member(rawjson.Member(c.declares, "extensions"), tool.ExtensionGroups) == nil {
		return nil
	}
	return rawjson.Member(rawjson.Member(c.Capabilities, "extensions"), tool.ExtensionGroups)
}

// tellsGroups reports whether the server says when its groups change.
func (c link) tellsGroups() bool { return string(rawjson.Member(c.groups(), "listChanged")) == "true" }

// own sends a request of the proxy itself, with the _meta that the era wants.
func (c link) own(ctx context.Context, method string, members *rawjson.Object) (json.RawMessage, error) {
	params := c.ownParams(members)
	return c.Request(ctx, method, params, c.header(method, params, nil, ""))
}

// ownParams adds the _meta that the era wants to the members of a request.
func (c link) ownParams(members *rawjson.Object) json.RawMessage {
	if c.Era == EraModern {
		members.Add("_meta", c.meta(nil, "", "", c.declares))
	}
	return members.JSON()
}

// header returns the HTTP headers that a 2026-07-28 server wants with a request about a
// definition or a task; nil and "" for neither.
func (c link) header(method string, params json.RawMessage, def *tool.Def, task string) http.Header {
	if c.Era != EraModern || c.Transport == TransportStdio {
		return nil
	}
	header := http.Header{}
	header.Set(mcp.HeaderMethod, method)
	name := task
	if def != nil {
		name = def.ID.Name
	}
	if encoded, ok := mcp.EncodeHeaderValue(name); ok && name != "" {
		header.Set(mcp.HeaderName, encoded)
	}
	// The annotations are checked again, because the definition may come from the store.
	if typed := annotated(def); typed != nil && mcp.ValidateParamHeaderAnnotations(typed) == nil {
		for name, value := range mcp.GenerateParamHeaders(typed, params) {
			header.Set(name, value)
		}
	}
	return header
}

// failed ends the connection if err says that it is lost, and reports whether it did.
func (c link) failed(err error) bool {
	lost := conn.FailureOf(err).Lost
	if lost {
		c.Fail(conn.Plain(err))
	}
	return lost
}

// subscribe subscribes a legacy server to one resource, or unsubscribes it.
func (c link) subscribe(ctx context.Context, uri string, on bool) error {
	method := "resources/subscribe"
	if !on {
		method = "resources/unsubscribe"
	}
	members := rawjson.NewObject(len(uri) + 16)
	members.AddText("uri", uri)
	_, err := c.own(ctx, method, members)
	return err
}

// tokenPrefix and the ID of the request form the progress token that servers get instead of
// the client's.
const tokenPrefix = "toolfinch-"

// params returns the params of a request as the server gets them: the client's own, with
// the server's name of the definition. The member task is left out: it asks for a task of
// revision 2025-11-25 instead of a result, and such tasks are not proxied.
func (c link) params(r request, call *tool.Call, id int64) json.RawMessage {
	out := rawjson.NewObject(len(call.Params) + len(call.Arguments) + 256)
	named := ""
	if r.def != nil {
		named = r.def.ID.Kind.Key()
		out.AddText(named, r.def.ID.Name)
		if call.Arguments != nil {
			out.Add("arguments", call.Arguments)
		}
	}
	// Progress keeps a call alive, so it is asked for even if the client wants none.
	token, level := tokenPrefix+strconv.FormatInt(id, 10), requestLevel(call)
	if r.def == nil && call.Notify == nil {
		token = ""
	}
	abilities := abilitiesOf(call.Client)
	// The proxy sends requestState and inputResponses itself, unless both sides are legacy.
	bridges := c.Era == EraModern || call.Client != nil && call.Client.Modern
	sent := false
	for key, value := range rawjson.Members(call.Params) {
		switch {
		case key == "_meta":
			sent = true
			out.Add(key, c.meta(value, token, level, abilities))
		case misspelt(key): // many servers would read it as the correct key
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
	if !sent && (c.Era == EraModern || token != "") {
		out.Add("_meta", c.meta(nil, token, level, abilities))
	}
	if c.Era == EraModern && r.responses != nil {
		out.Add("inputResponses", r.responses)
	}
	if c.Era == EraModern && r.state != nil {
		out.AddText("requestState", *r.state)
	}
	return out.JSON()
}

// protocolKeys are the keys in _meta about the client's connection to the proxy. They do
// not apply to the connection to the server.
var protocolKeys = map[string]bool{
	mcp.MetaKeyProtocolVersion:    true,
	mcp.MetaKeyClientCapabilities: true,
	mcp.MetaKeyClientInfo:         true,
	mcp.MetaKeyLogLevel:           true,
}

// meta returns the _meta of a request. The proxy's progress token, if not empty, replaces
// the client's; other members of the client, such as trace context, stay; the members that
// a 2026-07-28 server wants with every request are added.
func (c link) meta(sent json.RawMessage, token, level string, abilities []byte) json.RawMessage {
	out := rawjson.NewObject(len(sent) + 256)
	for key, value := range rawjson.Members(sent) {
		if key != "progressToken" && !protocolKeys[key] {
			out.Add(key, value)
		}
	}
	if token != "" {
		out.AddText("progressToken", token)
	}
	if c.Era == EraModern {
		c.Meta(out, abilities)
		if level != "" {
			out.AddText(mcp.MetaKeyLogLevel, level)
		}
	}
	return out.JSON()
}

// unmirrorable reports whether clients must leave out a tool over HTTP because no header can
// be made of its x-mcp-header annotations (2026-07-28, SEP-2243).
func (c link) unmirrorable(def *tool.Def) bool {
	if c.Era != EraModern || c.Transport == TransportStdio {
		return false
	}
	typed := annotated(def)
	return typed != nil && mcp.ValidateParamHeaderAnnotations(typed) != nil
}

// annotated returns a tool as mcp-go reads it; nil for a tool without x-mcp-header.
func annotated(def *tool.Def) *mcp.Tool {
	typed := new(mcp.Tool)
	if def == nil || !bytes.Contains(def.InputSchema, []byte("x-mcp-header")) || json.Unmarshal(def.Raw, typed) != nil {
		return nil
	}
	return typed
}
