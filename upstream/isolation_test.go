package upstream

import (
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

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"toolfinch/internal/authserver"
	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/tool"
	"toolfinch/upstream/conn"
	"toolfinch/upstream/login"
)

func TestServerInfoIsKeptAsItWasSent(t *testing.T) {
	p := newPool(t, scripted(t, "s", func(p *peer) { p.answer(p.read(), `{"tools":[]}`) }))
	change := p.Refresh(t.Context(), "s")
	if want := `{"name":"script","version":"1","more":9007199254740993}`; change.Err != nil || string(change.Info) != want {
		t.Errorf("info = %s, %v; want %s", change.Info, change.Err, want)
	}
}

func TestTheLastWordOfAChildCounts(t *testing.T) {
	p := newPool(t, scripted(t, "s", func(p *peer) { p.answer(p.read(), `{"last":true}`) }))
	for range 10 {
		c := must.Get(p.now.Load().byName["s"].main.connect(t.Context()))(t)
		mustAsk(t, p, "s", "any", `{"last":true}`)
		await.Value(t, c.Service.Done()) // after Life, and connect looks at Service
	}
}

// Such a child can never answer again, though it lives.
func TestAChildThatClosesItsInputOrOutputIsReplaced(t *testing.T) {
	for name, which := range map[string]int{"input": 0, "output": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Settings{}
				s = scripted(t, "s", func(p *peer) {
					if started(s) == 1 {
						_ = p.ends[which].Close()
						<-p.end.Done()
						p.exit(143)
					}
					p.answer(p.read(), `{"second":true}`)
				})
				p := newPool(t, s)
				c := must.Get(p.now.Load().byName["s"].main.connect(t.Context()))(t)
				if name == "output" {
					<-c.Service.Done() // after Life, and a call looks at Service
				}
				mustAsk(t, p, "s", "any", `{"second":true}`)
			})
		})
	}
}

