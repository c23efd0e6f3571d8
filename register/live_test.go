package register

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/leeway"
	"toolfinch/internal/must"
	"toolfinch/internal/pipes"
	"toolfinch/register/transport"
	"toolfinch/tool"
)

// catalog is a Source of tools that answer with a fixed result.
type catalog map[string]*tool.Tool

func (c catalog) Lookup(name string) (*tool.Tool, bool) { t, ok := c[name]; return t, ok }
func (c catalog) ByID(id tool.ID) (*tool.Tool, bool) {
	for _, t := range c {
		if t.Def.ID == id {
			return t, true
		}
	}
	return nil, false
}
func (c catalog) Nearest(string, int) []string { return []string{"srv_a"} }
func (c catalog) Pinned() []*tool.Tool         { return nil }
func (c catalog) Tools() []*tool.Tool          { return c.Items(tool.KindTool) }

func (c catalog) Items(kind tool.Kind) []*tool.Tool {
	var items []*tool.Tool
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name].Def.ID.Kind == kind {
			items = append(items, c[name])
		}
	}
	return items
}
func (c catalog) Prompt(name string) (*tool.Tool, bool)     { return c.of(tool.KindPrompt, name) }
func (c catalog) Resource(uri string) (*tool.Tool, bool)    { return c.of(tool.KindResource, uri) }
func (c catalog) OfApp(string, []string) (*tool.Tool, bool) { return nil, false }
func (c catalog) Exposed(_, uri string) string              { return uri }
func (c catalog) CacheHint(tool.Kind) (time.Duration, bool) { return 5 * time.Second, false }
func (c catalog) of(k tool.Kind, name string) (*tool.Tool, bool) {
	t, ok := c[name]
	return t, ok && t.Def.ID.Kind == k
}

// strange is a result with everything a typed structure would lose.
const strange = `{"content":[{"type":"hologram","x":9007199254740993,"nested":{"<&>":null}}],"structuredContent":{"big":123456789012345678901234567890,"f":1.0},"isError":false,"_meta":{"a/b":[1e400]},"unknown":{"é":"\u00e9"}}`

func newTool(t testing.TB, name string, handler tool.Handler) *tool.Tool {
	t.Helper()
	def, err := tool.ParseDef("srv", json.RawMessage(fmt.Sprintf(
		`{"name":%q,"x-unknown":18446744073709551617,"inputSchema":{"type":"object","$comment":"<kept>"},"annotations":{"future":true}}`, strings.TrimPrefix(name, "srv_"))))
	if err != nil {
		t.Fatal(err)
	}
	return &tool.Tool{Name: name, Def: def, Handler: handler}
}

// newLive serves 300 tools srv_t000... and a meta-tool find, which registers
// the tools named in its argument.
func newLive(t testing.TB, settings setup) *Live {
	t.Helper()
	if settings.follows != nil {
		*settings.follows = newFollowed()
		settings.Subscriptions = NewSubscriptions((*settings.follows).subscribe)
	}
	source := catalog{}
	for i := range 300 {
		name := fmt.Sprintf("srv_t%03d", i)
		source[name] = newTool(t, name, func(context.Context, *tool.Call) (tool.Result, error) { return tool.Result(strange), nil })
	}
	source["srv_fail"] = newTool(t, "srv_fail", func(context.Context, *tool.Call) (tool.Result, error) {
		return nil, &tool.RPCError{Code: -31999, Message: "no", Raw: json.RawMessage(`{"code":-31999,"message":"no","data":{"big":12345678901234567890},"more":1}`)}
	})
	source["srv_progress"] = newTool(t, "srv_progress", func(_ context.Context, call *tool.Call) (tool.Result, error) {
		for i := range 50 {
			call.Notify("notifications/progress", json.RawMessage(fmt.Sprintf(`{"progressToken":1,"progress":%d}`, i)))
		}
		return tool.TextResult("done"), nil
	})
	live := serve(settings, Served{Source: source, Declared: declaresAll}, slog.New(slog.DiscardHandler))
	find := newTool(t, "find", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
		var in struct{ Tools []string }
		_ = json.Unmarshal(call.Arguments, &in)
		var found []*tool.Tool
		for _, name := range in.Tools {
			found = append(found, source[name])
		}
		registered, relisted := live.Register(ctx, call, found, found[:min(1, len(found))])
		return tool.TextResult(fmt.Sprintf("%d registered, listed again: %t", len(registered), relisted)), nil
	})
	offer(live, Served{Search: []*tool.Tool{find}, Register: always, SearchTool: "retrieve_tools"})
	return live
}

