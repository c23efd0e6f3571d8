package proxy_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/proxy"
)

// rawClient is a client of either era, over either transport, that says the
// bytes it was told to say.
type rawClient struct {
	t      testing.TB
	modern bool
	http   *http.Client // nil on stdio
	url    string
	id     string  // of the session
	hello  message // the answer to initialize
	life   context.Context
	work   sync.WaitGroup
	lines  io.Writer // stdio

	mu           sync.Mutex // guards what follows; never held over a write
	capabilities string     // the object
	level        string     // of log messages in the 2026-07-28 era
	header       [2]string  // one more header of its requests over HTTP
	answer       func(method string, params json.RawMessage) string
	count        int
	waiting      map[string]chan message // nil once no answer can come any more
	heard        []message               // notifications and requests, in order
	strays       []message               // answers for which nobody waited

	writing sync.Mutex // held while one line is written
}

// can is what a client that does everything declares, and more.
const can = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true},"unknown":{"big":12345678901234567890,"huge":1e400}}`

// kind of client or server.
type kind struct {
	modern, stdio bool
	name          string          // how a legacy client names itself, "" for raw
	user          string          // whom a reverse proxy names in X-User, "" for nobody
	key           string          // an API key, "" for none
	over          *http.Transport // what HTTP goes over, nil for one of its own
}

func (k kind) String() string {
	era, transport := "legacy", "http"
	if k.modern {
		era = "modern"
	}
	if k.stdio {
		transport = "stdio"
	}
	return era + " " + transport
}

var kinds = []kind{{}, {stdio: true}, {modern: true}, {modern: true, stdio: true}}

// newClient connects to a proxy that runs and serves HTTP at url. answer says
// what the client replies to requests: a member result or, in the legacy era,
// error. A legacy client without capabilities declares none at all.
func newClient(t testing.TB, p *proxy.Proxy, url string, k kind, capabilities string, answer func(method string, params json.RawMessage) string) *rawClient {
	t.Helper()
	return newClientAt(t, p, url+"/mcp", k, capabilities, answer)
}

// newClientAt is newClient for the endpoint of a view, on HTTP.
func newClientAt(t testing.TB, p *proxy.Proxy, endpoint string, k kind, capabilities string, answer func(method string, params json.RawMessage) string) *rawClient {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	c := &rawClient{t: t, modern: k.modern, url: endpoint, life: life, capabilities: capabilities, answer: answer, waiting: map[string]chan message{}}
	if k.stdio {
		fromClient, toServer := io.Pipe()
		fromServer, toClient := io.Pipe()
		c.lines = toServer
		served := make(chan error, 1)
		c.work.Go(func() {
			err := p.ServeStdio(context.Background(), fromClient, toClient)
			_ = toClient.Close()
			served <- err
		})
		c.work.Go(func() { c.read(fromServer) })
		t.Cleanup(func() {
			end()
			_ = toServer.Close()
			c.work.Wait()
			if err := <-served; err != nil {
				t.Errorf("ServeStdio: %v", err)
			}
		})
	} else {
		c.http = &http.Client{Transport: cmp.Or(k.over, &http.Transport{MaxIdleConnsPerHost: 64})}
		switch {
		case k.user != "":
			c.header = [2]string{"X-User", k.user}
		case k.key != "":
			c.header = [2]string{"Authorization", "Bearer " + k.key}
		}
		t.Cleanup(func() {
			if c.id != "" {
				request, _ := http.NewRequest(http.MethodDelete, c.url, nil)
				request.Header.Set("Mcp-Session-Id", c.id)
				c.identify(request)
				if response, err := c.http.Do(request); err == nil {
					response.Body.Close()
				}
			}
			end()
			c.work.Wait()
			c.http.CloseIdleConnections()
		})
	}
	if k.modern {
		return c
	}
	c.hello = c.ask("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`,"clientInfo":{"name":"`+cmp.Or(k.name, "raw")+`","version":"1"}}`)
	if c.hello.Result == nil {
		t.Fatalf("initialize: %s", c.hello.raw)
	}
	c.tell("notifications/initialized", `{}`)
	if !k.stdio {
		request, _ := http.NewRequestWithContext(life, http.MethodGet, c.url, nil)
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Mcp-Session-Id", c.id)
		c.identify(request)
		response := must.Get(c.http.Do(request))(t)
		c.work.Go(func() { c.readBody(response) })
	}
	return c
}

// pending is a request that was sent.
type pending struct {
	id     string
	answer chan message
	cancel func() // tells the server, the way of the era, that no answer is wanted
}

// begin sends a request.
func (c *rawClient) begin(method, params string) pending {
	c.mu.Lock()
	c.count++
	// Text and numbers, which no library may turn into each other.
	id := strconv.Itoa(c.count)
	if c.count%2 == 0 {
		id = `"call \u003c` + id + `"`
	}
	c.mu.Unlock()
	return c.beginAs(id, method, params)
}

// beginAs sends a request with an ID.
func (c *rawClient) beginAs(id, method, params string) pending {
	answer := make(chan message, 1)
	c.mu.Lock()
	if c.waiting == nil {
		answer <- message{ID: json.RawMessage(id)}
	} else {
		c.waiting[id] = answer
	}
	c.mu.Unlock()
	if c.modern {
		params = c.introduced(params)
	}
	ctx, cancel := context.WithCancel(c.life)
	p := pending{id: id, answer: answer, cancel: cancel}
	if !c.modern || c.http == nil {
		p.cancel = func() { c.tell("notifications/cancelled", `{"requestId":`+id+`,"reason":"enough"}`) }
	}
	c.work.Go(func() {
		defer cancel()
		c.post(ctx, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+params+`}`)
		if c.http == nil {
			return
		}
		c.mu.Lock()
		waits := c.waiting[id] == answer // and not the next request of that ID
		c.mu.Unlock()
		if waits {
			c.settle(message{ID: json.RawMessage(id)}) // no answer comes any more
		}
	})
	return p
}

// ask sends a request and returns its answer, which may be that it wants input.
func (c *rawClient) ask(method, params string) message {
	return <-c.begin(method, params).answer
}

// call is ask until no more input is wanted.
func (c *rawClient) call(method, params string) message {
	c.t.Helper()
	again := params
	for range 10 {
		got := c.ask(method, again)
		if text(part(got.Result, "resultType")) != "input_required" {
			return got
		}
		again = c.again(params, got)
	}
	c.t.Fatalf("%s %s: there is no end of questions", method, params)
	return message{}
}

// again are the params with which a request is repeated that wanted input.
func (c *rawClient) again(params string, got message) string {
	var responses []string
	for _, m := range members(part(got.Result, "inputRequests")) {
		key, _ := json.Marshal(m.key)
		q := parse([]byte(m.value))
		c.note(q)
		responses = append(responses, string(key)+":"+strings.TrimPrefix(c.answer(q.Method, q.Params), `"result":`))
	}
	out := `{"inputResponses":{` + strings.Join(responses, ",") + `},`
	if state := part(got.Result, "requestState"); state != nil {
		out += `"requestState":` + string(state) + `,`
	}
	return out + params[1:]
}

// introduced are params with what a 2026-07-28 client says of itself.
func (c *rawClient) introduced(params string) string {
	c.mu.Lock()
	meta := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"},"io.modelcontextprotocol/clientCapabilities":` + c.capabilities
	if c.level != "" {
		meta += `,"io.modelcontextprotocol/logLevel":"` + c.level + `"`
	}
	c.mu.Unlock()
	for _, m := range members([]byte(part([]byte(params), "_meta"))) {
		key, _ := json.Marshal(m.key)
		meta += `,` + string(key) + `:` + m.value
	}
	out := `{"_meta":{` + meta + `}`
	for _, m := range without(members([]byte(params)), "_meta") {
		key, _ := json.Marshal(m.key)
		out += `,` + string(key) + `:` + m.value
	}
	return out + `}`
}

