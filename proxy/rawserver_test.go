package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/upstream"
	"toolfinch/upstream/conn"
)

// script is an upstream of either era, over either transport, that says the
// bytes it was told to say: no library stands between it and the wire.
type script struct {
	modern       bool
	capabilities string              // the object
	lists        map[string][]string // definitions by the member that lists them
	hints        string              // members beside each list, each followed by a comma
	page         int                 // definitions a page, 0 for all
	settings     upstream.Settings   // how to reach it

	mu       sync.Mutex // guards what follows; never held over a write
	handlers map[string]func(*request)
	heard    []message // all that came, in order
	open     map[string]*request
	standing []*request // streams for what belongs to no request, the oldest first
	asked    map[string]chan message
	count    int
}

// message is a JSON-RPC message taken apart, each part as the bytes it is.
type message struct {
	raw                       string
	ID, Params, Result, Error json.RawMessage
	Method                    string
	header                    http.Header // of an HTTP request
}

func parse(raw []byte) message {
	var m message
	_ = json.Unmarshal(raw, &m)
	m.raw = string(raw)
	return m
}

// request is one that a script has to answer.
type request struct {
	message
	script *script
	write  func(message string)
	ended  chan struct{} // closed when the client wants no answer any more
	once   *sync.Once
}

const everyCapability = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"completions":{},"logging":{}}`

// newScript starts an upstream; it answers lists from its definitions, and what
// else on says.
func newScript(t testing.TB, name string, modern, stdio bool) *script {
	s := scripted(name, modern)
	if stdio {
		s.settings.Command = fmt.Sprint("script-", scriptCount.Add(1))
		onStdio.Store(s.settings.Command, s)
		t.Cleanup(func() { onStdio.Delete(s.settings.Command) })
		return s
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.settings.URL = server.URL
	return s
}

// scripted is a script that is not served yet.
func scripted(name string, modern bool) *script {
	return &script{
		modern: modern, capabilities: everyCapability, lists: map[string][]string{},
		handlers: map[string]func(*request){}, open: map[string]*request{}, asked: map[string]chan message{},
		settings: upstream.Settings{Name: name, ConnectTimeout: await.Bound, CallTimeout: await.Bound, AskTimeout: await.Bound},
	}
}

// on says how a request is answered: key is its method, or that and the name or
// URI it is about.
func (s *script) on(key string, answer func(*request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[key] = answer
}

// list changes the definitions of a list.
func (s *script) list(member string, defs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[member] = append([]string{}, defs...)
}

// got returns the messages with a method that have come.
func (s *script) got(method string) []message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []message
	for _, m := range s.heard {
		if m.Method == method {
			all = append(all, m)
		}
	}
	return all
}

// tell sends a notification that belongs to no request: to the oldest stream
// for such, or to the subscriptions of the 2026-07-28 era.
func (s *script) tell(t testing.TB, method, params string) {
	t.Helper()
	var streams []*request
	eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		streams = slices.Clone(s.standing)
		return len(streams) > 0
	})
	if !s.modern {
		streams[0].notify(method, params)
		return
	}
	for _, one := range streams {
		tagged := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(one.ID) + `}`
		if rest := strings.TrimPrefix(params, "{"); rest != "}" {
			tagged += ","
		}
		one.notify(method, tagged+params[1:])
	}
}

func (s *script) stand(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = append(s.standing, r)
}

func (s *script) leave(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standing = slices.DeleteFunc(s.standing, func(one *request) bool { return one == r })
}

// take gets one message, which came over a line; ctx ends with that, or with the
// request. It returns when a request is answered.
func (s *script) take(ctx context.Context, line string, m message, write func(string)) {
	s.mu.Lock()
	s.heard = append(s.heard, m)
	if m.Method == "" {
		answered := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if answered != nil {
			answered <- m
		}
		return
	}
	if m.ID == nil {
		var about struct{ RequestID json.RawMessage }
		_ = json.Unmarshal(m.Params, &about)
		ended := s.open[line+string(about.RequestID)]
		s.mu.Unlock()
		if ended != nil && m.Method == "notifications/cancelled" {
			ended.end()
		}
		return
	}
	r := &request{message: m, script: s, write: write, ended: make(chan struct{}), once: new(sync.Once)}
	s.open[line+string(m.ID)] = r
	handler := s.handlers[m.Method+" "+r.about()]
	if handler == nil {
		handler = s.handlers[m.Method]
	}
	s.mu.Unlock()
	if handler == nil {
		handler = s.usual
	}
	defer context.AfterFunc(ctx, r.end)()
	handler(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, line+string(m.ID))
}

// usual answers what no handler is for.
func (s *script) usual(r *request) {
	lists := map[string]string{"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
	switch {
	case lists[r.Method] != "":
		s.usualList(r, lists[r.Method])
	case r.Method == "initialize" && !s.modern:
		r.result(`{"protocolVersion":"2025-11-25","capabilities":` + s.capabilities + `,"serverInfo":{"name":"script","version":"1"}}`)
	case r.Method == "server/discover" && s.modern:
		r.result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + s.capabilities + `,"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"script","version":"1"}}}`)
	case r.Method == "subscriptions/listen" && s.modern:
		filter := part(r.Params, "notifications")
		r.notify("notifications/subscriptions/acknowledged", `{"_meta":{"io.modelcontextprotocol/subscriptionId":`+string(r.ID)+`},"notifications":`+string(filter)+`}`)
		s.stand(r)
		<-r.ended
		s.leave(r)
	case slices.Contains([]string{"logging/setLevel", "resources/subscribe", "resources/unsubscribe"}, r.Method) && !s.modern:
		r.result(`{}`)
	default:
		r.fail(`{"code":-32601,"message":"method not found"}`)
	}
}