// peer is a client of the streamable HTTP endpoint that looks at bytes.
type peer struct {
	t       testing.TB
	url     string
	session string
	header  []string // of every request
}

func serveHTTP(t testing.TB, live *Live) string {
	t.Helper()
	return serveStreamable(t, live, transport.Limits{})
}

func serveStreamable(t testing.TB, live *Live, limits transport.Limits) string {
	t.Helper()
	streamable := transport.NewStreamable(live, transport.NewClients(limits), nil, slog.New(slog.DiscardHandler))
	server := pipes.NewServer(t, byHeader(streamable))
	t.Cleanup(func() {
		live.EndStreams()
		streamable.Close()
	})
	return server.URL
}

// byHeader has the header X-User say who makes a request.
func byHeader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("X-User"); name != "" {
			r = r.WithContext(identity.WithPrincipal(r.Context(), &identity.Principal{ID: name}))
		}
		next.ServeHTTP(w, r)
	})
}

func connect(t testing.TB, url, client string, header ...string) *peer {
	t.Helper()
	p := &peer{t: t, url: url, header: header}
	response := p.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":%q,"version":"1"}}}`, client))
	defer response.Body.Close()
	if p.session = response.Header.Get("Mcp-Session-Id"); p.session == "" {
		t.Fatalf("initialize: %s, no session", response.Status)
	}
	return p
}

func (p *peer) do(method, body string, header ...string) *http.Response {
	p.t.Helper()
	request, err := http.NewRequest(method, p.url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if p.session != "" {
		request.Header.Set("Mcp-Session-Id", p.session)
	}
	for _, all := range [][]string{p.header, header} {
		for i := 0; i+1 < len(all); i += 2 {
			request.Header.Set(all[i], all[i+1])
		}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	return response
}

func (p *peer) post(body string, header ...string) *http.Response {
	p.t.Helper()
	return p.do(http.MethodPost, body, header...)
}

// messages posts body and returns all messages of the answer, JSON or SSE.
func (p *peer) messages(body string, header ...string) []string {
	p.t.Helper()
	response := p.post(body, header...)
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return []string{string(raw)}
	}
	var messages []string
	for line := range strings.Lines(string(raw)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			messages = append(messages, strings.TrimSuffix(data, "\n"))
		}
	}
	return messages
}

func call(id int, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments)
}

func find(id int, names ...string) string {
	list, _ := json.Marshal(map[string][]string{"Tools": names})
	return call(id, "find", string(list))
}

const list = `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`

// listed returns the names of a tools/list answer.
func listed(t testing.TB, message string) []string {
	t.Helper()
	var answer struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(message), &answer); err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	var names []string
	for _, tool := range answer.Result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// listen opens the GET stream; got receives the messages.
func (p *peer) listen() (got <-chan string, stop func()) {
	p.t.Helper()
	response := p.do(http.MethodGet, "")
	if response.StatusCode != http.StatusOK {
		p.t.Fatalf("GET: %s", response.Status)
	}
	messages := make(chan string, 100)
	go pump(response.Body, true, messages)
	return messages, func() { response.Body.Close() }
}

