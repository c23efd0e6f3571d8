package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/pipes"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// stranger is a server over HTTP that answers as a test says. say writes the answer to a request.
type stranger struct {
	answer func(s *stranger, w http.ResponseWriter, r *http.Request, m strangerMessage) bool // false: as usual
	stream func(w http.ResponseWriter, r *http.Request)                                      // answers GET; nil: status 405

	mu       sync.Mutex
	sessions int      // the last session; requests of earlier ones are refused by answer alone
	asked    []string // methods, in order
}

type strangerMessage struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	gone   bool // the request is of an earlier session
}

func newStranger(t testing.TB, s *stranger) Settings {
	server := pipes.NewServer(t, s)
	return Settings{Name: "s", URL: server.URL, Protocol: ProtocolLegacy, ConnectTimeout: time.Minute, CallTimeout: time.Minute}
}

func say(w http.ResponseWriter, m strangerMessage, member, value string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%q:%s}`, m.ID, member, value)
}

func (s *stranger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet && s.stream != nil:
		s.stream(w, r)
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m strangerMessage
	_ = json.Unmarshal(body, &m)
	s.mu.Lock()
	m.gone = m.Method != "initialize" && r.Header.Get("Mcp-Session-Id") != fmt.Sprint(s.sessions)
	if m.ID != nil {
		s.asked = append(s.asked, m.Method)
	}
	s.mu.Unlock()
	if s.answer != nil && s.answer(s, w, r, m) {
		return
	}
	switch {
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Method == "initialize":
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(s.sessions))
		say(w, m, "result", `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
	case m.Method == "tools/list":
		say(w, m, "result", `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)
	default:
		say(w, m, "result", `{"content":[]}`)
	}
}

func (s *stranger) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
}

func (s *stranger) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, asked := range s.asked {
		if asked == method {
			n++
		}
	}
	return n
}

// A lost session is known by the rule that a ping is refused as the call was, not by the words of the refusal.
func TestALostSessionIsRenewedHoweverItIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		kind    string // "" for JSON
		body    string // %s is the ID
		refused string // what is refused: "" for requests of the old session, else calls or all
		renewed bool
	}{
		"404":                         {404, "text/plain", "no such session", "", true},
		"404, nothing":                {404, "", "", "", true},
		"404, the ID echoed":          {404, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`, "", true},
		"404, no ID":                  {404, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`, "", true},
		"404, another ID":             {404, "", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`, "", true},
		"400, the ID echoed":          {400, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"Bad Request: Server not initialized"}}`, "", true},
		"400, no ID":                  {400, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}`, "", true},
		"400, text":                   {400, "text/plain", "Invalid session ID", "", true},
		"403, text":                   {403, "text/plain", "unknown session", "", true},
		"409":                         {409, "application/problem+json", `{"title":"conflict"}`, "", true},
		"410":                         {410, "text/plain", "gone", "", true},
		"412":                         {412, "text/html", "<p>Precondition failed</p>", "", true},
		"422":                         {422, "", `{"detail":"session expired"}`, "", true},
		"440":                         {440, "text/plain", "login time-out", "", true},
		"500, unknown session":        {500, "", `{"error":"no transport for this session"}`, "", true},
		"500, JSON-RPC":               {500, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"Cannot read properties of undefined"}}`, "", true},
		"503, unknown session":        {503, "text/plain", "unknown session", "", true},
		"200, -32001":                 {200, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32001,"message":"Session not found"}}`, "", true},
		"200, -32600":                 {200, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"initialize first"}}`, "", true},
		"200, events":                 {200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32000,\"message\":\"who are you\"}}\n\n", "", true},
		"no such method":              {404, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown method"}}`, "all", false},
		"the call is refused":         {400, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid session argument"}}`, "calls", false},
		"the call fails":              {200, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"out of tea"}}`, "calls", false},
		"pings are unknown, too":      {200, "", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"cannot METHOD"}}`, "all", false},
		"the call fails with 500":     {500, "text/plain", "out of tea", "calls", false},
		"the server is busy":          {503, "text/plain", "Retry-After: session limit", "all", false},
		"the client is too fast":      {429, "text/plain", "slow down", "all", false},
		"a gateway lost the call":     {502, "text/html", "<h1>Bad gateway</h1>", "all but lists", false},
		"the server wants a new word": {401, "text/plain", "session expired", "all", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stranger{}
				var forgot bool
				s.answer = func(s *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
					refuses := m.gone
					switch {
					case !forgot || m.ID == nil || m.Method == "initialize":
						return false
					case test.refused == "calls":
						refuses = m.Method == "tools/call"
					case test.refused != "":
						refuses = true
					}
					if refuses {
						kind := test.kind
						if kind == "" {
							kind = "application/json"
						}
						w.Header().Set("Content-Type", kind)
						if strings.HasPrefix(test.body, "Retry-After") {
							w.Header().Set("Retry-After", "30")
						}
						w.WriteHeader(test.status)
						_, _ = io.WriteString(w, strings.NewReplacer("%s", string(m.ID), "METHOD", m.Method).Replace(test.body))
					}
					return refuses
				}
				p := newPool(t, newStranger(t, s))
				mustAsk(t, p, "s", "a", "content")
				forgot = true
				if test.refused == "" {
					s.forget()
				}
				_, err := ask(t, p, "s", "a")
				if calls := s.count("tools/call"); (err == nil) != test.renewed || calls != map[bool]int{true: 3, false: 2}[test.renewed] {
					t.Errorf("%d calls, %v", calls, err)
				}
			})
		})
	}
}

