package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/tool"
)

// modernHTTP is an HTTP upstream of the 2026-07-28 era without any library.
// answer gets each request that is not about lists; what it returns is the
// result, or with a prefix "!" the error.
type modernHTTP struct {
	*httptest.Server

	mu      sync.Mutex // guards what follows
	answer  func(method string, params json.RawMessage) string
	more    string // further capabilities, after a comma
	lists   map[string]int
	streams []*modernStream // open subscriptions, in the order of their beginning
	begun   int             // how many subscriptions there were
	headers []http.Header   // of requests to answer
}

type modernStream struct {
	id, filter string
	events     chan string
}

func newModernHTTP(t testing.TB) *modernHTTP {
	m := &modernHTTP{lists: map[string]int{}}
	m.answer = func(string, json.RawMessage) string { return `{}` }
	m.Server = pipes.NewServer(t, m)
	return m
}

func (m *modernHTTP) settings() Settings {
	return Settings{Name: "s", URL: m.URL, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}

// say sends a notification to every open subscription.
func (m *modernHTTP) say(method, params string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, stream := range m.streams {
		stream.events <- fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}%s}}`, method, stream.id, params)
	}
}

func (m *modernHTTP) answers(with func(method string, params json.RawMessage) string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = with
}

func (m *modernHTTP) count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists[method]
}

// filter is that of the youngest subscription that is open, "" without one. A
// connection on its way out may open one after its successor has: wait until
// what is open is what is wanted.
func (m *modernHTTP) filter() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.streams) == 0 {
		return ""
	}
	return m.streams[len(m.streams)-1].filter
}

func (m *modernHTTP) subscriptions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun
}

func (m *modernHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	_ = json.Unmarshal(body, &q)
	w.Header().Set("Content-Type", "application/json")
	result := ""
	switch q.Method {
	case "server/discover":
		result = `{"supportedVersions":["2026-07-28"],"resultType":"complete","capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"x":1.0` + m.more + `},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"1"}}}`
	case "tools/list":
		result = `{"tools":[{"name":"ask"}],"ttlMs":60000,"cacheScope":"public"}`
	case "prompts/list":
		result = `{"prompts":[{"name":"greet"}],"ttlMs":1000,"cacheScope":"private"}`
	case "resources/list":
		result = `{"resources":[{"uri":"memo://a","name":"A"}],"ttlMs":5000,"cacheScope":"public","nextCursor":"more"}`
		if jsonMember(q.Params, "cursor") != nil {
			result = `{"resources":[{"uri":"memo://b","name":"B"}],"ttlMs":4000}`
		}
	case "resources/templates/list":
		result = `{"resourceTemplates":[]}`
	case "subscriptions/listen":
		m.subscribe(w, r, q.ID, jsonMember(q.Params, "notifications"))
		return
	default:
		m.mu.Lock()
		m.headers = append(m.headers, r.Header.Clone())
		answer := m.answer
		m.mu.Unlock()
		result = answer(q.Method, q.Params)
	}
	m.mu.Lock()
	m.lists[q.Method]++
	m.mu.Unlock()
	if failure, ok := strings.CutPrefix(result, "!"); ok {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, q.ID, failure)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, result)
}

