package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
)

// rootsHTTP is a legacy server over HTTP that asks for roots in the first call of a
// session, while which the others wait, and keeps those that it gets.
type rootsHTTP struct {
	mu       sync.Mutex // guards sessions
	sessions []*rootsSession
}

type rootsSession struct {
	mu     sync.Mutex // held while it asks
	roots  json.RawMessage
	answer chan json.RawMessage
}

func (u *rootsHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Result json.RawMessage `json:"result"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	u.mu.Lock()
	if m.Method == "initialize" {
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(len(u.sessions)))
		u.sessions = append(u.sessions, &rootsSession{answer: make(chan json.RawMessage, 1)})
	}
	var s *rootsSession
	for i, one := range u.sessions {
		if r.Header.Get("Mcp-Session-Id") == fmt.Sprint(i) {
			s = one
		}
	}
	u.mu.Unlock()
	switch m.Method {
	case "initialize":
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"roots","version":"1"}}}`, m.ID)
	case "tools/call":
		w.Header().Set("Content-Type", "text/event-stream")
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.roots == nil {
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"of %s\",\"method\":\"roots/list\"}\n\n", m.ID)
			w.(http.Flusher).Flush()
			if got := <-s.answer; hasRoots(got) {
				s.roots = got
			}
		}
		raw, _ := json.Marshal(s.roots)
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"allowed\":%s}}\n\n", m.ID, raw)
	default:
		w.WriteHeader(http.StatusAccepted)
		if m.Method == "" {
			s.answer <- m.Result
		}
	}
}

// person is a user with roots, who has a session or, in the newer era, calls alone.
type person struct {
	name   string
	modern bool
	answer func() (json.RawMessage, error) // to roots/list
	calls  int
}

// client is that of the next call.
func (who *person) client() *tool.Client {
	who.calls++
	c := &tool.Client{Key: who.name, Modern: who.modern, Capabilities: json.RawMessage(`{"roots":{}}`),
		Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return who.answer() }}
	if who.modern {
		c.Key = fmt.Sprintf("%s-%d", who.name, who.calls)
	}
	return c
}

// own answers with the roots of the person.
func (who *person) own() (json.RawMessage, error) {
	return fmt.Appendf(nil, `{"roots":[{"uri":"file:///of-%s"}]}`, who.name), nil
}

// Whatever a server does with roots and whatever clients answer, no call is answered
// by a server that knows the roots of another client: not when several make their first
// call at the same moment, not when one has left, and not after a restart.
func TestNobodyIsAnsweredWithTheRootsOfAnother(t *testing.T) {
	t.Parallel()
	servers := map[string]func(t *testing.T) Settings{
		"asks at once":      func(t *testing.T) Settings { return newAsker(t, "asker-roots") },
		"keeps the first":   func(t *testing.T) Settings { return newAsker(t, "asker-roots-first") },
		"asks in its calls": func(t *testing.T) Settings { return newAsker(t, "asker-roots-lazy") },
		"asks in them, HTTP": func(t *testing.T) Settings {
			return Settings{Name: "s", URL: pipes.NewServer(t, &rootsHTTP{}).URL, Protocol: ProtocolLegacy, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
		},
	}
	nothing := func() (json.RawMessage, error) { return noRoots, nil }
	refuses := func() (json.RawMessage, error) { return nil, &tool.RPCError{Code: tool.CodeInternal, Message: "no"} }
	for name, settings := range servers {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, modern %t", name, modern), func(t *testing.T) {
				for round := range 4 {
					var people sync.Map // by name
					enter := func(name string, answer func() (json.RawMessage, error)) *person {
						who := &person{name: name, modern: modern, answer: answer}
						if answer == nil {
							who.answer = who.own
						}
						people.Store(name, who)
						return who
					}
					known := map[string]Known{}
					if round%2 == 1 { // the server is known to ask before it is connected
						known["s"] = Known{Era: EraLegacy, Interactive: true}
					}
					p := newPoolWith(t, known, Events{Ask: func(_ context.Context, key, _ string, _ json.RawMessage) (json.RawMessage, error) {
						who, ok := people.Load(key)
						if !ok {
							return nil, fmt.Errorf("%s cannot be asked outside of its calls", key)
						}
						return who.(*person).answer()
					}}, settings(t))
					atOnce := func(all ...*person) {
						t.Helper()
						begin := make(chan struct{})
						var calls sync.WaitGroup
						for _, who := range all {
							client := who.client()
							calls.Go(func() {
								<-begin
								got, err := callAs(t, p, client, "allowed", `{}`)
								if err != nil || strings.Contains(strings.ReplaceAll(got, "of-"+who.name+`"`, ""), "of-") {
									t.Errorf("%s got %s, %v", who.name, got, err)
								}
							})
						}
						close(begin)
						calls.Wait()
					}
					a, b := enter("a", nil), enter("b", nil)
					atOnce(a, b)
					released := make(chan struct{})
					late := enter("late", nil)
					late.answer = func() (json.RawMessage, error) { <-released; return late.own() }
					var waits sync.WaitGroup
					waits.Go(func() { atOnce(late) })
					atOnce(a, b)
					close(released)
					waits.Wait()
					p.Forget("a")
					p.Forget("b")
					atOnce(enter("none", nothing), enter("refuses", refuses))
					atOnce(enter("c", nil), enter("d", nil))
					if got := mustCallAs(t, p, nil, "allowed", `{}`); strings.Contains(got, "of-") {
						t.Errorf("a client without roots got %s", got)
					}
					if change := p.Reconnect(t.Context(), "s"); change.Err != nil && !strings.Contains(name, "HTTP") {
						t.Fatal(change.Err)
					}
					atOnce(enter("e", nil), enter("f", nil), enter("g", nothing))
				}
			})
		}
	}
}