func (s *script) usualList(r *request, member string) {
	s.mu.Lock()
	defs := s.lists[member]
	s.mu.Unlock()
	from, next := 0, ""
	if cursor := text(part(r.Params, "cursor")); cursor != "" {
		from, _ = strconv.Atoi(cursor)
	}
	if defs = defs[from:]; s.page > 0 && len(defs) > s.page {
		defs, next = defs[:s.page], fmt.Sprintf(`,"nextCursor":"%d"`, from+s.page)
	}
	r.result(`{` + s.hints + `"` + member + `":[` + strings.Join(defs, ",") + `]` + next + `}`)
}

func (r *request) end() { r.once.Do(func() { close(r.ended) }) }

// about is the name or URI that a request is about.
func (r *request) about() string {
	return text(part(r.Params, "name")) + text(part(r.Params, "uri"))
}

func (r *request) result(raw string) {
	r.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":` + raw + `}`)
}

func (r *request) fail(raw string) {
	r.write(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"error":` + raw + `}`)
}

func (r *request) notify(method, params string) {
	r.write(`{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`)
}

// ask sends a request to the client and returns its answer, none when the call
// that it belongs to has ended.
func (r *request) ask(method, params string) message {
	s := r.script
	answered := make(chan message, 1)
	s.mu.Lock()
	s.count++
	id := fmt.Sprintf(`"ask \u003c%d>"`, s.count)
	s.asked[id] = answered
	s.mu.Unlock()
	r.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	select {
	case m := <-answered:
		return m
	case <-r.ended:
		return message{}
	}
}

// question is what a server wants to know of a client.
type question struct{ method, params string }

// secret is what a script's requestState begins with.
const secret = `the server's own <"secret"> of round `

// need asks questions, all at once, the way of the script's era; rounds count
// from 1. The answers are result objects, or error objects of the legacy era.
// ok is false when the client has to call again first.
func (r *request) need(round int, questions ...question) (answers []json.RawMessage, ok bool) {
	answers = make([]json.RawMessage, len(questions))
	if !r.script.modern {
		var asking sync.WaitGroup
		for i, q := range questions {
			asking.Go(func() {
				answer := r.ask(q.method, q.params)
				answers[i] = append(answer.Result, answer.Error...)
			})
		}
		asking.Wait()
		return answers, true
	}
	at := 0
	if state, found := strings.CutPrefix(text(part(r.Params, "requestState")), secret); found {
		at, _ = strconv.Atoi(state)
	}
	if at < round {
		var requests []string
		for i, q := range questions {
			requests = append(requests, fmt.Sprintf(`"q\u003c%d é":{"method":"%s","params":%s}`, i, q.method, q.params))
		}
		state, _ := json.Marshal(secret + strconv.Itoa(round))
		r.result(`{"resultType":"input_required","inputRequests":{` + strings.Join(requests, ",") + `},"requestState":` + string(state) + `}`)
		return nil, false
	}
	for i := range questions {
		answers[i] = part(part(r.Params, "inputResponses"), fmt.Sprintf("q<%d é", i))
	}
	return answers, true
}

// ServeHTTP is the script as a streamable HTTP server.
func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	flush := http.NewResponseController(w).Flush
	event := func(message string) {
		fmt.Fprintf(w, "event: message\ndata: %s\n\n", message)
		_ = flush()
	}
	switch {
	case r.Method == http.MethodGet && !s.modern:
		w.Header().Set("Content-Type", "text/event-stream")
		_ = flush()
		var writing sync.Mutex // guards over; held while one message is written
		over := false
		stream := &request{script: s, write: func(message string) {
			writing.Lock()
			defer writing.Unlock()
			if !over {
				event(message)
			}
		}}
		s.stand(stream)
		<-r.Context().Done()
		s.leave(stream)
		writing.Lock()
		defer writing.Unlock()
		over = true
		return
	case r.Method == http.MethodDelete:
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	m := parse(body)
	m.header = r.Header
	if m.Method == "initialize" {
		s.mu.Lock()
		s.count++
		w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", s.count))
		s.mu.Unlock()
	}
	if m.ID == nil || m.Method == "" {
		s.take(r.Context(), r.Header.Get("Mcp-Session-Id"), m, nil)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	var writing sync.Mutex // guards what follows; held while one message is written
	streamed, over := false, false
	defer func() {
		writing.Lock()
		defer writing.Unlock()
		over = true
	}()
	s.take(r.Context(), r.Header.Get("Mcp-Session-Id"), m, func(message string) {
		writing.Lock()
		defer writing.Unlock()
		switch {
		case over:
		case !streamed && parse([]byte(message)).Method == "":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, message)
		default:
			if !streamed {
				w.Header().Set("Content-Type", "text/event-stream")
			}
			streamed = true
			event(message)
		}
	})
}

// onStdio has the scripts that take the place of commands, by the command.
var (
	onStdio     sync.Map
	scriptCount atomic.Int64
)

// programs returns the script that takes the place of a command.
func programs(s upstream.Settings) conn.Program {
	if found, ok := onStdio.Load(s.Command); ok {
		return found.(*script).serve
	}
	return nil
}

// serve is the script as a stdio server.
func (s *script) serve(ctx context.Context, stdin io.Reader, stdout, _ io.Writer) string {
	ctx, cancel := context.WithCancel(ctx)
	from := fmt.Sprint("process-", scriptCount.Add(1), " ")
	var writing sync.Mutex // held while one message is written
	write := func(message string) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = io.WriteString(stdout, message+"\n")
	}
	var handling sync.WaitGroup
	defer handling.Wait()
	defer cancel()
	if !s.modern {
		line := &request{script: s, write: write}
		s.stand(line)
		defer s.leave(line)
	}
	in := bufio.NewReader(stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return "exit status 0"
		}
		m := parse(bytes.TrimSpace(line))
		if m.ID == nil || m.Method == "" {
			s.take(ctx, from, m, write)
			continue
		}
		handling.Go(func() { s.take(ctx, from, m, write) })
	}
}

// member is one member of an object.
type member struct {
	key   string
	value string
}

// members takes an object apart without this project's own code for it, so that
// duplicates, order and every byte of the values count.
func members(raw []byte) []member {
	var all []member
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		all = append(all, member{key.(string), string(value)})
	}
	return all
}

func part(object []byte, key string) json.RawMessage {
	for _, m := range members(object) {
		if m.key == key {
			return json.RawMessage(m.value)
		}
	}
	return nil
}

// without are the members but those of the given keys.
func without(all []member, keys ...string) []member {
	return slices.DeleteFunc(slices.Clone(all), func(m member) bool { return slices.Contains(keys, m.key) })
}

func text(raw []byte) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}