func (m *modernHTTP) subscribe(w http.ResponseWriter, r *http.Request, id, filter json.RawMessage) {
	w.Header().Set("Content-Type", "text/event-stream")
	stream := &modernStream{id: string(id), filter: string(filter), events: make(chan string, 10)}
	m.mu.Lock()
	m.streams = append(m.streams, stream)
	m.begun++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.streams = slices.DeleteFunc(m.streams, func(s *modernStream) bool { return s == stream })
		m.mu.Unlock()
	}()
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s}}}\n\n", id)
	w.(http.Flusher).Flush()
	for {
		select {
		case text := <-stream.events:
			fmt.Fprintf(w, "data: %s\n\n", text)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func ofKind(kind tool.Kind, name string) *tool.Def {
	return &tool.Def{ID: tool.ID{Server: "s", Name: name, Kind: kind}}
}

func modern(key string) *tool.Client {
	c := asked(key)
	c.Modern = true
	return c
}

func TestListsOfAllKinds(t *testing.T) {
	m := newModernHTTP(t)
	for name, test := range map[string]struct {
		settings Settings
		defs     string
		rejected int
		cache    string
	}{
		"legacy": {newAsker(t, "asker"), "tool ask, tool echo, prompt greet, resource memo://a, resource memo://b, template memo://{id}", 1, `map[]`},
		"modern": {m.settings(), "tool ask, prompt greet, resource memo://a, resource memo://b", 0, `map[tool:{1m0s true} prompt:{1s false}]`},
	} {
		t.Run(name, func(t *testing.T) {
			change := newPool(t, test.settings).Refresh(t.Context(), "s")
			var names []string
			for _, d := range change.Defs {
				names = append(names, d.ID.Kind.String()+" "+d.ID.Name)
			}
			if got := strings.Join(names, ", "); got != test.defs || change.Err != nil {
				t.Errorf("defs = %s, %v; want %s", got, change.Err, test.defs)
			}
			if change.Faults.LeftOut != test.rejected || string(jsonMember(change.Capabilities, "x")) != "1.0" {
				t.Errorf("rejected %v, capabilities %s", change.Faults, change.Capabilities)
			}
			if cache := change.Cache; name == "modern" {
				// One page of the resources says less than the other.
				if r := cache[tool.KindResource]; r != (CacheHint{4 * time.Second, false}) {
					t.Errorf("resources may be kept %+v", r)
				}
				delete(cache, tool.KindResource)
			}
			if got := fmt.Sprint(change.Cache); got != test.cache {
				t.Errorf("cache = %s, want %s", got, test.cache)
			}
		})
	}
}

func TestOnlyTheListThatChangedIsListedAgain(t *testing.T) {
	m := newModernHTTP(t)
	changes, _ := watched(t, newPool(t, m.settings()))
	if change := <-changes; len(change.Defs) != 4 {
		t.Fatalf("change = %+v", change)
	}
	await.True(t, func() bool { return m.filter() != "" })
	if got, want := m.filter(), `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`; got != want {
		t.Errorf("filter = %s, want %s", got, want)
	}
	m.say("notifications/prompts/list_changed", "")
	m.say("notifications/resources/list_changed", "")
	// Two changes may be told as one or as two.
	for prompts, resources := 1, 2; prompts < 2 || resources < 4; prompts, resources = m.count("prompts/list"), m.count("resources/list") {
		if change := <-changes; len(change.Defs) != 4 {
			t.Errorf("change = %+v", change)
		}
	}
	if tools, prompts, resources := m.count("tools/list"), m.count("prompts/list"), m.count("resources/list"); tools != 1 || prompts != 2 || resources != 4 {
		t.Errorf("tools were listed %d times, prompts %d, pages of resources %d", tools, prompts, resources)
	}
}

func TestAListOfAnotherKindThatFailsCostsNoTools(t *testing.T) {
	s := played(t, "s", &stage{script: func(p *peer) {
		p.answer(p.read(), `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":{},"resources":{}},"serverInfo":{"name":"s","version":"1"}}`)
		p.read()
		for m := p.read(); ; m = p.read() {
			if m.Method == "tools/list" {
				p.answer(m, `{"tools":[{"name":"a"}]}`)
			} else {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-1,"message":"broken"}}`, m.ID)
			}
		}
	}})
	s.Protocol = ProtocolLegacy
	if change := newPool(t, s).Refresh(t.Context(), "s"); change.Err != nil || len(change.Defs) != 1 {
		t.Errorf("change = %+v", change)
	}
}

func TestPromptsResourcesAndCompletionKeepTheirBytes(t *testing.T) {
	m := newModernHTTP(t)
	m.answers(func(_ string, params json.RawMessage) string { return `{"params":` + string(params) + `}` })
	const trace = `"traceparent":"00-1-2-01","tracestate":"a=b","baggage":"c=d","big":12345678901234567890`
	for name, p := range map[string]*Pool{"legacy": newPool(t, newAsker(t, "asker")), "modern": newPool(t, m.settings())} {
		t.Run(name, func(t *testing.T) {
			client := &tool.Client{Key: "a", Modern: true, LogLevel: "warning", Capabilities: json.RawMessage(
				`{"elicitation":{"x":1.0},"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{},"other":{"x":1.0}}}`)}
			for _, test := range []struct {
				def    *tool.Def
				params string
				want   string // less _meta
			}{
				{ofKind(tool.KindPrompt, "greet"), `{"_meta":{%s},"name":"s_greet","arguments":{"who":"x"},"task":{"ttl":1},"future":1.0}`, `{"name":"greet","arguments":{"who":"x"},"future":1.0}`},
				{ofKind(tool.KindResource, "memo://a"), `{"uri":"s+memo://a","_meta":{%s}}`, `{"uri":"memo://a"}`},
			} {
				sent := fmt.Sprintf(test.params, trace+`,"progressToken":1,"io.modelcontextprotocol/clientInfo":{"name":"c"}`)
				result, err := p.Call(t.Context(), test.def, &tool.Call{Params: json.RawMessage(sent), Arguments: jsonMember(json.RawMessage(sent), "arguments"), Client: client, Notify: func(string, json.RawMessage) {}})
				if err != nil {
					t.Fatal(err)
				}
				got := jsonMember(json.RawMessage(result), "params")
				if rest := string(without(got, "_meta")); rest != test.want {
					t.Errorf("params = %s, want %s", rest, test.want)
				}
				meta := string(jsonMember(got, "_meta"))
				if !strings.HasPrefix(meta, `{`+trace+`,"progressToken":"toolfinch-`) || strings.Contains(meta, `"name":"c"`) {
					t.Errorf("_meta = %s", meta)
				}
				abilities := string(jsonMember(jsonMember(got, "_meta"), "io.modelcontextprotocol/clientCapabilities"))
				if want := `{"elicitation":{"x":1.0},"extensions":{"io.modelcontextprotocol/tasks":{},"other":{"x":1.0}}}`; name == "modern" && abilities != want {
					t.Errorf("capabilities = %s, want %s", abilities, want)
				}
				if level := string(jsonMember(jsonMember(got, "_meta"), "io.modelcontextprotocol/logLevel")); name == "modern" && level != `"warning"` {
					t.Errorf("log level = %s", level)
				}
			}
			params := `{"ref":{"type":"ref/prompt","name":"greet","x":1.0},"argument":{"name":"who","value":"a"}}`
			result, err := p.Complete(t.Context(), "s", &tool.Call{Params: json.RawMessage(params)})
			want := `{"params":` + params + `}`
			if name == "modern" { // it declares no completions
				want = `{"completion":{"values":[]}}`
			}
			if err != nil || string(result) != want {
				t.Errorf("completion = %s, %v; want %s", result, err, want)
			}
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if got := m.headers[1].Get("Mcp-Method") + " " + m.headers[1].Get("Mcp-Name"); got != "resources/read memo://a" {
		t.Errorf("headers: %s", got)
	}
}

// needy asks for a name, then for patience, then answers with what it got.
func needy(method string, params json.RawMessage) string {
	state := string(jsonMember(params, "requestState"))
	switch {
	case method != "tools/call":
		return `{}`
	case state == "":
		return `{"resultType":"input_required","x":1.0,"requestState":"state <1>","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"who?","big":12345678901234567890}},"where":{"method":"roots/list"}}}`
	case state == `"state <1>"`, state == `"state \u003c1\u003e"`:
		raw, _ := json.Marshal(string(jsonMember(params, "inputResponses")))
		return `{"resultType":"input_required","requestState":` + string(raw) + `}`
	}
	return `{"resultType":"complete","got":` + state + `,"arguments":` + string(jsonMember(params, "arguments")) + `,"responses":"` + fmt.Sprint(jsonMember(params, "inputResponses") != nil) + `"}`
}

func TestALegacyClientIsAskedForWhatAModernServerNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModernHTTP(t)
		m.answers(needy)
		s := m.settings()
		s.CallTimeout = time.Second
		p := newPool(t, s)
		slow := asked("a")
		slow.Ask = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
			if method == "elicitation/create" && string(params) != `{"message":"who?","big":12345678901234567890}` {
				t.Errorf("asked %s", params)
			}
			time.Sleep(time.Minute) // the clock of the call stands still
			return json.RawMessage(`{"of":"` + method + `"}`), nil
		}
		got := mustCallAs(t, p, slow, "ask", `{"n":12345678901234567890}`)
		var state string
		_ = json.Unmarshal(jsonMember(json.RawMessage(got), "got"), &state)
		if string(jsonMember(json.RawMessage(state), "who")) != `{"of":"elicitation/create"}` || string(jsonMember(json.RawMessage(state), "where")) != `{"of":"roots/list"}` {
			t.Errorf("the server got %s", state)
		}
		if !strings.Contains(got, `"arguments":{"n":12345678901234567890},"responses":"false"`) {
			t.Errorf("result = %s", got)
		}

		_, err := callAs(t, p, nil, "ask", `{}`)
		wantError(t, err, "s", errNoClient)
		declines := asked("b")
		declines.Ask = func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return nil, &tool.RPCError{Code: -1, Message: "no"}
		}
		var rpc *tool.RPCError
		if _, err := callAs(t, p, declines, "ask", `{}`); !errors.As(err, &rpc) || rpc.Code != -1 {
			t.Errorf("a client that fails: %v", err)
		}
		m.answers(func(string, json.RawMessage) string {
			return `{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call"}}}`
		})
		_, err = callAs(t, p, asked("c"), "ask", `{}`)
		wantError(t, err, "s", nil)
		var rounds atomic.Int32
		m.answers(func(string, json.RawMessage) string {
			rounds.Add(1)
			return `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"x"}`
		})
		_, err = callAs(t, p, asked("d"), "ask", `{}`)
		if wantError(t, err, "s", errEndless); rounds.Load() != maxRepeats {
			t.Errorf("it was called %d times, want %d", rounds.Load(), maxRepeats)
		}
	})
}

// Its clients know what they opened by an ID, and those of 2026-07-28 do not.
func TestAURLHasAnIDForALegacyClient(t *testing.T) {
	m := newModernHTTP(t)
	p := newPool(t, m.settings())
	for params, fresh := range map[string]bool{
		`{"mode":"url","url":"https://example.com/x","x":1.0`:                           true,
		`{"mode":"url","url":"https://example.com/x","elicitationId":"its own","x":1.0`: false,
		`{"mode":"form","message":"who?"`:                                               false,
	} {
		m.answers(func(_ string, sent json.RawMessage) string {
			if jsonMember(sent, "inputResponses") != nil {
				return `{"resultType":"complete"}`
			}
			return `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":` + params + `}}}}`
		})
		var got string
		client := asked("a")
		client.Ask = func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
			got = string(params)
			return json.RawMessage(`{"action":"accept"}`), nil
		}
		mustCallAs(t, p, client, "ask", `{}`)
		var id string
		_ = json.Unmarshal(jsonMember(json.RawMessage(got), "elicitationId"), &id)
		want := params + `}`
		if fresh {
			want = `{"elicitationId":"` + id + `",` + params[1:] + `}`
		}
		if got != want || fresh && len(id) < 16 {
			t.Errorf("asked %s, want %s", got, want)
		}
	}
}