// A server is told roots only while no call of another client is in flight, and no
// call of another is sent after that.
func TestAServerIsToldRootsOfOneClient(t *testing.T) {
	one := newPool(t, Settings{Name: "s", Command: "none"}).now.Load().byName["s"]
	c := newConnection(one.server, one.main.purpose, &conn.Conn{})
	of := func(name string) *call {
		who := &person{name: name}
		return begin(t.Context(), &tool.Call{Client: who.client()}, one.limits.Load())
	}
	roots, _ := (&person{name: "a"}).own()
	tell := func(name string, result json.RawMessage) (may bool, later <-chan struct{}) {
		return c.roots.mayTell(of(name).rootsOwner(), name, result)
	}
	if !c.calls.add(1, of("a")) || !c.calls.add(2, of("b")) {
		t.Fatal("calls are refused before the server knows any roots")
	}
	may, later := tell("a", roots)
	if may || later == nil {
		t.Fatalf("told beside a call of another: %t, which can end: %t", may, later != nil)
	}
	c.calls.remove(2)
	await.Value(t, later)
	if may, _ := tell("a", roots); !may {
		t.Error("not told when the other call has ended")
	}
	if c.calls.add(3, of("b")) || c.calls.add(4, begin(t.Context(), &tool.Call{}, one.limits.Load())) {
		t.Error("a call of another was let through")
	}
	if !c.calls.add(5, of("a")) {
		t.Error("its own call was refused")
	}
	if may, later := tell("b", roots); may || later != nil {
		t.Errorf("told of another, too: %t; it could be later: %t", may, later != nil)
	}
}

// Calls of a 2026-07-28 client share a connection where the server asks for their roots
// before each; where it asks in some calls only, nothing is left that no call could use.
func TestConnectionsWithTheRootsOf20260728ClientsDoNotPileUp(t *testing.T) {
	for _, mode := range []string{"asker-roots", "asker-roots-lazy"} {
		t.Run(mode, func(t *testing.T) {
			p := newPool(t, newAsker(t, mode))
			changes, stop := watched(t, p)
			defer stop()
			await.True(t, func() bool { return (<-changes).Interactive == (mode == "asker-roots") })
			a := &person{name: "a", modern: true}
			a.answer = a.own
			for range 5 {
				if got := mustCallAs(t, p, a.client(), "allowed", `{}`); !strings.Contains(got, "of-a") {
					t.Errorf("it got %s", got)
				}
			}
			h := p.now.Load().byName["s"].sharing
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.beside) != 0 {
				t.Errorf("there are %d connections beside the main one", len(h.beside))
			}
		})
	}
}

// A server of 2026-07-28 that asks all the same is refused, and learns nobody's roots: so no client has to
// have another connection to it.
func TestAModernServerMayNotAsk(t *testing.T) {
	m, replies := newModernHTTP(t), make(chan string, 1)
	u := pipes.NewServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch rawjson.Text(jsonMember(body, "method")) {
		case "": // a reply
			replies <- string(body)
			w.WriteHeader(http.StatusAccepted)
		case "tools/call":
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"roots/list\"}\n\n")
			w.(http.Flusher).Flush()
			select {
			case reply := <-replies:
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"reply\":%s}}\n\n", jsonMember(body, "id"), reply)
			case <-r.Context().Done():
			}
		default:
			m.ServeHTTP(w, r)
		}
	}))
	p := newPool(t, Settings{Name: "s", URL: u.URL, ConnectTimeout: await.Bound, CallTimeout: await.Bound})
	for _, name := range []string{"ann", "ben", "ann"} {
		who := &person{name: name}
		who.answer = who.own
		result, err := p.Call(t.Context(), def("s", "ask"), &tool.Call{Client: who.client(), Arguments: json.RawMessage(`{}`)})
		if err != nil || !strings.Contains(string(result), "-32601") {
			t.Errorf("%s is answered %s %v", name, result, err)
		}
	}
}
