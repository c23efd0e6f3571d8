package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// asker is a legacy server of plain JSON lines that has everything, and asks
// its client for everything. Its tools:
//
//	ask      {"method", "params"}: asks, and returns {"answer": the whole response}
//	asks     {"n"}: asks n times at once
//	later    asks for the roots once the call is over; what comes goes to seen
//	withdraw asks, and withdraws that once its folder has a file "withdraw"
//	echo     returns {"params": its params, "hello": those of initialize}
//	url      refuses: a URL is to be opened first
//	seen     returns {"seen": [all notifications and answers that no call waited for]}
//	allowed  returns {"allowed": the roots that it knows}
//	say      {"method", "params"}: notifies
//
// asker-roots asks for roots when it is connected and when they are others. So does
// asker-roots-first, but it keeps the first that it gets, as one does for a while that
// takes them in slowly. asker-roots-lazy keeps them too, and asks in its first call.
type asker struct {
	*peer
	hello json.RawMessage

	saying  sync.Mutex // guards what follows
	next    int
	waiting map[string]chan json.RawMessage
	seen    []json.RawMessage
	nth     int             // which of the answers about roots allowed is
	allowed json.RawMessage // the roots that it knows; of asker-roots and those below
	lazy    sync.Mutex      // held while asker-roots-lazy asks
}

func serveAsker(p *peer) {
	a, mode := &asker{peer: p, waiting: map[string]chan json.RawMessage{}}, p.mode
	told := 0 // how often of roots
	for {
		m := p.read()
		line := m.line
		switch {
		case m.Method == "":
			a.saying.Lock()
			answered := a.waiting[string(m.ID)]
			delete(a.waiting, string(m.ID))
			a.saying.Unlock()
			if answered != nil {
				answered <- line
			} else {
				a.note(line)
			}
		case m.ID == nil:
			a.note(line)
			if m.Method == "notifications/initialized" && mode == "asker-at-once" {
				go func() { a.note(a.ask("roots/list", nil)) }()
			}
			if (mode == "asker-roots" || mode == "asker-roots-first") && (m.Method == "notifications/initialized" || m.Method == "notifications/roots/list_changed") {
				told++
				nth := told
				go func() {
					answer := a.ask("roots/list", nil)
					a.learn(jsonMember(answer, "result"), nth, mode != "asker-roots")
				}()
			}
		case m.Method == "tools/call" && mode == "asker-roots-lazy":
			go func() {
				a.lazy.Lock()
				if a.allowed == nil {
					a.learn(jsonMember(a.ask("roots/list", nil), "result"), 1, true)
				}
				a.lazy.Unlock()
				a.call(m.ID, m.Params)
			}()
		case m.Method == "tools/call":
			go a.call(m.ID, m.Params)
		default:
			a.serve(m.ID, m.Method, m.Params)
		}
	}
}

// learn takes roots in, asked for as the nth; where it keeps what it has, only the first, else
// none that were asked for before those that it has.
func (a *asker) learn(roots json.RawMessage, nth int, keeps bool) {
	a.saying.Lock()
	defer a.saying.Unlock()
	switch {
	case keeps && (a.allowed != nil || !hasRoots(roots)), !keeps && nth < a.nth:
		return
	}
	a.allowed, a.nth = roots, nth
}

func (a *asker) note(line []byte) {
	a.saying.Lock()
	defer a.saying.Unlock()
	a.seen = append(a.seen, json.RawMessage(line))
}

func (a *asker) say(format string, args ...any) {
	a.saying.Lock()
	defer a.saying.Unlock()
	a.peer.say(format, args...)
}

// ask sends a request and returns the whole response.
func (a *asker) ask(method string, params json.RawMessage) json.RawMessage {
	_, answered := a.send(method, params)
	select {
	case answer := <-answered:
		return answer
	case <-a.end.Done():
		return nil
	}
}