func TestWhatAModernServerIsToldOfAClient(t *testing.T) {
	const declared = `{"x":1.0,"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{},"other":{"y":1.0}}}`
	for _, test := range []struct {
		client *tool.Client
		want   string
	}{
		{nil, `{}`},
		{&tool.Client{}, `{}`},
		{&tool.Client{Capabilities: json.RawMessage(declared), Modern: true}, `{"x":1.0,"extensions":{"io.modelcontextprotocol/tasks":{},"other":{"y":1.0}}}`},
		{&tool.Client{Capabilities: json.RawMessage(declared)}, `{"x":1.0,"extensions":{"other":{"y":1.0}}}`},
	} {
		if got := string(abilitiesOf(test.client)); got != test.want {
			t.Errorf("%+v: %s, want %s", test.client, got, test.want)
		}
	}
}

func TestAModernClientAnswersByCallingAgain(t *testing.T) {
	m := newModernHTTP(t)
	m.answers(needy)
	p := newPool(t, m.settings())
	again := func(sealed json.RawMessage, on *tool.Def) (string, error) {
		params := fmt.Sprintf(`{"name":"x","arguments":{"a":1.0},"inputResponses":{"who":{"big":12345678901234567890}},"requestState":%s}`, sealed)
		result, err := p.Call(t.Context(), on, &tool.Call{Client: modern("b"), Params: json.RawMessage(params), Arguments: json.RawMessage(`{"a":1.0}`)})
		return string(result), err
	}
	first := mustCallAs(t, p, modern("a"), "ask", `{}`)
	sealed := jsonMember(json.RawMessage(first), "requestState")
	if strings.Contains(first, "state <1>") || !strings.Contains(first, `"x":1.0`) || !strings.Contains(first, `"big":12345678901234567890`) {
		t.Fatalf("result = %s", first)
	}
	second, err := again(sealed, def("s", "ask"))
	if err != nil || !strings.Contains(second, `"input_required"`) {
		t.Fatalf("result = %s, %v", second, err)
	}
	third, err := again(jsonMember(json.RawMessage(second), "requestState"), def("s", "ask"))
	if err != nil || !strings.Contains(third, `{\"who\":{\"big\":12345678901234567890}}`) || !strings.Contains(third, `"arguments":{"a":1.0}`) {
		t.Errorf("result = %s, %v", third, err)
	}

	damaged := append([]byte(nil), sealed...)
	damaged[len(damaged)/2] ^= 1
	elsewhere := newSealer([32]byte{1}).seal(state{Server: "s", Name: "ask"})
	for name, test := range map[string]struct {
		state json.RawMessage
		def   *tool.Def
	}{
		"damaged":           {damaged, def("s", "ask")},
		"of another tool":   {sealed, def("s", "other")},
		"of another kind":   {sealed, ofKind(tool.KindPrompt, "ask")},
		"made up":           {json.RawMessage(`"state <1>"`), def("s", "ask")},
		"not a text":        {json.RawMessage(`7`), def("s", "ask")},
		"empty":             {json.RawMessage(`""`), def("s", "ask")},
		"of another's pool": {json.RawMessage(`"` + elsewhere + `"`), def("s", "ask")},
	} {
		_, err := again(test.state, test.def)
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams || !strings.Contains(rpc.Message, "is not one of this "+test.def.ID.Kind.String()) {
			t.Errorf("a state that is %s: %v", name, err)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	type update struct{ uri, params string }
	m := newModernHTTP(t)
	for name, s := range map[string]Settings{"legacy": newAsker(t, "asker"), "modern": m.settings()} {
		t.Run(name, func(t *testing.T) {
			updates := make(chan update, 10)
			p := newPoolWith(t, nil, Events{Updated: func(_, uri string, params json.RawMessage) { updates <- update{uri, string(params)} }}, s)
			for _, uri := range []string{"memo://b", "memo://a", "memo://a"} {
				must.Do(t, p.Subscribe(t.Context(), "s", uri))
			}
			if name == "modern" {
				if got := m.filter(); !strings.HasSuffix(got, `"resourceSubscriptions":["memo://a","memo://b"]}`) {
					t.Errorf("filter = %s", got)
				}
				m.say("notifications/resources/updated", `,"uri":"memo://a","x":1.0`)
			} else {
				mustCallAs(t, p, nil, "say", `{"method":"notifications/resources/updated","params":{"uri":"memo://a","x":1.0}}`)
			}
			if got := <-updates; got != (update{"memo://a", `{"uri":"memo://a","x":1.0}`}) {
				t.Errorf("update = %+v", got)
			}
			if err := p.Unsubscribe(t.Context(), "s", "memo://b"); err != nil {
				t.Error(err)
			}
			switch name {
			case "modern":
				await.True(t, func() bool { return strings.HasSuffix(m.filter(), `"resourceSubscriptions":["memo://a"]}`) })
			default:
				seen := mustCallAs(t, p, nil, "seen", `{}`)
				if strings.Count(seen, `"resources/subscribe"`) != 2 || strings.Count(seen, `"resources/unsubscribe"`) != 1 {
					t.Errorf("the server saw %s", seen)
				}
			}
			// They outlive the connection.
			c := must.Get(p.now.Load().byName["s"].main.connect(t.Context()))(t)
			c.Fail(ErrClosed)
			await.True(t, func() bool {
				_, _ = callAs(t, p, nil, "echo", `{}`)
				if name == "modern" {
					return strings.Contains(m.filter(), "memo://a")
				}
				return strings.Count(mustCallAs(t, p, nil, "seen", `{}`), `"uri":"memo://a"`) == 1
			})
		})
	}
	err := newPool(t, lines(t, "raw", "raw")).Subscribe(t.Context(), "raw", "memo://a")
	var rpc *tool.RPCError
	if !errors.As(err, &rpc) || rpc.Code != tool.CodeMethodNotFound {
		t.Errorf("a server without subscriptions: %v", err)
	}
}

func TestLogLevels(t *testing.T) {
	logged := make(chan string, 10)
	p := newPoolWith(t, nil, Events{Log: func(server, client string, _ bool, params json.RawMessage) {
		logged <- server + client + string(params)
	}}, newAsker(t, "asker"))
	levels := func() string {
		var got []string
		for _, one := range strings.Split(mustCallAs(t, p, nil, "seen", `{}`), `"method":"logging/setLevel","params":`)[1:] {
			got = append(got, one[:strings.Index(one, "}")+1])
		}
		return strings.Join(got, " ")
	}
	p.SetLogLevel("warning")
	await.True(t, func() bool { return levels() == `{"level":"warning"}` })
	as := func(level string) *tool.Client { return &tool.Client{Key: level, Modern: true, LogLevel: level} }
	mustCallAs(t, p, as("error"), "echo", `{}`)
	mustCallAs(t, p, as(""), "echo", `{}`)
	if got := levels(); got != `{"level":"warning"}` {
		t.Errorf("levels = %s, want only more verbose ones", got)
	}
	mustCallAs(t, p, as("debug"), "echo", `{}`)
	p.SetLogLevel("info")
	mustCallAs(t, p, as("notice"), "echo", `{}`)
	if got := levels(); got != `{"level":"warning"} {"level":"debug"}` {
		t.Errorf("levels = %s", got)
	}

	p = newPool(t, newAsker(t, "asker")) // when nobody wants a level any more, the usual one is told
	mustCallAs(t, p, nil, "echo", `{}`)
	for _, level := range []string{"debug", "", "", "error"} {
		p.SetLogLevel(level)
	}
	if got := levels(); got != `{"level":"debug"} {"level":"info"} {"level":"error"}` {
		t.Errorf("levels = %s", got)
	}

	alone := newAsker(t, "asker")
	alone.Isolate = IsolateAlways
	p = newPool(t, alone)
	p.SetLogLevel("notice")
	for _, key := range []string{"a", "b", "c"} { // each over a connection of its own
		if got := mustCallAs(t, p, asked(key), "seen", `{}`); !strings.Contains(got, `"method":"logging/setLevel","params":{"level":"notice"}`) {
			t.Errorf("the first call of %s came before the level: %s", key, got)
		}
	}

	m := newModernHTTP(t)
	m.answers(func(_ string, params json.RawMessage) string {
		level := strings.Trim(string(jsonMember(jsonMember(params, "_meta"), "io.modelcontextprotocol/logLevel")), `"`)
		return `{"level":"` + level + `"}`
	})
	q := newPool(t, m.settings())
	for _, test := range []struct {
		client *tool.Client
		want   string
	}{{as("debug"), "debug"}, {as(""), ""}, {&tool.Client{Key: "l", LogLevel: "error"}, "error"}, {&tool.Client{Key: "l"}, "info"}, {nil, ""}} {
		got, err := q.Call(t.Context(), def("s", "ask"), &tool.Call{Client: test.client, Notify: func(string, json.RawMessage) {}})
		if err != nil || string(got) != `{"level":"`+test.want+`"}` {
			t.Errorf("client %+v: %s, %v", test.client, got, err)
		}
	}
}