// A server that refuses our version and names others gets a second handshake, with the newest of them.
func TestAVersionThatAServerNamesIsTaken(t *testing.T) {
	const rpc = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05","2025-03-26"],"requested":"2025-11-25"}}}`
	for name, test := range map[string]struct {
		status int
		kind   string
		body   string // of the refusal; %s is the ID
		want   string // version of the second handshake; "" for no second one
	}{
		"data":                    {200, "application/json", rpc, "2025-03-26"},
		"data, 400":               {400, "application/json", rpc, "2025-03-26"},
		"data, 400 without an ID": {400, "application/json", strings.Replace(rpc, "%s", "null", 1), "2025-03-26"},
		"events":                  {200, "text/event-stream", "data: " + rpc + "\n\n", "2025-03-26"},
		"words":                   {200, "application/json", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"protocol 2025-11-25 is too new, use 2025-06-18 or 2024-11-05"}}`, "2025-06-18"},
		"text":                    {400, "text/plain", "Supported versions: 2024-10-07, 2024-11-05", "2024-11-05"},
		"the oldest":              {400, "text/plain", "we speak 2024-10-07", "2024-10-07"},
		"ours alone":              {400, "text/plain", "no 2025-11-25 here", ""},
		"a newer one alone":       {400, "text/plain", "2027-01-01 only", ""},
		"none":                    {400, "text/plain", "no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var versions []string
				s := &stranger{answer: func(s *stranger, w http.ResponseWriter, r *http.Request, m strangerMessage) bool {
					if m.Method != "initialize" {
						return false
					}
					version := rawjson.Text(rawjson.Member(m.Params, "protocolVersion"))
					versions = append(versions, version)
					if version == "2025-11-25" {
						w.Header().Set("Content-Type", test.kind)
						w.WriteHeader(test.status)
						_, _ = io.WriteString(w, strings.Replace(test.body, "%s", string(m.ID), 1))
						return true
					}
					say(w, m, "result", `{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`)
					return true
				}}
				settings := newStranger(t, s)
				settings.Transport = TransportHTTP
				change := newPool(t, settings).Refresh(t.Context(), "s")
				want := "2025-11-25"
				if test.want != "" {
					want += " " + test.want
				}
				if got := strings.Join(versions, " "); got != want || (change.Err == nil) != (test.want != "") {
					t.Errorf("handshakes with %s, want %s; %v", got, want, change.Err)
				}
			})
		})
	}
}

// An answer with an old version is taken as it is.
func TestAnAnswerWithAnOldVersionIsTaken(t *testing.T) {
	for version, ok := range map[string]bool{"2024-10-07": true, "2025-06-18": true, "2025-11-25": true, "2027-01-01": false, "1.0": false, "": false} {
		s := &stranger{answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
			if m.Method == "initialize" {
				say(w, m, "result", `{"protocolVersion":"`+version+`","capabilities":{"tools":{}}}`)
			}
			return m.Method == "initialize"
		}}
		if change := newPool(t, newStranger(t, s)).Refresh(t.Context(), "s"); (change.Err == nil) != ok {
			t.Errorf("version %q: %v", version, change.Err)
		}
	}
}

// Progress of a server keeps a call alive, whether or not the client wants to hear of it.
func TestProgressKeepsACallAliveThatAskedForNone(t *testing.T) {
	for name, params := range map[string]string{"no _meta": "", "_meta": `{"name":"a","_meta":{"x":1}}`, "a token": `{"name":"a","_meta":{"progressToken":7}}`} {
		for _, listens := range []bool{true, false} {
			t.Run(fmt.Sprint(name, listens), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &stranger{answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
						if m.Method != "tools/call" {
							return false
						}
						w.Header().Set("Content-Type", "text/event-stream")
						for range 5 {
							time.Sleep(40 * time.Second)
							fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":1}}\n\n", rawjson.Member(rawjson.Member(m.Params, "_meta"), "progressToken"))
							_ = http.NewResponseController(w).Flush()
						}
						fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n\n", m.ID)
						return true
					}}
					settings := newStranger(t, s)
					settings.CallTimeoutTotal = time.Hour
					p := newPool(t, settings)
					heard := 0
					call := &tool.Call{Arguments: json.RawMessage(`{}`), Params: json.RawMessage(params)}
					if listens {
						call.Notify = func(string, json.RawMessage) { heard++ }
					}
					if _, err := p.Call(t.Context(), def("s", "a"), call); err != nil {
						t.Error(err)
					}
					if want := map[bool]int{true: 5}[listens && name == "a token"]; heard != want {
						t.Errorf("heard %d notifications, want %d", heard, want)
					}
				})
			})
		}
	}
}

// Servers drop what they send outside of a call while there is no stream for it: the first request after the handshake
// waits for the stream, at most two seconds.
func TestTheFirstRequestWaitsForTheStream(t *testing.T) {
	standing := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		stream func(w http.ResponseWriter, r *http.Request)
		after  time.Duration // when its headers come, two seconds at most
	}{
		"a stream":           {standing, 0},
		"a slow stream":      {standing, 300 * time.Millisecond},
		"no stream":          {nil, 0},
		"no such path":       {http.NotFound, 0},
		"a broken server":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 0},
		"headers never come": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stranger{stream: test.stream}
				if test.stream != nil {
					s.stream = func(w http.ResponseWriter, r *http.Request) { time.Sleep(test.after); test.stream(w, r) }
				}
				p := newPool(t, newStranger(t, s))
				before := time.Now()
				mustAsk(t, p, "s", "a", "content")
				if took := time.Since(before); took != test.after {
					t.Errorf("the first call took %s, want %s", took, test.after)
				}
				before = time.Now()
				if mustAsk(t, p, "s", "a", "content"); time.Since(before) != 0 {
					t.Errorf("the second call took %s", time.Since(before))
				}
			})
		})
	}
}

// Lists are read again without a notification as often as the server lets them be kept, else every few minutes where
// it does not say when they change.
func TestListsAge(t *testing.T) {
	standing := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for name, test := range map[string]struct {
		tells, streams bool
		hint           string // of a 2026-07-28 server; "" for a legacy server
		least, most    int    // lists in an hour
	}{
		"it tells nothing":             {false, true, "", 10, 13},
		"it tells":                     {true, true, "", 1, 1},
		"it has no stream for telling": {true, false, "", 10, 13},
		"ten minutes":                  {false, false, `"ttlMs":600000`, 6, 7},
		"an hour and a half":           {false, false, `"ttlMs":5400000`, 1, 1},
		"no time":                      {false, false, `"ttlMs":0`, 10, 13},
		"a millisecond":                {false, false, `"ttlMs":1`, 550, 721},
		"no number":                    {false, false, `"ttlMs":"1"`, 10, 13},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stranger{answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
					capabilities := `{"tools":{"listChanged":` + fmt.Sprint(test.tells) + `}}`
					switch {
					case m.Method == "server/discover" && test.hint != "":
						say(w, m, "result", `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+`}`)
					case m.Method == "initialize":
						w.Header().Set("Mcp-Session-Id", "0")
						say(w, m, "result", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`}`)
					case m.Method == "tools/list" && test.hint != "":
						say(w, m, "result", `{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object"}}],`+test.hint+`}`)
					default:
						return false
					}
					return true
				}}
				if test.streams {
					s.stream = standing
				}
				settings := newStranger(t, s)
				settings.Protocol = ""
				if test.hint == "" {
					settings.Protocol = ProtocolLegacy
				}
				watched(t, newPool(t, settings))
				time.Sleep(time.Hour)
				if n := s.count("tools/list"); n < test.least || n > test.most {
					t.Errorf("%d lists in an hour, want %d to %d", n, test.least, test.most)
				}
			})
		})
	}
}