func TestBytesArriveAsTheyWereSent(t *testing.T) {
	live := newLive(t, setup{})
	p := connect(t, serveHTTP(t, live), "bytes")
	for _, test := range []struct{ name, request, want string }{
		{"result", call(90, "srv_t001", `{}`), `{"jsonrpc":"2.0","id":90,"result":` + strange + `}`},
		{"id", `{"id":"x<y","method":"tools/call","params":{"name":"srv_t001"},"jsonrpc":"2.0"}`, `{"jsonrpc":"2.0","id":"x<y","result":` + strange + `}`},
		{"error", call(91, "srv_fail", `{}`), `{"jsonrpc":"2.0","id":91,"error":{"code":-31999,"message":"no","data":{"big":12345678901234567890},"more":1}}`},
		{"definition", list, `{"jsonrpc":"2.0","id":"l","result":{"tools":[{"name":"find","x-unknown":18446744073709551617,"inputSchema":{"type":"object","$comment":"<kept>"},"annotations":{"future":true}}]}}`},
		{"unknown tool", call(92, "nope", `{}`), `{"jsonrpc":"2.0","id":92,"error":{"code":-32602,"message":"unknown tool \"nope\"; nearest: srv_a. Search with retrieve_tools."}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p.t = t
			got := p.messages(test.request)
			if len(got) != 1 || strings.TrimSpace(got[0]) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestNotificationsComeBeforeTheAnswerAndInOrder(t *testing.T) {
	p := connect(t, serveHTTP(t, newLive(t, setup{})), "progress")
	for range 20 {
		got := p.messages(call(1, "srv_progress", `{}`))
		if len(got) != 51 {
			t.Fatalf("%d messages, want 50 notifications and the answer", len(got))
		}
		for i, message := range got[:50] {
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":%d}}`, i); message != want {
				t.Fatalf("message %d = %s, want %s", i, message, want)
			}
		}
		if !strings.Contains(got[50], `"done"`) {
			t.Fatalf("last message = %s", got[50])
		}
	}
}

func TestFoundToolsAreListedAfterListChanged(t *testing.T) {
	p := connect(t, serveHTTP(t, newLive(t, setup{})), "lister")
	changes, stop := p.listen()
	defer stop()

	answered := make(chan []string, 1)
	go func() { answered <- p.messages(find(1, "srv_t007", "srv_t003")) }()
	for message := range changes {
		if strings.Contains(message, "tools/list_changed") {
			break
		}
	}
	select {
	case got := <-answered:
		t.Fatalf("answered before the client re-listed: %s", got)
	default:
	}
	names := listed(t, p.messages(list)[0])
	if want := []string{"find", "srv_t007", "srv_t003"}; !slices.Equal(names, want) {
		t.Errorf("listed %v, want %v: meta-tools, then the order found", names, want)
	}
	if got := <-answered; !strings.Contains(got[len(got)-1], "2 registered, listed again: true") {
		t.Errorf("answer = %s", got)
	}
	// What is registered already changes nothing, so nothing is waited for.
	if got := p.messages(find(2, "srv_t003")); len(got) != 1 || !strings.Contains(got[0], "2 registered, listed again: true") {
		t.Errorf("second answer = %s", got)
	}
	if names := listed(t, connect(t, p.url, "other").messages(list)[0]); !slices.Equal(names, []string{"find"}) {
		t.Errorf("another session lists %v", names)
	}
}

func TestAClientThatNeverRelistsWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		verdicts := map[string]tool.Relists{}
		live := newLive(t, setup{Remember: func(client string, relists tool.Relists) { verdicts[client] = relists }})
		show(live, func(v *Served) { v.Register = func(string) When { return Tried } })
		p := connect(t, serveHTTP(t, live), "deaf")
		for i, step := range []struct {
			says string
			held time.Duration
		}{
			{"listed again: false", leeway.Of(holdCap)},
			{"1 registered", 0}, // its list, which it does not ask for, changes no more
		} {
			start := time.Now()
			got := p.messages(find(i, fmt.Sprintf("srv_t%03d", i)))
			if took := time.Since(start); took != step.held || !strings.Contains(got[len(got)-1], step.says) {
				t.Errorf("answer %d = %s after %s; want %s after %s", i, got, took, step.says, step.held)
			}
		}
		synctest.Wait()
		if relists, known := verdicts["deaf 1"]; !known || relists != tool.RelistsNever {
			t.Errorf("remembered %v", verdicts)
		}
	})
}

