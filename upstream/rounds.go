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

	"toolfinch/rawjson"
	"toolfinch/tool"
)

// A 2026-07-28 server that needs something of the client answers a call with
// what it needs and is called again with it. A legacy server asks while it
// works, or refuses with an error that says what it needs. Here one becomes the
// other, as the client wants it.

const (
	// maxRounds is how often a call is repeated for a client that cannot do it itself.
	maxRounds = 10
	// shedDelay is the first delay for a server that asks for nothing but to be
	// called again.
	shedDelay = 200 * time.Millisecond
	// maxNeeded is how many things a server may ask for at once.
	maxNeeded = 64
)

var (
	errNoClient = errors.New("it needs input from a client, and nobody can be asked")
	errEndless  = fmt.Errorf("it still wants more input after %d rounds", maxRounds)
)

// needed is what an input_required result asks for.
type needed struct {
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State *string `json:"requestState"`
}

// rounds sends a request, and again until it is answered.
func (s *server) rounds(f *flight, r request) (tool.Result, error) {
	fail := func(err error) error { return &Error{Server: s.settings.Name, Op: r.op, Err: f.ended(err)} }
	client := f.call.Client
	again := newDelays(shedDelay)
	for round := 1; ; round++ {
		result, era, err := s.deliver(f, r)
		// What the client lacks is the answer, also when the server has one to that.
		if rpc := new(tool.RPCError); errors.As(context.Cause(f.ctx), &rpc) {
			return nil, rpc
		}
		if err != nil {
			return s.bridge(f, r, era, err)
		}
		switch {
		case era == EraModern && becameTask(result):
			return s.taskMade(result, f.call.Principal), nil
		case era != EraModern || !inputRequired(result):
			return tool.Result(result), nil
		}
		var need needed
		if err := json.Unmarshal(result, &need); err != nil {
			return nil, fail(fmt.Errorf("what it needs is not understood: %w", err))
		}
		switch {
		case client == nil:
			return nil, fail(errNoClient)
		case client.Modern:
			for _, one := range need.Requests {
				s.remember(one.Params, client.Key)
			}
			return s.sealed(result, state{State: need.State}, r.def.ID)
		case round == maxRounds:
			return nil, fail(errEndless)
		}
		r.state = need.State
		if r.responses, err = s.gather(f, need, again); err != nil {
			rpc := new(tool.RPCError)
			if errors.As(err, &rpc) {
				return nil, rpc
			}
			return nil, fail(err)
		}
	}
}

// inputRequired reports whether a result is a question.
func inputRequired(result json.RawMessage) bool {
	const word = "input_required"
	return bytes.Contains(result, []byte(word)) && rawjson.Text(rawjson.Member(result, "resultType")) == word
}