// A server that says with each list that its lists have changed is listed at growing pauses; one that changes now and
// then is listed at once.
func TestListsThatAlwaysChangeAreReadAtGrowingPauses(t *testing.T) {
	for name, test := range map[string]struct {
		every       time.Duration // how often it says so; 0: with each list
		least, most int           // lists in an hour
	}{
		"with each list":      {0, 60, 75},
		"all the time":        {100 * time.Millisecond, 60, 90},
		"each second":         {time.Second, 60, 3600},
		"every ten seconds":   {10 * time.Second, 359, 362},
		"every three minutes": {3 * time.Minute, 20, 22},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := make(chan struct{}, 1)
				s := &stranger{
					answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
						if m.Method == "initialize" {
							w.Header().Set("Mcp-Session-Id", "0")
							say(w, m, "result", `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}`)
						}
						if m.Method == "tools/list" && test.every == 0 {
							wake(told)
						}
						return m.Method == "initialize"
					},
					stream: func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						_ = http.NewResponseController(w).Flush()
						tick := time.NewTicker(cmp.Or(test.every, 2*time.Hour))
						defer tick.Stop()
						for {
							select {
							case <-r.Context().Done():
								return
							case <-tick.C:
							case <-told:
							}
							_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
							_ = http.NewResponseController(w).Flush()
						}
					},
				}
				watched(t, newPool(t, newStranger(t, s)))
				time.Sleep(time.Hour)
				if n := s.count("tools/list"); n < test.least || n > test.most {
					t.Errorf("%d lists in an hour, want %d to %d", n, test.least, test.most)
				}
			})
		})
	}
}