// Only a list that is asked while an answer waits for it shows that a client lists again,
// and nobody is waited for in vain more than twice, however often it listed before.
func TestNobodyIsWaitedForInVainMoreThanTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []tool.Relists
		live := newLive(t, setup{Remember: func(_ string, relists tool.Relists) { told = append(told, relists) }})
		show(live, func(v *Served) { v.Register = func(string) When { return AtOnce } })
		listed, never := make(chan struct{}), make(chan struct{})
		close(listed)
		for _, step := range []struct {
			asks  <-chan struct{}
			waits time.Duration
		}{{listed, holdGrace}, {never, leeway.Of(holdCap)}, {listed, holdGrace}, {never, leeway.Of(holdCap)}, {never, 0}, {listed, 0}} {
			start := time.Now()
			live.relists.hold(t.Context(), live.served(identity.Party{}), "agent 1", step.asks)
			if took := time.Since(start); took != step.waits {
				t.Errorf("waited %s, want %s", took, step.waits)
			}
		}
		show(live, func(v *Served) { v.Awaits = func(client string) bool { return client == "patient 1" } })
		start := time.Now()
		if relisted := live.relists.hold(t.Context(), live.served(identity.Party{}), "patient 1", listed); !relisted || time.Since(start) != 0 {
			t.Errorf("a client that takes lists in first was left %s", time.Since(start))
		}
		if want := []tool.Relists{tool.RelistsAlways, tool.RelistsMostly, tool.RelistsNever, tool.RelistsAlways}; !slices.Equal(told, want) {
			t.Errorf("remembered %v, want %v", told, want)
		}
	})
	live := newLive(t, setup{
		Relists:  map[string]tool.Relists{"turns 1": tool.RelistsNever},
		Remember: func(client string, relists tool.Relists) { t.Errorf("%s is taken for %v", client, relists) },
	})
	p := connect(t, serveHTTP(t, live), "turns")
	for i := range 3 { // it lists before each turn, so soon after each change
		p.messages(find(i, fmt.Sprintf("srv_t%03d", i)))
		p.messages(list)
	}
}

// An answer says that the client was listed what it found only where that is so, also where nothing changes.
func TestAListThatIsStaleCountsForNothing(t *testing.T) {
	p := connect(t, serveHTTP(t, newLive(t, setup{Relists: map[string]tool.Relists{"turns 1": tool.RelistsNever}})), "turns")
	p.messages(list)
	for i, step := range []struct {
		lists bool
		want  string
	}{{false, "false"}, {false, "false"}, {true, "true"}} {
		if step.lists {
			p.messages(list)
		}
		got := p.messages(find(i, "srv_t001"))
		if last := got[len(got)-1]; !strings.Contains(last, "1 registered, listed again: "+step.want) {
			t.Errorf("answer %d = %s, want %s", i, last, step.want)
		}
	}
}

func TestConcurrentRetrievalsLoseNoRegistration(t *testing.T) {
	live := newLive(t, setup{Relists: map[string]tool.Relists{"many 1": tool.RelistsNever}})
	face := *live.served(identity.Party{})
	face.MaxRegistered = 300
	offer(live, face)
	p := connect(t, serveHTTP(t, live), "many")
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() { p.messages(find(i, fmt.Sprintf("srv_t%03d", i))) })
	}
	calls.Wait()
	names := listed(t, p.messages(list)[0])
	if len(names) != 201 {
		t.Errorf("%d tools are listed, want the meta-tool and 200", len(names))
	}
}

