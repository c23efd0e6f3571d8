package register

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/internal/wire"
	"toolfinch/tool"
)

// maxStdioResult bounds a result over stdio: clients with the TypeScript SDK end the connection, and with it all their
// servers, once they hold more than 10 MiB.
const maxStdioResult = 10<<20 - 128<<10

// serve is mcp-go's handler of the stub; the answer is written raw.
func (l *Live) serve(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	x := wire.ExchangeFrom(ctx)
	if x == nil {
		return nil, server.ErrToolNotFound
	}
	modern := server.IsModernRequest(ctx)
	var s *session
	if !modern {
		s = l.sessionOf(ctx)
	}
	call := callOf(ctx, x, s, modern)
	party := partyOf(ctx, call.Client)
	ctx = identity.WithParty(ctx, party)
	served := l.freshFor(ctx, l.servedTo(s, party), x.Method, call.Client)
	result, err := l.handle(ctx, served, x, s, call, modern)
	if modern && err == nil {
		result = cached(served, result, x, identity.NameOf(ctx))
	}
	if n := len(result); n > maxStdioResult && party.Transport == identity.TransportStdio {
		result, err = nil, fmt.Errorf("the result has %d MB, and clients over stdio read at most 10: ask for a part of it", (n+500_000)/1_000_000)
	}
	answer(x, json.RawMessage(result), err, modern)
	return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
}

func (l *Live) handle(ctx context.Context, served *Served, x *wire.Exchange, s *session, call *tool.Call, modern bool) (tool.Result, error) {
	if s != nil && served.gated() {
		s.provisioned.by(call.Owner())
	}
	switch x.Method {
	case wire.MethodListTools:
		return l.listTools(served, call, s), nil
	case wire.MethodListSkills, wire.MethodGetSkill, wire.MethodReadDirectory:
		return skills(served, x)
	case wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates:
		return listPage(served, x)
	case wire.MethodListGroups, wire.MethodGetGroup:
		return l.groups(served, x, call, s)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		if s == nil {
			return nil, methodNotFound(x.Method)
		}
		return l.subscribe(ctx, served, x, s)
	case wire.MethodListen:
		if !modern {
			return nil, methodNotFound(x.Method)
		}
		return l.listen(ctx, served, x, call.Owner())
	}
	switch {
	case x.Method == wire.MethodGetTask || x.Method == wire.MethodUpdateTask || x.Method == wire.MethodCancelTask:
		return task(ctx, l.upstreams, served, x, call)
	case x.Method == wire.MethodComplete:
		return complete(ctx, l.upstreams, served, call)
	case modern && x.Method == wire.MethodCallTool && x.Header != nil:
		if err := checkParamHeaders(served, x, call.Name); err != nil {
			return nil, err
		}
	}
	if modern && call.Client.Answers() {
		return l.suspended.serve(ctx, x, call, func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			return l.observed(ctx, served, call)
		})
	}
	return l.observed(ctx, served, call)
}

// listsHurry is how long lists wait for starting servers where the client does not wait for the list or
// never lists again. Codex looks at what was listed within a second.
const listsHurry = 100 * time.Millisecond

// pagesWait bounds how long lists of prompts and resources wait: as long as start_wait may say.
const pagesWait = 5 * time.Minute

// renewalsWait bounds how long lists wait for new lists of servers that do not say when these change.
const renewalsWait = 300 * time.Millisecond

// freshFor waits, for a list, until servers have started and have listed again. The result may be v itself.
func (l *Live) freshFor(ctx context.Context, v *Served, method string, client *tool.Client) *Served {
	switch method {
	case wire.MethodListTools:
		if v.ListsWait > 0 {
			v = l.startedFor(ctx, v, client, v.ListsWait)
		}
	case wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates, wire.MethodListSkills, wire.MethodGetSkill, wire.MethodReadDirectory,
		wire.MethodListGroups, wire.MethodGetGroup:
		v = l.startedFor(ctx, v, client, pagesWait)
	default:
		return v
	}
	return l.renewedFor(ctx, v, client)
}

// renewedFor calls Renewed for a list of a client. The result may be v itself.
func (l *Live) renewedFor(ctx context.Context, v *Served, client *tool.Client) *Served {
	if v.Renewed == nil {
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, l.hurried(v, client, renewalsWait))
	defer cancel()
	return v.Renewed(ctx, "").to(v.Groups != nil)
}