// gather asks the client for all that is needed, at the same time, and returns
// the responses as an object, nil if nothing is needed but patience.
func (s *server) gather(f *flight, need needed, again *delays) (json.RawMessage, error) {
	if len(need.Requests) == 0 {
		select {
		case <-time.After(again.next()):
			return nil, nil
		case <-f.ctx.Done():
			return nil, context.Cause(f.ctx)
		}
	}
	if len(need.Requests) > maxNeeded {
		return nil, fmt.Errorf("it asks for %d things at once", len(need.Requests))
	}
	ctx, cancel := context.WithCancelCause(f.ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards responses; never held over an Ask
	responses := rawjson.NewObject(256)
	var asking sync.WaitGroup
	for key, one := range need.Requests {
		asking.Go(func() {
			response, err := json.RawMessage(nil), error(nil)
			if _, ok := tool.Asks[one.Method]; ok {
				response, err = s.askClient(ctx, []*flight{f}, one.Method, identified(one.Method, one.Params))
			} else {
				err = fmt.Errorf("it asks the client for %q, which is nothing to ask for", one.Method)
			}
			if err != nil {
				cancel(err) // the first one counts
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

// identified is the params of a request with an ID for the URL, if it asks to
// open one: 2026-07-28 has none, and clients of 2025-11-25 refuse to do without.
func identified(method string, params json.RawMessage) json.RawMessage {
	if method != methodElicit || rawjson.Text(rawjson.Member(params, "mode")) != "url" || rawjson.Member(params, "elicitationId") != nil {
		return params
	}
	if own, err := rawjson.Set(params, "elicitationId", []byte(`"`+rand.Text()+`"`)); err == nil {
		return own
	}
	return params
}

// sealed is an input_required result with a state that only this pool can read.
func (s *server) sealed(result json.RawMessage, st state, id tool.ID) (tool.Result, error) {
	st.Server, st.Kind, st.Name = id.Server, id.Kind, id.Name
	text, err := s.sealer.seal(st)
	if err == nil {
		result, err = rawjson.Set(result, "requestState", rawjson.Quote(text))
	}
	if err != nil {
		return nil, &Error{Server: s.settings.Name, Op: "ask the client", Err: err}
	}
	return tool.Result(result), nil
}

// reopen takes the state and the responses of a call that is a repetition. Of a
// 2026-07-28 client no state but ours reaches an upstream. To a legacy client
// these members mean nothing: they pass to a legacy server, and to no other.
func (s *server) reopen(r *request, call *tool.Call) error {
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
	st, err := s.sealer.open(rawjson.Text(sealed), r.def.ID)
	if err != nil {
		return &tool.RPCError{Code: tool.CodeInvalidParams, Message: "requestState is not one of this " + r.def.ID.Kind.String()}
	}
	r.state = st.State
	if st.Afresh {
		r.responses = nil
	}
	return nil
}

// bridge is an error of a server as the era of its client has it.
func (s *server) bridge(f *flight, r request, era Era, err error) (tool.Result, error) {
	client := f.call.Client
	var rpc *tool.RPCError
	if client == nil || !errors.As(err, &rpc) {
		return nil, err
	}
	switch {
	case rpc.Code == tool.CodeURLElicitation && era == EraLegacy:
		open := rawjson.Member(rpc.Data, "elicitations")
		for one := range rawjson.Elements(open) {
			s.remember(one, client.Key)
		}
		switch requests := urlRequests(open); {
		case !client.Modern || requests == nil:
		case canOpen(client):
			return s.sealed(requests, state{Afresh: true}, r.def.ID)
		default: // the code means nothing in that era
			return nil, &tool.RPCError{
				Code: tool.CodeMissingCapability, Message: "the client lacks a capability that this needs: elicitation by URL",
				Data: json.RawMessage(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`),
			}
		}
	case rpc.Code == tool.CodeResourceNotFound && client.Modern && r.method == "resources/read":
		return nil, moved(rpc, f.call.Name)
	}
	return nil, err
}

// moved is the error for a resource that does not exist as the 2026-07-28 era has
// it. Some servers of that era still send the code of the other.
func moved(rpc *tool.RPCError, uri string) *tool.RPCError {
	now := *rpc
	now.Code = tool.CodeInvalidParams
	if raw, err := rawjson.Set(rpc.Raw, "code", strconv.AppendInt(nil, int64(now.Code), 10)); err == nil {
		now.Raw = raw
	}
	if rawjson.Member(now.Raw, "data") == nil { // which names the resource now
		data := rawjson.NewObject(64)
		data.AddText("uri", uri)
		if raw, err := rawjson.Set(now.Raw, "data", data.JSON()); err == nil {
			now.Raw = raw
		}
	}
	return &now
}

// canOpen reports whether the client opens URLs for a server.
func canOpen(client *tool.Client) bool {
	return rawjson.Member(rawjson.Member(client.Capabilities, tool.CapabilityElicitation), "url") != nil
}

// urlRequests is an input_required result that asks for the elicitations of an
// error, nil when there are none.
func urlRequests(elicitations json.RawMessage) json.RawMessage {
	requests := rawjson.NewObject(256)
	n := 0
	for one := range rawjson.Elements(elicitations) {
		n++
		ask := rawjson.NewObject(len(one) + 64)
		ask.AddText("method", methodElicit)
		ask.Add("params", one)
		requests.Add(fmt.Sprintf("url%d", n), ask.JSON())
	}
	if requests.Empty() {
		return nil
	}
	out := rawjson.NewObject(512)
	out.AddText("resultType", "input_required")
	out.Add("inputRequests", requests.JSON())
	return out.JSON()
}