func (a *asker) send(method string, params json.RawMessage) (string, chan json.RawMessage) {
	answered := make(chan json.RawMessage, 1)
	a.saying.Lock()
	a.next++
	id := fmt.Sprintf(`"q%d"`, a.next)
	a.waiting[id] = answered
	a.saying.Unlock()
	if params == nil {
		params = json.RawMessage(`{}`)
	}
	a.say(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	return id, answered
}

func (a *asker) serve(id json.RawMessage, method string, params json.RawMessage) {
	result := `{}`
	switch method {
	case "initialize":
		a.hello = params
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{},"logging":{},"x":1.0},"serverInfo":{"name":"asker","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"ask"},{"name":"echo"}]}`
	case "prompts/list":
		result = `{"prompts":[{"name":"greet","arguments":[{"name":"who","x":1.0}]},{}]}`
	case "resources/list":
		result = `{"resources":[{"uri":"memo://a","name":"A"},{"uri":"memo://b","name":"B"}]}`
	case "resources/templates/list":
		result = `{"resourceTemplates":[{"uriTemplate":"memo://{id}","name":"any"}]}`
	case "prompts/get", "completion/complete":
		result = fmt.Sprintf(`{"params":%s}`, params)
	case "resources/read":
		if string(jsonMember(params, "uri")) == `"memo://none"` {
			a.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such memo","data":{"uri":"memo://none"},"x":1.0}}`, id)
			return
		}
		result = fmt.Sprintf(`{"params":%s}`, params)
	case "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		a.note(fmt.Appendf(nil, `{"method":%q,"params":%s}`, method, params))
	case "server/discover":
		a.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, id)
		return
	}
	a.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

func (a *asker) call(id, params json.RawMessage) {
	var p struct {
		Name      string `json:"name"`
		Arguments struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			N      int             `json:"n"`
		} `json:"arguments"`
	}
	_ = json.Unmarshal(params, &p)
	result := `{"ok":true}`
	switch p.Name {
	case "ask":
		result = fmt.Sprintf(`{"answer":%s,"pid":%d}`, a.ask(p.Arguments.Method, p.Arguments.Params), a.pid)
	case "asks":
		var all sync.WaitGroup
		answers := make([]json.RawMessage, p.Arguments.N)
		for i := range answers {
			all.Go(func() { answers[i] = a.ask("elicitation/create", json.RawMessage(`{"message":"many"}`)) })
		}
		all.Wait()
		raw, _ := json.Marshal(answers)
		result = string(raw)
		result = `{"answers":` + result + `}`
	case "later":
		defer func() { a.note(a.ask("roots/list", nil)) }()
	case "withdraw":
		asked, _ := a.send("elicitation/create", json.RawMessage(`{"message":"wait"}`))
		a.wait("withdraw")
		a.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, asked)
	case "echo":
		result = fmt.Sprintf(`{"params":%s,"hello":%s,"pid":%d}`, params, a.hello, a.pid)
	case "url":
		a.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"open it","data":{"elicitations":[{"mode":"url","elicitationId":"e1","url":"https://example.com/x","message":"go"}]}}}`, id)
		return
	case "seen":
		a.saying.Lock()
		raw, _ := json.Marshal(a.seen)
		a.saying.Unlock()
		result = fmt.Sprintf(`{"seen":%s}`, raw)
	case "allowed":
		a.saying.Lock()
		result = fmt.Sprintf(`{"allowed":%s}`, cmp.Or(string(a.allowed), "null"))
		a.saying.Unlock()
	case "say":
		a.say(`{"jsonrpc":"2.0","method":%q,"params":%s}`, p.Arguments.Method, p.Arguments.Params)
	case "hang":
		return
	}
	a.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// newAsker is an upstream that is an asker.
func newAsker(t testing.TB, mode string) Settings {
	s := lines(t, "s", mode)
	s.Protocol = ProtocolLegacy
	return s
}
