package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"toolfinch/internal/leeway"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

const (
	// maxRepeats bounds the repetitions of a call for a client that does not repeat it itself.
	maxRepeats = 10
	// shedDelay is the first delay before a call is repeated if input_required has no questions.
	shedDelay = 200 * time.Millisecond
	// maxNeeded bounds the questions in one result.
	maxNeeded = 64
)

var (
	errNoClient = errors.New("it needs input from a client, and nobody can be asked")
	errEndless  = fmt.Errorf("it still wants more input after %d rounds", maxRepeats)
)

// needed is the content of an input_required result.
type needed struct {
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State *string `json:"requestState"`
}

// untilAnswered sends the request until it is answered. A 2026-07-28 server that needs input
// answers input_required and is called again with the input. A legacy server asks during
// the call, or refuses with an error that names the input. untilAnswered translates between
// both, as the client's era needs.
func (d *delivery) untilAnswered() (tool.Result, error) {
	client := d.call.Client
	again := conn.NewDelays(shedDelay)
	for n := 1; ; n++ {
		result, era, err := d.send()
		// A missing client capability is the answer, even if the server has answered too.
		if rpc, ok := errors.AsType[*tool.RPCError](context.Cause(d.call.ctx)); ok {
			return nil, rpc
		}
		if err != nil {
			return d.translate(era, err)
		}
		switch {
		case era == EraModern && becameTask(result):
			return d.madeTask(result), nil
		case era != EraModern || !inputRequired(result):
			return tool.Result(result), nil
		}
		var need needed
		if err := json.Unmarshal(result, &need); err != nil {
			return nil, d.fail(fmt.Errorf("what it needs is not understood: %w", err))
		}
		switch {
		case client == nil:
			return nil, d.fail(errNoClient)
		case client.Modern:
			for _, question := range need.Requests {
				d.server.questions.opened.add(question.Params, client.Key)
			}
			return d.withState(result, state{State: need.State})
		case n == maxRepeats:
			return nil, d.fail(errEndless)
		}
		d.state = need.State
		if d.responses, err = d.gather(need, again); err != nil {
			if rpc, ok := errors.AsType[*tool.RPCError](err); ok {
				return nil, rpc
			}
			return nil, d.fail(err)
		}
	}
}

// madeTask remembers the task as which the call continues, and returns the result for the
// client.
func (d *delivery) madeTask(result json.RawMessage) tool.Result {
	server, principal := d.server.settings.Name, d.call.Principal
	d.server.env.tasks.made(server, taskID(result), principal)
	return tool.Result(d.server.env.tasks.expose(server, result, principal))
}

// inputRequired reports whether a result asks for input.
func inputRequired(result json.RawMessage) bool {
	const word = "input_required"
	return bytes.Contains(result, []byte(word)) && rawjson.Text(rawjson.Member(result, "resultType")) == word
}