// hurried returns how long a list for a client waits, where other clients wait for within.
func (l *Live) hurried(v *Served, client *tool.Client, within time.Duration) time.Duration {
	if client != nil && (l.relists.never(client.Name) || v.Hurries != nil && v.Hurries(client.Name)) {
		return min(within, listsHurry)
	}
	return within
}

// startedFor calls Started for a list of a client. The result may be v itself.
func (l *Live) startedFor(ctx context.Context, v *Served, client *tool.Client, within time.Duration) *Served {
	ctx, cancel := context.WithTimeout(ctx, l.hurried(v, client, within))
	defer cancel()
	return v.started(ctx)
}

// observed dispatches a call, and shows tool calls to the observer.
func (l *Live) observed(ctx context.Context, served *Served, call *tool.Call) (tool.Result, error) {
	if call.Kind != tool.KindTool {
		return l.dispatch(ctx, served, call)
	}
	if s := l.session(call.Session); s != nil {
		s.direct.keep()
	} else if l.countAsOne(served) {
		l.direct.keep()
	}
	answered := l.observer.Calling(call)
	result, err := l.dispatch(ctx, served, call)
	if err != nil {
		answered(nil)
		return nil, err
	}
	answered(result)
	return result, nil
}

// callOf makes a call from a request.
func callOf(ctx context.Context, x *wire.Exchange, s *session, modern bool) *tool.Call {
	call := &tool.Call{Params: x.Params, Request: x.ID}
	switch x.Method {
	case wire.MethodGetTask, wire.MethodUpdateTask, wire.MethodCancelTask:
		call.Name = rawjson.Text(rawjson.Member(x.Params, "taskId"))
	case wire.MethodReadResource:
		call.Kind, call.Name = tool.KindResource, rawjson.Text(rawjson.Member(x.Params, "uri"))
	case wire.MethodGetPrompt:
		call.Kind = tool.KindPrompt
		fallthrough
	default:
		call.Name = rawjson.Text(rawjson.Member(x.Params, "name"))
		call.Arguments = rawjson.Member(x.Params, "arguments")
	}
	if modern {
		call.Client = modernClient(x.Params)
	} else if s != nil {
		call.Session = s.id
		call.Client = s.described()
		call.Client.Ask = s.asking(call.Client, x)
	}
	if x.Header != nil {
		call.Header = x.Header.Get
	} else if from, _ := identity.SourceOf(ctx); from.Transport == identity.TransportSSE {
		call.Header = func(string) string { return "" } // an HTTP request whose headers are not kept
	}
	call.Principal = identity.NameOf(ctx)
	call.Notify = x.Notify
	if call.Client != nil {
		call.Notify = leveled(call.Client, x.Notify)
	}
	return call
}

// partyOf returns the party of a request; client may be nil.
func partyOf(ctx context.Context, client *tool.Client) identity.Party {
	from, _ := identity.SourceOf(ctx)
	p := identity.Party{Principal: identity.PrincipalOf(ctx), Transport: from.Transport}
	if client != nil {
		p.Client, p.Version = client.Program, client.Version
		p.Groups = rawjson.IsObject(rawjson.Member(rawjson.Member(client.Capabilities, "extensions"), tool.ExtensionGroups))
	}
	return p
}

// servedTo returns what is served to the party of a request. s is nil without a session.
func (l *Live) servedTo(s *session, party identity.Party) *Served {
	served := l.served(party)
	if s != nil {
		s.mu.Lock()
		s.party = party
		s.mu.Unlock()
		if told := s.told.Load(); told == nil || told.class != served.Class {
			l.follow(s, served)
		}
	}
	return served
}

func answer(x *wire.Exchange, result json.RawMessage, err error, modern bool) {
	var rpc *tool.RPCError
	_ = errors.As(err, &x.Lacks)
	if err != nil && !errors.As(err, &rpc) {
		if x.Method == wire.MethodCallTool {
			// A model can act on a tool error; many clients hide protocol errors from it.
			result = json.RawMessage(tool.ErrorResult(err.Error()))
		} else {
			rpc = &tool.RPCError{Code: tool.CodeInternal, Message: err.Error()}
		}
	}
	if rpc != nil {
		x.Fail(rpc.JSON())
		return
	}
	if modern && rawjson.Member(result, "resultType") == nil {
		if typed, err := rawjson.Set(result, "resultType", []byte(`"complete"`)); err == nil {
			result = typed
		}
	}
	if len(bytes.TrimSpace(result)) == 0 {
		x.Fail((&tool.RPCError{Code: tool.CodeInternal, Message: "there is no result"}).JSON())
		return
	}
	x.Result(result)
}

