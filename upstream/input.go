package upstream

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// A 2026-07-28 server that needs something of the client answers a call with
// what it needs and is called again with it. A legacy server asks while it
// works, or refuses with an error that says what it needs. Here one becomes the
// other, as the client wants it.

const (
	// maxRepeats is how often a call is repeated for a client that cannot do it itself.
	maxRepeats = 10
	// shedDelay is the first delay for a server that asks for nothing but to be
	// called again.
	shedDelay = 200 * time.Millisecond
	// maxNeeded is how many things a server may ask for at once.
	maxNeeded = 64
)

var (
	errNoClient = errors.New("it needs input from a client, and nobody can be asked")
	errEndless  = fmt.Errorf("it still wants more input after %d rounds", maxRepeats)
)

// needed is what an input_required result asks for.
type needed struct {
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State *string `json:"requestState"`
}

// untilAnswered sends the request, and again until it is answered.
func (d *delivery) untilAnswered() (tool.Result, error) {
	client := d.call.Client
	again := conn.NewDelays(shedDelay)
	for n := 1; ; n++ {
		result, era, err := d.send()
		// What the client lacks is the answer, also when the server has one to that.
		if rpc, ok := errors.AsType[*tool.RPCError](context.Cause(d.call.ctx)); ok {
			return nil, rpc
		}
		if err != nil {
			return d.translate(era, err)
		}
		switch {
		case era == EraModern && becameTask(result):
			return d.server.taskMade(result, d.call.Principal), nil
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
			for _, one := range need.Requests {
				d.server.questions.opened.add(one.Params, client.Key)
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

// inputRequired reports whether a result is a question.
func inputRequired(result json.RawMessage) bool {
	const word = "input_required"
	return bytes.Contains(result, []byte(word)) && rawjson.Text(rawjson.Member(result, "resultType")) == word
}

// gather asks the client for all that is needed, at the same time, and returns
// the responses as an object, nil if nothing is needed but patience.
func (d *delivery) gather(need needed, again *conn.Delays) (json.RawMessage, error) {
	if len(need.Requests) == 0 {
		select {
		case <-time.After(again.Next()):
			return nil, nil
		case <-d.call.ctx.Done():
			return nil, context.Cause(d.call.ctx)
		}
	}
	if len(need.Requests) > maxNeeded {
		return nil, fmt.Errorf("it asks for %d things at once", len(need.Requests))
	}
	ctx, cancel := context.WithCancelCause(d.call.ctx)
	defer cancel(nil)
	var mu sync.Mutex // guards responses; never held over a question
	var responses rawjson.Object
	var asking sync.WaitGroup
	for key, one := range need.Requests {
		asking.Go(func() {
			response, err := json.RawMessage(nil), error(nil)
			if _, ok := tool.Asks[one.Method]; ok {
				response, err = d.server.questions.ask(ctx, []*call{d.call}, one.Method, identified(one.Method, one.Params))
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
	if own, err := rawjson.Set(params, "elicitationId", rawjson.Quote(rand.Text())); err == nil {
		return own
	}
	return params
}

// withState is an input_required result with a state that only this pool can read.
func (d *delivery) withState(result json.RawMessage, st state) (tool.Result, error) {
	st.Server, st.Kind, st.Name = d.def.ID.Server, d.def.ID.Kind, d.def.ID.Name
	result, err := rawjson.Set(result, "requestState", rawjson.Quote(d.server.sealer.seal(st)))
	if err != nil {
		return nil, &Error{Server: d.server.settings.Name, Op: "ask the client", Err: err}
	}
	return tool.Result(result), nil
}

// resume takes the state and the responses of a call that is a repetition. Of a
// 2026-07-28 client no state but ours reaches a server. To a legacy client these
// members mean nothing: they pass to a legacy server, and to no other.
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
	st, ok := s.sealer.open(rawjson.Text(sealed), r.def.ID)
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

// translate is an error of a server as the era of its client has it.
func (d *delivery) translate(era Era, err error) (tool.Result, error) {
	client := d.call.Client
	rpc, ok := errors.AsType[*tool.RPCError](err)
	if client == nil || !ok {
		return nil, err
	}
	switch {
	case rpc.Code == tool.CodeURLElicitation && era == EraLegacy:
		open := rawjson.Member(rpc.Data, "elicitations")
		for one := range rawjson.Elements(open) {
			d.server.questions.opened.add(one, client.Key)
		}
		switch requests := urlRequests(open); {
		case !client.Modern || requests == nil:
		case rawjson.Member(rawjson.Member(client.Capabilities, tool.CapabilityElicitation), "url") != nil:
			return d.withState(requests, state{Afresh: true, Login: d.asksLogin})
		default: // the code means nothing in that era
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

// modernNotFound is the error for a resource that does not exist as the 2026-07-28
// era has it. Some servers of that era still send the code of the other.
func modernNotFound(rpc *tool.RPCError, uri string) *tool.RPCError {
	out := *rpc
	out.Code = tool.CodeInvalidParams
	if raw, err := rawjson.Set(rpc.Raw, "code", strconv.AppendInt(nil, int64(out.Code), 10)); err == nil {
		out.Raw = raw
	}
	if rawjson.Member(out.Raw, "data") == nil { // which names the resource now
		if raw, err := rawjson.Set(out.Raw, "data", rawjson.Of(map[string]string{"uri": uri})); err == nil {
			out.Raw = raw
		}
	}
	return &out
}

// urlRequests is an input_required result that asks for the elicitations of an
// error, nil when there are none.
func urlRequests(elicitations json.RawMessage) json.RawMessage {
	var requests, out rawjson.Object
	n := 0
	for one := range rawjson.Elements(elicitations) {
		n++
		var ask rawjson.Object
		ask.AddText("method", methodElicit)
		ask.Add("params", one)
		requests.Add(fmt.Sprintf("url%d", n), ask.JSON())
	}
	if requests.Empty() {
		return nil
	}
	out.AddText("resultType", "input_required")
	out.Add("inputRequests", requests.JSON())
	return out.JSON()
}

// sealer makes the requestState of servers opaque to clients and impossible to make
// up, or to use for anything but what it was given for.
type sealer struct{ aead cipher.AEAD }

// state is what a sealed requestState says.
type state struct {
	Server string      `json:"s"`
	Kind   tool.Kind   `json:"k,omitempty"`
	Name   string      `json:"n"`
	State  *string     `json:"u,omitempty"` // the server's own; nil when it gave none
	Afresh bool        `json:"a,omitempty"` // the server knows of nothing: call again as if for the first time
	Login  *askedLogin `json:"p,omitempty"` // the client was asked to open the page of a login
}

// askedLogin is a login that a client was asked to open the page of.
type askedLogin struct {
	Mark string `json:"m"` // of the token that did not do
	ID   string `json:"i"` // of the login
}

func newSealer(key [32]byte) *sealer {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has a length that AES knows
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // of AES: never fails
	}
	return &sealer{aead}
}

func (s *sealer) seal(st state) string {
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, rawjson.Of(st), nil))
}

// open returns what seal was given, for this definition and no other.
func (s *sealer) open(sealed string, id tool.ID) (st state, ok bool) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return st, false
	}
	text, err := s.aead.Open(nil, nil, raw, nil)
	if err != nil || json.Unmarshal(text, &st) != nil {
		return st, false
	}
	return st, st.Server == id.Server && st.Kind == id.Kind && st.Name == id.Name
}