// gather asks the client all questions at the same time, and returns the responses as an
// object. Without questions it waits a moment and returns nil.
func (d *delivery) gather(need needed, again *conn.Delays) (json.RawMessage, error) {
	if len(need.Requests) == 0 {
		if !leeway.Wait(d.call.ctx, again.Next()) {
			return nil, context.Cause(d.call.ctx)
		}
		return nil, nil
	}
	if len(need.Requests) > maxNeeded {
		return nil, fmt.Errorf("it asks for %d things at once", len(need.Requests))
	}
	ctx, cancel := context.WithCancelCause(d.call.ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards responses; never held over a question
	var responses rawjson.Object
	var asking sync.WaitGroup
	for key, question := range need.Requests {
		asking.Go(func() {
			response, err := json.RawMessage(nil), error(nil)
			if _, ok := tool.Asks[question.Method]; ok {
				response, err = d.server.questions.ask(ctx, []*call{d.call}, question.Method, identified(question.Method, question.Params))
			} else {
				err = fmt.Errorf("it asks the client for %q, which is nothing to ask for", question.Method)
			}
			if err != nil {
				cancel(err) // the first error counts
				return
			}
			mu.Lock()
			defer mu.Unlock()
			responses.Add(key, response)
		})
	}
	asking.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return responses.JSON(), nil
}

// identified adds an ID to the params of a question that asks to open a URL: 2026-07-28 has
// no IDs, but clients of 2025-11-25 require one.
func identified(method string, params json.RawMessage) json.RawMessage {
	if method != methodElicit || rawjson.Text(rawjson.Member(params, "mode")) != "url" || rawjson.Member(params, "elicitationId") != nil {
		return params
	}
	if own, err := rawjson.Set(params, "elicitationId", rawjson.Quote(rand.Text())); err == nil {
		return own
	}
	return params
}

// withState returns an input_required result with a sealed state.
func (d *delivery) withState(result json.RawMessage, st state) (tool.Result, error) {
	st.Server, st.Kind, st.Name = d.def.ID.Server, d.def.ID.Kind, d.def.ID.Name
	result, err := rawjson.Set(result, "requestState", rawjson.Quote(d.server.env.sealer.seal(st)))
	if err != nil {
		return nil, &Error{Server: d.server.settings.Name, Op: "ask the client", Err: err}
	}
	return tool.Result(result), nil
}

// resume reads the state and the responses from a repeated call of a 2026-07-28 client. Only
// a state that this pool has sealed reaches a server. For a legacy client these members have
// no meaning, and they pass to legacy servers only.
func (s *server) resume(ctx context.Context, r *request, call *tool.Call) error {
	if call.Client == nil || !call.Client.Modern {
		return nil
	}
	var sealed json.RawMessage
	for key, value := range rawjson.Members(call.Params) {
		switch key {
		case "requestState":
			sealed = value
		case "inputResponses":
			r.responses = value
		}
	}
	if sealed == nil {
		return nil
	}
	st, ok := s.env.sealer.open(rawjson.Text(sealed), r.def.ID)
	if !ok {
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: "requestState is not one of this " + r.def.ID.Kind.String()}
	}
	r.state = st.State
	if st.Login != nil && s.login != nil {
		s.afterLogin(ctx, r, call, *st.Login)
	}
	if st.Afresh {
		r.responses = nil
	}
	return nil
}

// translate returns a server's error in the form of the client's era.
func (d *delivery) translate(era Era, err error) (tool.Result, error) {
	client := d.call.Client
	rpc, ok := errors.AsType[*tool.RPCError](err)
	if client == nil || !ok {
		return nil, err
	}
	switch {
	case rpc.Code == tool.CodeURLElicitation && era == EraLegacy:
		open := rawjson.Member(rpc.Data, "elicitations")
		for elicitation := range rawjson.Elements(open) {
			d.server.questions.opened.add(elicitation, client.Key)
		}
		switch requests := urlRequests(open); {
		case !client.Modern || requests == nil:
		case rawjson.Member(rawjson.Member(client.Capabilities, tool.CapabilityElicitation), "url") != nil:
			return d.withState(requests, state{Afresh: true, Login: d.asksLogin})
		default: // the legacy code has no meaning for the client
			return nil, &tool.RPCError{
				Code: tool.CodeMissingCapability, Message: "the client lacks a capability that this needs: elicitation by URL",
				Data: json.RawMessage(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`),
			}
		}
	case rpc.Code == tool.CodeResourceNotFound && client.Modern && d.method == "resources/read":
		return nil, modernNotFound(rpc, d.call.Name)
	}
	return nil, err
}

// modernNotFound returns the error for an unknown resource in the form of 2026-07-28. Some
// servers of that era still send the legacy code.
func modernNotFound(rpc *tool.RPCError, uri string) *tool.RPCError {
	out := *rpc
	out.Code = tool.CodeInvalidParams
	if raw, err := rawjson.Set(rpc.Raw, "code", strconv.AppendInt(nil, int64(out.Code), 10)); err == nil {
		out.Raw = raw
	}
	if rawjson.Member(out.Raw, "data") == nil { // data names the resource in 2026-07-28
		if raw, err := rawjson.Set(out.Raw, "data", rawjson.Of(map[string]string{"uri": uri})); err == nil {
			out.Raw = raw
		}
	}
	return &out
}

// urlRequests returns an input_required result with the elicitations of an error; nil if
// there are none.
func urlRequests(elicitations json.RawMessage) json.RawMessage {
	var requests, out rawjson.Object
	n := 0
	for elicitation := range rawjson.Elements(elicitations) {
		n++
		var ask rawjson.Object
		ask.AddText("method", methodElicit)
		ask.Add("params", elicitation)
		requests.Add(fmt.Sprintf("url%d", n), ask.JSON())
	}
	if requests.Empty() {
		return nil
	}
	out.AddText("resultType", "input_required")
	out.Add("inputRequests", requests.JSON())
	return out.JSON()
}