// find finds what a call is about by its exposed name, registered or not; nil if there is none.
func (v *Served) find(call *tool.Call, s *session) *tool.Tool {
	var t *tool.Tool
	var ok bool
	switch call.Kind {
	case tool.KindPrompt:
		t, ok = v.Prompt(call.Name)
	case tool.KindResource:
		t, ok = v.Resource(call.Name)
	default:
		if meta := v.MetaTool(call.Name); meta != nil {
			return meta
		}
		if t, ok = v.Lookup(call.Name); !ok {
			t, ok = v.OfApp(call.Name, s.appsOpen())
		}
	}
	if !ok {
		return nil
	}
	return t
}

// dispatch finds the tool of a call, and calls it.
func (l *Live) dispatch(ctx context.Context, served *Served, call *tool.Call) (tool.Result, error) {
	s := l.session(call.Session)
	t, meant := served.find(call, s), call
	if t != nil && call.Kind == tool.KindResource && s.reads(t.Def.ID) {
		l.observer.Changed(s.id)
	}
	var hint func(tool.Result) tool.Result
	if call.Kind == tool.KindTool && served.Meant != nil {
		t, meant, hint = served.Meant(t, call)
	}
	if t == nil && (call.Kind != tool.KindTool || served.IsMeta == nil || !served.IsMeta(call.Name)) {
		if now := served.started(ctx); now != served {
			return l.dispatch(ctx, now, call)
		}
		if served.Renewed != nil {
			if now := served.Renewed(ctx, call.Name); now.find(call, s) != nil {
				return l.dispatch(ctx, now, call)
			}
		}
	}
	call = meant
	switch {
	case t == nil:
		l.observer.Unknown(ctx, call)
		return nil, notFound(call.Kind, call.Name, served.hint(call), call.Client != nil && call.Client.Modern)
	case call.Kind == tool.KindTool && served.MetaTool(t.Name) != t:
		s.uses(t.Name)
		l.Used(call, t)
		if call.Client != nil && served.Portable != nil && served.Portable(call.Client.Name) {
			call = l.portable.unported(t, call)
		}
	}
	result, err := t.Handler(ctx, call)
	if hint != nil && err == nil {
		result = hint(result)
	}
	return result, err
}

// checkParamHeaders checks the headers that mirror arguments, if the tool requires such headers
// (SEP-2243).
func checkParamHeaders(served *Served, x *wire.Exchange, name string) error {
	t, ok := served.Lookup(name)
	if !ok && served.Meant != nil {
		t, _, _ = served.Meant(nil, &tool.Call{Name: name})
	}
	if t == nil || !bytes.Contains(t.Def.InputSchema, []byte("x-mcp-header")) {
		return nil
	}
	var typed mcp.Tool
	if json.Unmarshal(t.Def.Raw, &typed) != nil {
		return nil
	}
	err := mcp.ValidateParamHeadersLookup(func(name string) (string, bool) {
		values := x.Header.Values(name)
		if len(values) == 0 {
			return "", false
		}
		return values[0], true
	}, &typed, x.Params)
	if err != nil {
		return &tool.RPCError{Code: mcp.HEADER_MISMATCH, Message: err.Error()}
	}
	return nil
}

// task sends a request of the 2026-07-28 tasks extension (SEP-2663) to the upstream that has the task.
func task(ctx context.Context, upstreams Upstreams, served *Served, x *wire.Exchange, call *tool.Call) (tool.Result, error) {
	client := call.Client
	if client == nil || !client.Modern || !served.Declared.Tasks {
		return nil, methodNotFound(x.Method)
	}
	if rawjson.Member(rawjson.Member(client.Capabilities, "extensions"), tool.ExtensionTasks) == nil {
		return nil, &tool.RPCError{
			Code: tool.CodeMissingCapability, Message: "the client has not declared the tasks extension",
			Data: json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + tool.ExtensionTasks + `":{}}}}`),
		}
	}
	if name, _ := mcp.DecodeHeaderValue(x.Header.Get(mcp.HeaderName)); x.Header != nil && name != call.Name {
		return nil, &tool.RPCError{Code: mcp.HEADER_MISMATCH, Message: "the " + mcp.HeaderName + " header does not name the task"}
	}
	return upstreams.Task(ctx, x.Method, call)
}