// Of a list that does not end what came is served.
func TestAListThatDoesNotEndIsServed(t *testing.T) {
	for name, test := range map[string]struct {
		page        func(cursor string) string // members of the result
		tools, asks int
	}{
		"the cursor repeats":              {func(string) string { return `"tools":[{"name":"a"}],"nextCursor":"x"` }, 1, 2},
		"the cursor repeats, empty pages": {func(string) string { return `"tools":[],"nextCursor":"x"` }, 0, 2},
		"the page repeats":                {func(c string) string { return `"tools":[{"name":"a"}],"nextCursor":"` + c + `x"` }, 1, 2},
		"two cursors take turns": {func(c string) string {
			return `"tools":[{"name":"a` + c + `"}],"nextCursor":"` + map[string]string{"": "x", "x": "y", "y": "x"}[c] + `"`
		}, 3, 3},
		"empty pages for ever": {func(c string) string {
			return `"tools":[],"nextCursor":"` + fmt.Sprint(len(c)) + c[:min(len(c), 40)] + `x"`
		}, 0, 0},
		"it ends": {func(c string) string {
			return `"tools":[{"name":"a` + c + `"}]` + map[string]string{"": `,"nextCursor":"x"`}[c]
		}, 2, 2},
		"an empty cursor": {func(string) string { return `"tools":[{"name":"a"}],"nextCursor":""` }, 1, 1},
	} {
		s := &stranger{answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
			if m.Method == "tools/list" {
				say(w, m, "result", `{`+test.page(rawjson.Text(rawjson.Member(m.Params, "cursor")))+`}`)
			}
			return m.Method == "tools/list"
		}}
		change := newPool(t, newStranger(t, s)).Refresh(t.Context(), "s")
		if n := s.count("tools/list"); change.Err != nil || len(change.Defs) != test.tools || test.asks > 0 && n != test.asks {
			t.Errorf("%s: %d tools after %d requests, %v", name, len(change.Defs), n, change.Err)
		}
		if faults := change.Faults.Described; (len(faults) > 0 && faults[len(faults)-1].Name == "nextCursor") == (strings.HasPrefix(name, "it ends") || name == "an empty cursor") {
			t.Errorf("%s: faults %v", name, faults)
		}
	}
}