// A server that speaks only the 2026-07-28 era and needs longer to start than
// the probe waits is not taken for one that speaks none.
func TestASlowModernServerIsNotMisjudged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Settings{}
		s = played(t, "s", &stage{script: func(p *peer) {
			discover := p.read()
			if started(s) == 1 {
				for m := p.read(); ; m = p.read() {
					if m.Method == "initialize" {
						p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, m.ID)
					}
				}
			}
			p.answer(discover, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"late","version":"1"}}}`)
			p.answer(p.read(), `{"tools":[{"name":"a"}]}`)
		}})
		change := newPool(t, s).Refresh(t.Context(), "s")
		if change.Err != nil || change.Era != EraModern || len(change.Defs) != 1 || string(change.Info) != `{"name":"late","version":"1"}` {
			t.Errorf("change = %+v", change)
		}
	})
}

func TestAClientThatDoesNotReadHoldsUpNobodyElse(t *testing.T) {
	p := newPool(t, lines(t, "s", "raw"))
	blocked, goOn := make(chan struct{}), make(chan struct{})
	slow := make(chan error, 1)
	go func() {
		var once sync.Once
		_, err := p.Call(t.Context(), def("s", "progress"), &tool.Call{
			Params: json.RawMessage(`{"_meta":{"progressToken":1}}`),
			Notify: func(string, json.RawMessage) {
				once.Do(func() { close(blocked) })
				<-goOn
			},
		})
		slow <- err
	}()
	<-blocked
	mustAsk(t, p, "s", "raw", "hologram")
	close(goOn)
	if err := <-slow; err != nil {
		t.Errorf("the call of the slow client: %v", err)
	}
}

// plain is an HTTP upstream of the legacy era without any library: calls gets
// each tools/call, by the tool's name.
type plainHTTP struct {
	*httptest.Server
	calls     map[string]func(w http.ResponseWriter, id string, params json.RawMessage)
	cancelled chan string
	answers   chan string // to what it asked; nil when nobody wants them

	mu      sync.Mutex
	session int
	lists   int
}

func newPlainHTTP(t testing.TB) *plainHTTP {
	p := &plainHTTP{calls: map[string]func(http.ResponseWriter, string, json.RawMessage){}, cancelled: make(chan string, 10)}
	p.Server = pipes.NewServer(t, p)
	return p
}

// result is a handler of calls that answers with it.
func result(result string) func(http.ResponseWriter, string, json.RawMessage) {
	return func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	}
}

// forget ends all sessions, as a restart does.
func (p *plainHTTP) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session++
}

func (p *plainHTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	_ = json.Unmarshal(body, &m)
	p.mu.Lock()
	session := fmt.Sprint(p.session)
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if m.Method != "initialize" && r.Header.Get("Mcp-Session-Id") != session {
		// As the official TypeScript server example does it: 400, no ID.
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		return
	}
	switch m.Method {
	case "":
		w.WriteHeader(http.StatusAccepted)
		p.answers <- string(body)
	case "initialize":
		w.Header().Set("Mcp-Session-Id", session)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"plain","version":"1"}}}`, m.ID)
	case "tools/list":
		p.mu.Lock()
		p.lists++
		p.mu.Unlock()
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, m.ID)
	case "tools/call":
		var name string
		_ = json.Unmarshal(jsonMember(m.Params, "name"), &name)
		p.calls[name](w, string(m.ID), m.Params)
	case "notifications/cancelled":
		select {
		case p.cancelled <- string(jsonMember(m.Params, "requestId")):
		default: // nobody wants to know of that many
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

func (p *plainHTTP) settings() Settings {
	return Settings{Name: "s", URL: p.URL, Protocol: ProtocolLegacy, ConnectTimeout: await.Bound, CallTimeout: await.Bound}
}

func TestHTTPKeepsBytesAsStdioDoes(t *testing.T) {
	u := newPlainHTTP(t)
	u.calls["echo"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%q,"result":{"params":%s}}`, id, params)
	}
	u.calls["stream"] = func(w http.ResponseWriter, id string, params json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
		token := jsonMember(jsonMember(params, "_meta"), "progressToken")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":9007199254740993}}\n\n", token)
		fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":%s}\n\n", id, strange)
	}
	u.calls["fail"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-31999,"message":"<no>","data":9007199254740993,"more":1}}`, id)
	}
	p := newPool(t, u.settings())
	arguments := `{"n":123456789012345678901,"<":"&\u2028"}`
	got, err := p.Call(t.Context(), def("s", "echo"), &tool.Call{Arguments: json.RawMessage(arguments)})
	if want := `{"params":{"name":"echo","arguments":` + arguments + `}}`; err != nil || untold(got) != want {
		t.Errorf("params = %s, %v\nwant %s", got, err, want)
	}
	var notified []string
	got, err = p.Call(t.Context(), def("s", "stream"), &tool.Call{
		Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`),
		Notify: func(method string, params json.RawMessage) { notified = append(notified, method+string(params)) },
	})
	if want := `notifications/progress{"progressToken":"mine","progress":9007199254740993}`; err != nil || string(got) != strange || len(notified) != 1 || notified[0] != want {
		t.Errorf("result = %s, %v; notified %v", got, err, notified)
	}
	_, err = ask(t, p, "s", "fail")
	var rpc *tool.RPCError
	if want := `{"code":-31999,"message":"<no>","data":9007199254740993,"more":1}`; !errors.As(err, &rpc) || string(rpc.Raw) != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	if _, err := p.Call(t.Context(), def("s", "echo"), &tool.Call{Arguments: json.RawMessage(`{"broken`)}); !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams {
		t.Errorf("arguments that are no JSON: %v", err)
	}
}

func TestAFaultOfOneHTTPCallIsNotTheOthers(t *testing.T) {
	u := newPlainHTTP(t)
	started, goOn := make(chan struct{}), make(chan struct{})
	u.calls["slow"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		close(started)
		<-goOn
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"slow":true}}`, id)
	}
	u.calls["busy"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	u.calls["reset"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) { panic(http.ErrAbortHandler) }
	u.calls["other"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	}
	u.calls["empty"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
		w.Header().Set("Content-Type", "text/event-stream")
	}
	var tries atomic.Int32
	u.calls["reset_once"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		n := tries.Add(1)
		if n == 1 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"tries":%d}}`, id, n)
	}
	p := newPool(t, u.settings())
	slow := make(chan error, 1)
	go func() {
		got, err := p.Call(t.Context(), def("s", "slow"), &tool.Call{})
		if err == nil && string(got) != `{"slow":true}` {
			err = fmt.Errorf("result = %s", got)
		}
		slow <- err
	}()
	<-started
	_, err := ask(t, p, "s", "busy")
	status := new(conn.StatusError)
	if wantError(t, err, "s", nil); !errors.As(err, &status) || status.Code != http.StatusServiceUnavailable {
		t.Errorf("error = %v, want status 503", err)
	}
	_, err = ask(t, p, "s", "reset")
	wantError(t, err, "s", nil)
	_, err = ask(t, p, "s", "other")
	wantError(t, err, "s", conn.ErrWrongID)
	_, err = ask(t, p, "s", "empty")
	wantError(t, err, "s", nil)
	// Nobody knows whether it was delivered, but this one may be repeated.
	if got, err := ask(t, p, "s", "reset_once", "readOnlyHint"); err != nil || got != `{"tries":2}` {
		t.Errorf("reset_once = %s, %v", got, err)
	}
	close(goOn)
	if err := <-slow; err != nil {
		t.Errorf("the call beside the faults: %v", err)
	}
}