func TestSessionsThatAreNotOurs(t *testing.T) {
	p := connect(t, serveHTTP(t, newLive(t, setup{})), "ends")
	status := func(method, session, body string) int {
		other := *p
		other.session = session
		response := other.do(method, body)
		response.Body.Close()
		return response.StatusCode
	}
	for _, test := range []struct {
		method, session string
		want            int
	}{
		{http.MethodPost, "forged", 404},
		{http.MethodGet, "forged", 404},
		{http.MethodDelete, "forged", 404},
		{http.MethodGet, "", 400},
		{http.MethodDelete, p.session, 200},
		{http.MethodPost, p.session, 404},
		{http.MethodGet, p.session, 404},
	} {
		if got := status(test.method, test.session, list); got != test.want {
			t.Errorf("%s with session %q: status %d, want %d", test.method, test.session, got, test.want)
		}
	}
}

func TestModernClientsGetAStableListAndEveryTool(t *testing.T) {
	p := &peer{t: t, url: serveHTTP(t, newLive(t, setup{}))}
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"new","version":"1"}}`
	modern := func(name string) []string {
		return []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", name}
	}
	callModern := func(name, arguments string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, name, arguments, meta)
	}
	got := p.messages(callModern("srv_t001", `{}`), modern("srv_t001")...)[0]
	if want := `{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete",` + strange[1:] + `}`; got != want {
		t.Errorf("call of a tool that was never listed:\n got %s\nwant %s", got, want)
	}
	p.messages(callModern("find", `{"Tools":["srv_t001"]}`), modern("find")...)
	listMessage := p.messages(`{"jsonrpc":"2.0","id":6,"method":"tools/list","params":{`+meta+`}}`,
		"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")[0]
	if names := listed(t, listMessage); !slices.Equal(names, []string{"find"}) {
		t.Errorf("after a retrieval the list is %v: it must not change", names)
	}
	if !strings.Contains(listMessage, `"ttlMs"`) || !strings.Contains(listMessage, `"resultType":"complete"`) {
		t.Errorf("list = %s", listMessage)
	}
	if got := p.messages(callModern("srv_t001", `{}`), modern("srv_t002")...)[0]; !strings.Contains(got, `"error"`) {
		t.Errorf("a header that names another tool was accepted: %s", got)
	}
}

// duplex is a stdio client.
type duplex struct {
	t     testing.TB
	in    *io.PipeWriter
	lines *bufio.Scanner
	ended chan error
}

func serveStdio(t testing.TB, ctx context.Context, live *Live) *duplex {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	d := &duplex{t: t, in: inW, lines: bufio.NewScanner(outR), ended: make(chan error, 1)}
	d.lines.Buffer(nil, 32<<20)
	go func() {
		err := transport.Stdio(ctx, live, transport.NewClients(transport.Limits{}), inR, outW, slog.New(slog.DiscardHandler))
		outW.Close()
		d.ended <- err
	}()
	return d
}

func (d *duplex) send(message string) {
	d.t.Helper()
	if _, err := io.WriteString(d.in, message+"\n"); err != nil {
		d.t.Fatal(err)
	}
}

// until returns the first line that contains text.
func (d *duplex) until(text string) string {
	d.t.Helper()
	for d.lines.Scan() {
		if strings.Contains(d.lines.Text(), text) {
			return d.lines.Text()
		}
	}
	d.t.Fatalf("the stream ended before %s", text)
	return ""
}

const initialize = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"stdio","version":"1"}}}`

func TestStdioSession(t *testing.T) {
	d := serveStdio(t, t.Context(), newLive(t, setup{}))
	d.send(initialize)
	d.until(`"id":"i"`)
	d.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	d.send(call(1, "srv_t001", `{}`))
	if got, want := d.until(`"id":1`), `{"jsonrpc":"2.0","id":1,"result":`+strange+`}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	d.send(find(2, "srv_t002"))
	d.until("tools/list_changed")
	d.send(list)
	if names := listed(t, d.until(`"id":"l"`)); !slices.Equal(names, []string{"find", "srv_t002"}) {
		t.Errorf("listed %v", names)
	}
	d.until("1 registered")
	d.send("this is no JSON")
	d.until(`-32700`)

	// Closing stdin lets the calls in flight be answered.
	d.send(call(3, "srv_progress", `{}`))
	d.in.Close()
	d.until("done")
	if err := <-d.ended; err != nil {
		t.Errorf("ServeStdio = %v", err)
	}
}

