package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// request is what is asked of an upstream on behalf of a client.
type request struct {
	method     string
	op         string    // for errors
	def        *tool.Def // nil when it is about none
	task       string    // ID of the task that it is about, the server's own
	needs      string    // capability that the server must have; "" for none
	without    json.RawMessage
	repeatable bool

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

// call sends one tools/call, prompts/get or resources/read. See Pool.Call.
func (s *server) call(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
	r := newRequest(def)
	// What came off the wire has been read as JSON already.
	if call.Params == nil && call.Arguments != nil && !json.Valid(call.Arguments) {
		return nil, &tool.RPCError{Code: tool.CodeInvalidParams, Message: "the arguments are not JSON"}
	}
	if err := s.reopen(&r, call); err != nil {
		return nil, err
	}
	f := takeOff(ctx, call, s.limits.Load())
	defer s.land(f)
	return s.rounds(f, r)
}

// complete sends one completion/complete. See Pool.Complete.
func (s *server) complete(ctx context.Context, call *tool.Call) (tool.Result, error) {
	f := takeOff(ctx, call, s.limits.Load())
	defer s.land(f)
	result, _, err := s.deliver(f, request{
		method: "completion/complete", op: "complete", repeatable: true,
		needs: "completions", without: json.RawMessage(`{"completion":{"values":[]}}`),
	})
	return tool.Result(result), err
}

// land ends a call, and says which notifications were dropped.
func (s *server) land(f *flight) {
	if dropped := f.land(); dropped > 0 {
		s.dropped.Add(int64(dropped))
		s.log.Warn("notifications of a call were dropped: its client reads too slowly", "name", f.call.Name, "dropped", dropped)
	}
}

// notRepeated goes with the error of a call that was sent over a connection which
// was lost before the answer.
const notRepeated = "it may have been carried out, and is not repeated because the tool is annotated neither as idempotent nor as read-only"

// deliver sends a request, over a new connection and a second time if need be
// and allowed, and returns the result and the era of the server that gave it.
// Errors are *tool.RPCError or *Error.
func (s *server) deliver(f *flight, r request) (json.RawMessage, Era, error) {
	fail := func(err error) error { return &Error{Server: s.settings.Name, Op: r.op, Err: f.ended(err)} }
	for retried := false; ; retried = true {
		c, result, err := s.attempt(f, r)
		if err == nil {
			s.exchanged(nil)
			return result, c.era, nil
		}
		if c == nil {
			return nil, EraUnknown, fail(fmt.Errorf("connect: %w", marked{plain(err), ErrNotConnected}))
		}
		if errors.Is(context.Cause(f.ctx), errGaveWay) { // it says nothing of the server
			return nil, c.era, fail(errGaveWay)
		}
		if f.abandoned(err) { // nor does this
			return nil, c.era, fail(context.Canceled)
		}
		again := s.lost(c, err) || errors.As(err, new(retriable))
		safe := errors.As(err, new(undelivered)) || r.repeatable
		if again && safe && !retried && f.ctx.Err() == nil {
			continue
		}
		var rpc *tool.RPCError
		if errors.As(err, &rpc) {
			s.exchanged(nil)
			return nil, c.era, rpc
		}
		if err = plain(err); !errors.Is(err, errRenewed) { // nor does that
			s.exchanged(err)
		}
		if again && !safe && r.def != nil {
			err = fmt.Errorf("%w; %s", err, notRepeated)
		}
		return nil, c.era, fail(err)
	}
}

// attempt sends a request once. The connection is nil when there was none.
func (s *server) attempt(f *flight, r request) (*conn, json.RawMessage, error) {
	client := f.call.Client
	place, c, alone, proven, err := s.takeProven(f.ctx, client, r)
	if err != nil {
		return nil, nil, err
	}
	answered := false
	defer s.leave(place)
	defer func() { proven(answered) }()
	if r.needs != "" && !c.has(r.needs) {
		return c, r.without, nil
	}
	c.raise(client)
	id, reply := c.tap.Expect()
	defer c.tap.Forget(id)
	c.board(id, f)
	defer c.alight(id)
	if alone {
		c.settleRoots(f, c.own(client))
	} else {
		c.share(client)
	}
	params := c.params(r, f.call, id)
	result, err := c.exchange(f.ctx, id, reply, r.method, params, c.header(r.method, params, r.def, r.task))
	answered = err == nil
	return c, result, err
}

// board puts a call on the connection, where what the upstream says of the
// request finds it.
func (c *conn) board(id int64, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights[id] = f
}

func (c *conn) alight(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, id)
	close(c.landed)
	c.landed = make(chan struct{})
}

// tokenPrefix and the ID of the request are the progress token that upstreams
// get in place of the client's.
const tokenPrefix = "toolfinch-"

// params is the params object of a request as the upstream gets it: the
// client's own, with the upstream's name for what it is about. A member task is
// left out: it asks for a task of revision 2025-11-25 in place of a result, and
// those are not proxied.
func (c *conn) params(r request, call *tool.Call, id int64) json.RawMessage {
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
	// Who speaks of these members, if not both sides are of the legacy era, is us.
	bridges := c.era == EraModern || call.Client != nil && call.Client.Modern
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
	if !sent && c.era == EraModern {
		out.Add("_meta", c.meta(nil, token, level, abilities))
	}
	if r.responses != nil && c.era == EraModern {
		out.Add("inputResponses", r.responses)
	}
	if r.state != nil && c.era == EraModern {
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
func abilitiesOf(client *tool.Client) []byte {
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
// its connection to us, not of ours to the upstream.
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
func (c *conn) meta(sent json.RawMessage, token, level string, abilities []byte) []byte {
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
	if c.era == EraModern {
		speaks(out, c.version, abilities)
		if level != "" {
			out.AddText(mcp.MetaKeyLogLevel, level)
		}
	}
	return out.JSON()
}

// ownParams are the params of a request of our own: members, and the _meta that
// the protocol wants.
func (c *conn) ownParams(members *rawjson.Object) json.RawMessage {
	if c.era == EraModern {
		members.Add("_meta", c.meta(nil, "", "", []byte(capabilities)))
	}
	return members.JSON()
}

// header returns the HTTP headers that a 2026-07-28 server wants with a request
// about what def defines, or about a task; nil and "" for neither.
func (c *conn) header(method string, params json.RawMessage, def *tool.Def, task string) http.Header {
	if c.era != EraModern || c.http == nil {
		return nil
	}
	header := http.Header{}
	// mcp-go would decode all of params for the name.
	header.Set(mcp.HeaderMethod, method)
	name := task
	if def != nil {
		name = def.ID.Name
	}
	if encoded, ok := mcp.EncodeHeaderValue(name); ok && name != "" {
		header.Set(mcp.HeaderName, encoded)
	}
	// Checked again: the definition may be one that the store remembered.
	if typed := annotated(def); typed != nil && mcp.ValidateParamHeaderAnnotations(typed) == nil {
		for name, value := range mcp.GenerateParamHeaders(typed, params) {
			header.Set(name, value)
		}
	}
	return header
}