func TestASessionThatIsRefusedWith400IsStartedAnew(t *testing.T) {
	u := newPlainHTTP(t)
	u.calls["ok"] = result(`{"ok":true}`)
	u.calls["picky"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"I do not like it"}}`, id)
	}
	var tries atomic.Int32
	u.calls["picky_unread"] = func(w http.ResponseWriter, _ string, _ json.RawMessage) {
		tries.Add(1)
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"what?"}}`)
	}
	p := newPool(t, u.settings())
	mustAsk(t, p, "s", "ok", "ok")
	for range 3 {
		u.forget()
		mustAsk(t, p, "s", "ok", "ok")
	}
	// What is said of this request alone is no lost session.
	for _, name := range []string{"picky", "picky_unread"} {
		_, err := ask(t, p, "s", name)
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || rpc.Code != -32602 {
			t.Errorf("%s: error = %v, want the server's", name, err)
		}
	}
	if tries.Load() != 1 {
		t.Errorf("the refused call was made %d times, want once", tries.Load())
	}
}

func TestALegacyHTTPCallIsCancelledByNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newPlainHTTP(t)
		hangs, end := make(chan string, 1), make(chan struct{})
		u.calls["hang"] = func(_ http.ResponseWriter, id string, _ json.RawMessage) {
			hangs <- id
			<-end
		}
		defer close(end)
		s := u.settings()
		s.CallTimeout = 5 * time.Second
		p := newPool(t, s)
		_, err := ask(t, p, "s", "hang")
		wantError(t, err, "s", ErrTimeout)
		if id, cancelled := <-hangs, <-u.cancelled; id != cancelled {
			t.Errorf("request %s hung, %s was cancelled", id, cancelled)
		}
	})
}

func TestARestartedHTTPServerIsListedAgainWithoutACall(t *testing.T) {
	for name, option := range map[string]mcpserver.StreamableHTTPOption{
		"legacy": mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25"),
		"modern": mcpserver.WithStateful(false),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts := 0
				r := newRestartable(t, func() http.Handler {
					starts++
					s := newMCP()
					for i := range starts {
						s.AddTool(mcp.NewTool(fmt.Sprintf("start%d", i)), nil)
					}
					return mcpserver.NewStreamableHTTPServer(s, option, mcpserver.WithStateful(name == "legacy"))
				})
				changes, _ := watched(t, newPool(t, r.settings("s", "/mcp")))
				var before time.Time
				for tools := 3; tools <= 5; tools++ { // the stream of notifications ends twice in a short time
					for len((<-changes).Defs) != tools {
					}
					if took := time.Since(before); name == "modern" && tools == 5 && took < relistAfter {
						t.Errorf("it was listed again after %s", took)
					}
					before = time.Now()
					synctest.Wait()
					r.stop()
					r.start()
				}
			})
		})
	}
}

// A server may be another one by the time its stream of notifications is asked for.
func TestAServerThatIsRestartedBeforeItsStreamIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
			var now atomic.Int32
			var servers [2]http.Handler
			for i := range servers {
				s := newMCP()
				s.AddTool(mcp.NewTool(fmt.Sprintf("start%d", i)), nil)
				servers[i] = mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true), mcpserver.WithStreamableHTTPProtocolVersions("2025-11-25"))
			}
			listed := make(chan struct{})
			r := newRestartable(t, func() http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet && now.Load() == 0 {
						<-listed
						now.Store(1)
						w.WriteHeader(status)
						return
					}
					servers[now.Load()].ServeHTTP(w, r)
				})
			})
			changes, _ := watched(t, newPool(t, r.settings("s", "/mcp")))
			for i := range servers {
				isOf := func(d *tool.Def) bool { return d.ID.Name == fmt.Sprintf("start%d", i) }
				for !slices.ContainsFunc(await.Value(t, changes).Defs, isOf) {
				}
				if i == 0 {
					close(listed)
				}
			}
		}
	})
}

func BenchmarkCall(b *testing.B) {
	u := newPlainHTTP(b)
	u.calls["raw"] = func(w http.ResponseWriter, id string, _ json.RawMessage) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, strange)
	}
	for name, s := range map[string]Settings{"stdio": lines(b, "s", "raw"), "http": u.settings()} {
		b.Run(name, func(b *testing.B) {
			p := newPool(b, s)
			call := &tool.Call{Arguments: json.RawMessage(`{"q":"` + strings.Repeat("x", 100) + `"}`), Notify: func(string, json.RawMessage) {}}
			d := def("s", "raw")
			b.ReportAllocs()
			for b.Loop() {
				must.Get(p.Call(b.Context(), d, call))(b)
			}
		})
	}
}

// A server that nobody logs in to keeps its session when logins to others change.
func TestAServerWithoutALoginKeepsItsConnection(t *testing.T) {
	u := newPlainHTTP(t)
	u.calls["ok"] = result(`{"ok":true}`)
	logins := login.New(login.Options{Vault: authserver.NewVault()})
	defer logins.Close()
	p := newPoolOf(t, Options{Logins: logins}, u.settings())
	mustAsk(t, p, "s", "ok", "ok")
	before := p.now.Load().byName["s"].main.current()
	p.LoginChanged("")
	p.now.Load().byName["s"].work.Wait()
	mustAsk(t, p, "s", "ok", "ok")
	if now := p.now.Load().byName["s"].main.current(); now != before || now == nil {
		t.Error("it was connected anew")
	}
}