// A level that only a 2026-07-28 client wanted is lowered when its last call is a minute ago: such a client does not say
// that it leaves.
func TestALevelThatNobodyWantsIsLowered(t *testing.T) {
	for name, test := range map[string]struct {
		legacy string
		calls  map[time.Duration]string // levels of calls, by when they are made
		want   string                   // levels that the server is told, and when
	}{
		"one call":                   {"", map[time.Duration]string{0: "debug"}, "0s debug, 1m0s info"},
		"calls go on":                {"", map[time.Duration]string{0: "debug", 40 * time.Second: "debug"}, "0s debug, 1m40s info"},
		"less verbose calls go on":   {"", map[time.Duration]string{0: "debug", 40 * time.Second: "error"}, "0s debug, 1m0s info"},
		"another minute":             {"", map[time.Duration]string{0: "debug", 5 * time.Minute: "notice"}, "0s debug, 1m0s info, 5m0s notice, 6m0s info"},
		"more verbose":               {"", map[time.Duration]string{0: "error", 40 * time.Second: "debug"}, "0s error, 40s debug, 1m40s info"},
		"a legacy client wants less": {"warning", map[time.Duration]string{time.Second: "debug"}, "0s warning, 1s debug, 1m1s warning"},
		"a legacy client wants more": {"debug", map[time.Duration]string{time.Second: "info"}, "0s debug"},
		"an unknown level":           {"", map[time.Duration]string{0: "loud"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex // guards told
				var told []string
				began := time.Now()
				p := newPool(t, newStranger(t, &stranger{answer: func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
					switch m.Method {
					case "initialize":
						say(w, m, "result", `{"protocolVersion":"2025-06-18","capabilities":{"logging":{},"tools":{}}}`)
					case "logging/setLevel":
						mu.Lock()
						told = append(told, time.Since(began).String()+" "+rawjson.Text(rawjson.Member(m.Params, "level")))
						mu.Unlock()
						fallthrough
					default:
						return false
					}
					return true
				}}))
				mustAsk(t, p, "s", "a", "content")
				p.SetLogLevel(test.legacy)
				for _, at := range slices.Sorted(maps.Keys(test.calls)) {
					time.Sleep(time.Until(began.Add(at)))
					mustCallAs(t, p, &tool.Client{Modern: true, LogLevel: test.calls[at]}, "a", `{}`)
				}
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if got := strings.Join(told, ", "); got != test.want {
					t.Errorf("the server was told %s; want %s", got, test.want)
				}
			})
		})
	}
}

// Lists are read again for a name that is not in them, and for clients that list a server that announces no changes;
// nobody waits where nothing would come.
func TestListsAreRenewed(t *testing.T) {
	for name, test := range map[string]struct {
		tells       bool
		named       bool
		times       int
		pause       time.Duration // before each
		least, most int           // further lists
		took        time.Duration // at most, without the pauses
	}{
		"a client lists":                         {false, false, 1, time.Minute, 1, 1, 2 * debounce},
		"a client lists at once":                 {false, false, 1, 0, 0, 0, 0},
		"clients list all the time":              {false, false, 100, 100 * time.Millisecond, 8, 11, time.Second},
		"a client lists, but the server tells":   {true, false, 1, time.Minute, 0, 0, 0},
		"an unknown name":                        {true, true, 1, time.Minute, 1, 1, 2 * debounce},
		"an unknown name at once":                {true, true, 1, 0, 1, 1, 2 * debounce},
		"unknown names all the time":             {true, true, 1000, 0, 5, 10, 3 * time.Second},
		"an unknown name of a server that fails": {true, true, 1, 0, 1, 1, time.Second},
		"an unknown name of a faulty server":     {true, true, 1, time.Minute, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stranger{stream: func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}}
				method := "tools/list"
				s.answer = func(_ *stranger, w http.ResponseWriter, _ *http.Request, m strangerMessage) bool {
					if m.Method == "initialize" && strings.HasSuffix(name, "fails") {
						say(w, m, "error", `{"code":-32000,"message":"the database is being migrated"}`)
						return true
					}
					if m.Method == "initialize" {
						say(w, m, "result", fmt.Sprintf(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":%t}}}`, test.tells))
					}
					return m.Method == "initialize"
				}
				settings := newStranger(t, s)
				switch {
				case strings.HasSuffix(name, "fails"):
					method = "initialize"
				case strings.HasSuffix(name, "faulty server"):
					settings.Fault = "it has no URL"
				}
				p := newPool(t, settings)
				changes, _ := watched(t, p)
				go func() {
					for {
						select {
						case change := <-changes:
							change.Served()
						case <-t.Context().Done():
							return
						}
					}
				}()
				synctest.Wait()
				before, took := s.count(method), time.Duration(0)
				for range test.times {
					time.Sleep(test.pause)
					began := time.Now()
					p.Renew(t.Context(), []string{"s"}, map[bool][]string{true: {"s"}}[test.named])
					took += time.Since(began)
				}
				if n := s.count(method) - before; n < test.least || n > test.most || took > test.took {
					t.Errorf("%d lists in %s, want %d to %d in %s", n, took, test.least, test.most, test.took)
				}
			})
		})
	}
}