// A call that hangs keeps the end of a session up for a while, and for a moment only once the
// program is told to end: agents kill what takes longer.
func TestACallThatHangsAtTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		told bool
		want time.Duration
	}{
		"the client has left":      {false, 10 * time.Second},
		"the program is told, too": {true, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := newLive(t, setup{})
				started := make(chan bool)
				live.served(identity.Party{}).Source.(catalog)["srv_wait"] = newTool(t, "srv_wait", func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
					close(started)
					<-ctx.Done()
					return nil, ctx.Err()
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d := serveStdio(t, ctx, live)
				d.send(initialize)
				d.until(`"id":"i"`)
				d.send(call(7, "srv_wait", `{}`))
				<-started
				d.in.Close()
				if test.told {
					time.Sleep(2 * time.Second)
					cancel()
				}
				began := time.Now()
				for d.lines.Scan() {
				}
				if err := <-d.ended; err != nil || time.Since(began) != leeway.Of(test.want) {
					t.Errorf("ServeStdio = %v after %s", err, time.Since(began))
				}
			})
		})
	}
}

func TestCancellationReachesTheHandler(t *testing.T) {
	live := newLive(t, setup{})
	started, cancelled := make(chan bool), make(chan bool)
	live.served(identity.Party{}).Source.(catalog)["srv_wait"] = newTool(t, "srv_wait", func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		close(started)
		<-ctx.Done()
		close(cancelled)
		return nil, ctx.Err()
	})
	d := serveStdio(t, t.Context(), live)
	d.send(initialize)
	d.until(`"id":"i"`)
	d.send(call(7, "srv_wait", `{}`))
	<-started
	d.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	<-cancelled
	d.in.Close()
	for d.lines.Scan() {
	}
	<-d.ended
}

func TestLegacySSE(t *testing.T) {
	live := newLive(t, setup{})
	url := serveSSE(t, live)
	stream := must.Get(http.Get(url + "/sse"))(t)
	defer stream.Body.Close()
	messages := make(chan string, 10)
	go pump(stream.Body, true, messages)
	endpoint := url + await(t, messages, "sessionId=")
	post := func(body string) int {
		t.Helper()
		response := must.Get(http.Post(endpoint, "application/json", bytes.NewReader([]byte(body))))(t)
		response.Body.Close()
		return response.StatusCode
	}
	if status := post(initialize); status != http.StatusAccepted {
		t.Fatalf("initialize: status %d", status)
	}
	await(t, messages, `"id":"i"`)
	post(call(1, "srv_t001", `{}`))
	if got, want := await(t, messages, `"id":1`), `{"jsonrpc":"2.0","id":1,"result":`+strange+`}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	endpoint = url + "/message?sessionId=forged"
	if status := post(list); status != http.StatusNotFound {
		t.Errorf("a forged session: status %d, want 404", status)
	}
	live.EndStreams()
	if message, more := <-messages; more {
		t.Errorf("after EndStreams: %s", message)
	}
}

func TestAStdioClientOfTheModernEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serveStdio(t, t.Context(), newLive(t, setup{}))
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		d.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
		if got := d.until(`"id":1`); !strings.Contains(got, `"2026-07-28"`) {
			t.Errorf("discover = %s", got)
		}
		d.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"find","arguments":{"Tools":["srv_t001"]},` + meta + `}}`)
		d.until(`"id":2`)
		d.send(`{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{` + meta + `}}`)
		if names := listed(t, d.until(`"id":3`)); !slices.Equal(names, []string{"find"}) {
			t.Errorf("after a retrieval the list is %v: it must not change", names)
		}
		// A subscription lasts as long as the session and does not keep it open.
		d.send(`{"jsonrpc":"2.0","id":4,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`)
		d.until("acknowledged")
		start := time.Now()
		d.in.Close()
		for d.lines.Scan() {
		}
		if err := <-d.ended; err != nil || time.Since(start) > time.Second {
			t.Errorf("ServeStdio = %v after %s", err, time.Since(start))
		}
	})
}