// tell sends a notification.
func (c *rawClient) tell(method, params string) {
	c.post(c.life, `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`}`)
}

// post sends a message and returns when all that came for it was taken.
func (c *rawClient) post(ctx context.Context, text string) {
	if c.http == nil {
		c.writing.Lock()
		defer c.writing.Unlock()
		_, _ = io.WriteString(c.lines, text+"\n")
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(text))
	if err != nil {
		c.t.Error(err)
		return
	}
	m := parse([]byte(text))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.modern {
		request.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		request.Header.Set("Mcp-Method", m.Method)
		key := map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}[m.Method]
		if key != "" {
			request.Header.Set("Mcp-Name", headerValue(partText(m.Params, key)))
		}
	} else if c.id != "" {
		request.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		request.Header.Set("Mcp-Session-Id", c.id)
	}
	c.identify(request)
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			c.t.Errorf("%s: %v", m.Method, err)
		}
		return
	}
	if m.Method == "initialize" {
		c.id = response.Header.Get("Mcp-Session-Id")
	}
	c.readBody(response)
}

// identify says in the request who the client is.
func (c *rawClient) identify(request *http.Request) {
	if c.header[0] != "" {
		request.Header.Set(c.header[0], c.header[1])
	}
}

// headerValue is a text as a header has it (SEP-2243).
func headerValue(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
	}
	return s
}

func partText(object []byte, key string) string { return text(part(object, key)) }

// readBody takes the messages of a response.
func (c *rawClient) readBody(response *http.Response) {
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		in := bufio.NewReader(response.Body)
		for {
			line, err := in.ReadBytes('\n')
			if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
				c.take(parse(bytes.TrimSuffix(data, []byte("\n"))))
			}
			if err != nil {
				return
			}
		}
	}
	if body, err := io.ReadAll(response.Body); err == nil && len(body) > 0 {
		c.take(parse(body))
	}
}

// read takes the lines of stdio.
func (c *rawClient) read(from io.Reader) {
	defer c.over()
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		c.take(parse(bytes.TrimSuffix(line, []byte("\n"))))
	}
}

func (c *rawClient) take(m message) {
	if m.Method == "" {
		c.settle(m)
		return
	}
	c.note(m)
	if m.Method == "notifications/tools/list_changed" { // as a client does
		c.work.Go(func() { c.ask("tools/list", `{}`) })
	}
	if m.ID != nil {
		c.work.Go(func() {
			if reply := c.answer(m.Method, m.Params); reply != "" {
				c.post(c.life, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+reply+`}`)
			}
		})
	}
}

func (c *rawClient) settle(m message) {
	c.mu.Lock()
	answer := c.waiting[string(m.ID)]
	delete(c.waiting, string(m.ID))
	if answer == nil && m.raw != "" {
		c.strays = append(c.strays, m)
	}
	c.mu.Unlock()
	if answer != nil {
		answer <- m
	}
}

// over ends the waiting for answers: the only stream on which they come has ended.
func (c *rawClient) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, answer := range c.waiting {
		answer <- message{ID: json.RawMessage(id)}
	}
	c.waiting = nil
}

func (c *rawClient) note(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, m)
}

// clear forgets what was heard.
func (c *rawClient) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = nil
}

// got returns the messages with a method that have come since clear.
func (c *rawClient) got(method string) []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []message
	for _, m := range c.heard {
		if m.Method == method {
			all = append(all, m)
		}
	}
	return all
}

// hears waits for a message whose params satisfy what is asked.
func (c *rawClient) hears(method string, fits func(params json.RawMessage) bool) message {
	c.t.Helper()
	var found message
	eventually(c.t, func() bool {
		for _, m := range c.got(method) {
			if fits == nil || fits(m.Params) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}
