package proxy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/proxy"
	"toolfinch/tool"
	"toolfinch/view"
)

// Servers appear, change their tools, hang in a call, die and return; clients of both eras
// come, list, search, provision, call in every way, and leave; the configuration is loaded
// again with other servers, views, budgets and policies. After every step:
//
//   - an answer has the bytes that the called server made for this very call, or is a failure;
//   - every call ends once, and no server hears of it twice;
//   - what is listed is what the model says, byte for byte, and can be called if its server lives;
//   - what a policy, a view or a reload took away is in no answer: no list, search or error;
//   - provisioned and registered tools are within their budgets, and cost what is said.
//
// In the end nothing runs any more. All this is in a bubble of testing/synctest, over a
// network in memory: time passes only while everything waits for it.
//
// By default the cases are always the same, so a failure is of the code that changed;
// TOOLFINCH_LONG=1, -rapid.checks and -rapid.seed take others.
func TestWhateverHappensEachCallIsAnsweredOnceAndAsItsOwn(t *testing.T) {
	settings := map[string]string{"rapid.checks": "20", "rapid.seed": "1"}
	if os.Getenv("TOOLFINCH_LONG") != "" {
		settings = map[string]string{"rapid.checks": "600"}
	}
	flag.Visit(func(f *flag.Flag) { delete(settings, f.Name) })
	for name, value := range settings {
		was := flag.Lookup(name).Value.String()
		_ = flag.Set(name, value)
		t.Cleanup(func() { _ = flag.Set(name, was) })
	}
	network := &memory{}
	network.install(t)

	rapid.Check(t, func(r *rapid.T) {
		rapid.SyncTest(r, func(r *rapid.T) {
			w := openWorld(&checked{TB: t, r: r}, network)
			r.Cleanup(w.close)
			steps := map[string]func(*rapid.T){
				"":                    func(*rapid.T) { w.look() },
				"a client comes":      w.clientComes,
				"a client leaves":     w.clientLeaves,
				"a call":              w.callOne,
				"a call that hangs":   w.callHangs,
				"a call goes on":      w.callGoesOn,
				"a call is cancelled": w.callIsCancelled,
				"provision":           w.provision,
				"provision more":      w.provision,
				"unprovision":         w.unprovision,
				"calls in the midst":  w.callInTheMidst,
			}
			for name, c := range w.changes() {
				steps[name] = func(r *rapid.T) {
					if !c.can() {
						r.Skip()
					}
					c.do(r)
					w.settle()
				}
			}
			r.Repeat(steps)
			w.close()
		})
	})
}

// checked is the test as helpers want it, in one of its cases.
type checked struct {
	testing.TB
	r    *rapid.T
	ends []func()
}

func (c *checked) Helper()                           {}
func (c *checked) Cleanup(f func())                  { c.ends = append(c.ends, f) }
func (c *checked) Context() context.Context          { return c.r.Context() }
func (c *checked) Error(args ...any)                 { c.r.Error(args...) }
func (c *checked) Errorf(format string, args ...any) { c.r.Errorf(format, args...) }
func (c *checked) Fatal(args ...any)                 { c.r.Fatal(args...) }
func (c *checked) Fatalf(format string, args ...any) { c.r.Fatalf(format, args...) }

// clean runs the cleanups, the last one first.
func (c *checked) clean() {
	for len(c.ends) > 0 {
		end := c.ends[len(c.ends)-1]
		c.ends = c.ends[:len(c.ends)-1]
		end()
	}
}

// world is a proxy with all that is around it, and a model of what it should do.
type world struct {
	*checked
	network *memory
	dir     string // of the store
	p       *proxy.Proxy
	stop    func()
	farms   []*farm
	guests  []*customer
	hanging []*calling
	looks   int      // so far
	calls   int      // so far
	words   []string // that descriptions have, or had

	excluded map[string]bool   // by ID, what the view "all" leaves out
	picked   map[string]bool   // the servers of the view "few"
	forbids  map[string]string // by ID, the client that may not use it, "" for all
	budget   view.Gating       // of the view "gated"
	owners   map[string]*holder

	mu    sync.Mutex // guards what follows, which servers use; not held over anything
	heard map[string][]arrival
	stops map[string]*stop
}

// farm is a server of the world.
type farm struct {
	*script
	address    string
	door       *door
	configured bool
	alive      bool
	tools      map[string]string // by name, the word of its description
	known      map[string]string // the same as the proxy listed it last
	forgotten  int               // sessions before its last start
}

// customer is a client of the world.
type customer struct {
	*rawClient
	view, called string
	owner        *holder
	scope        *checked
}

// holder has a set of provisioned tools: a session, or all who have none together.
type holder struct {
	called string          // its client
	tools  map[string]bool // by ID; false where it may have been forgotten, because it was away
}

// arrival is a call as a server heard it.
type arrival struct{ server, tool, arguments string }

// stop is where a call hangs in its server.
type stop struct{ goOn, over chan struct{} }

// calling is a call that was begun.
type calling struct {
	pending
	by        *customer
	to        offer
	token     string
	arguments string
	stop      *stop // nil if it does not hang
}

// offer is a tool as a view has it.
type offer struct{ name, id, server, tool, definition string }

// toolNames are the names of the tools of each server, which always has the first.
var toolNames = []string{"alpha", "bravo", "carol"}

func definition(name, word string) string {
	return `{"name":"` + name + `","description":"Brings the ` + word + `.","inputSchema":{"type":"object","properties":{"token":{"type":"string"}},"required":["token"]},"unknown":1.50}`
}

func openWorld(c *checked, network *memory) *world {
	w := &world{
		checked: c, network: network, dir: c.TempDir(), budget: view.Gating{MaxTools: 2},
		excluded: map[string]bool{}, picked: map[string]bool{"ant": true}, forbids: map[string]string{},
		owners: map[string]*holder{"": {called: "raw", tools: map[string]bool{}}},
		heard:  map[string][]arrival{}, stops: map[string]*stop{},
	}
	ended := await.Began()
	w.Cleanup(func() {
		synctest.Wait()
		closed := time.Now()
		if ended(c); !time.Now().Equal(closed) {
			w.Errorf("something went on after the proxy was closed")
		}
	})
	for i, name := range []string{"ant", "bee", "cow"} {
		f := &farm{script: scripted(name, i == 1), address: name + ":80", tools: map[string]string{}, configured: i < 2}
		f.capabilities = `{"tools":{"listChanged":true}}`
		f.settings.URL = "http://" + name
		f.settings.CallTimeout = 1000 * time.Hour
		f.on("tools/call", func(r *request) { w.serve(f, r) })
		w.farms = append(w.farms, f)
		w.offers(f, map[string]string{"alpha": w.word(), "bravo": w.word()})
		w.start(f)
		w.Cleanup(func() { w.kill(f) })
	}
	p, err := proxy.Open(c.Context(), w.config(), proxy.WithPrograms(programs))
	if err != nil {
		w.Fatal(err)
	}
	w.p = p
	front := network.listen("127.0.0.1:80")
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- p.Run(ctx, func(ctx context.Context) error { return p.ServeHTTP(ctx, front) }) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := await.Value(c, served); err != nil {
			w.Errorf("Run: %v", err)
		}
		if err := p.Close(); err != nil {
			w.Errorf("Close: %v", err)
		}
	})
	w.Cleanup(w.stop)
	w.settle()
	w.comes("gated", kind{})
	w.comes("find", kind{modern: true})
	w.comes("all", kind{name: "guest"})
	return w
}

// close ends everything: by turns the proxy first, or its clients.
func (w *world) close() {
	if w.looks%2 == 0 {
		w.leaveAll()
	}
	w.stop()
	for _, c := range w.hanging {
		if got := await.Value(w, c.answer); !failed(got) {
			w.Errorf("a call of %s that hung at the end is answered %q", c.by.called, got.raw)
		}
	}
	w.hanging = nil
	w.leaveAll()
	w.clean()
}

func (w *world) leaveAll() {
	for len(w.guests) > 0 {
		w.leave(0)
	}
}

// word is one that no description has had.
func (w *world) word() string {
	const letters = "bcdfghjklmnpqrstvwxz"
	text := []byte("qqqqqqq")
	for n, i := len(w.words)*7919+104729, 1; i < len(text); n, i = n/len(letters), i+1 {
		text[i] = letters[n%len(letters)]
	}
	w.words = append(w.words, string(text))
	return string(text)
}

// config is what the proxy should have now.
func (w *world) config() *configs.Config {
	all, few := everything("all", view.ExposureDirect), view.Settings{Name: "few", Exposure: view.ExposureSearch}
	for id := range w.excluded {
		all.Exclude = append(all.Exclude, view.Pattern{Glob: id})
	}
	config := &configs.Config{
		DataDir: w.dir, TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 2, DefaultView: "find",
	}
	for _, f := range w.farms {
		if !f.configured {
			continue
		}
		config.Servers = append(config.Servers, f.settings)
		if name := f.settings.Name; w.picked[name] {
			few.Tools = append(few.Tools, view.UpstreamTools{Name: name, Tools: []view.Override{{Tool: "alpha", Name: "only_" + name}}})
		}
	}
	config.Views = []view.Settings{all, everything("find", view.ExposureRetrieve), few, gated("gated", view.ExposureRetrieve, w.budget)}
	if len(w.forbids) > 0 {
		text := `permit (principal, action, resource);`
		for id, who := range w.forbids {
			text += ` forbid (principal, action, resource == Tool::"` + id + `")`
			if who != "" {
				text += ` when { context.client.name == "` + who + `" }`
			}
			text += `;`
		}
		config.Policies = policies(w, text)
	}
	return changing(config)
}

func (w *world) reload() { reload(w, w.p, w.config()) }

// settle lets enough time pass for whatever has begun: the longest pause between two
// attempts to reach a server, and the moment in which changes of a list gather.
func (w *world) settle() {
	time.Sleep(2 * time.Minute) // the clock of the bubble: nobody waits for it
	synctest.Wait()
	for _, f := range w.farms {
		if f.configured && f.alive {
			f.known = maps.Clone(f.tools)
		}
	}
	for _, o := range w.owners {
		there := w.offersTo("gated", o.called)
		for id := range o.tools {
			o.tools[id] = o.tools[id] && slices.ContainsFunc(there, func(one offer) bool { return one.id == id })
		}
	}
	w.hanging = slices.DeleteFunc(w.hanging, func(c *calling) bool {
		f := w.farm(c.to.server)
		if f.alive && f.configured {
			return false
		}
		if got := await.Value(w, c.answer); !failed(got) {
			w.Errorf("a call whose server went is answered %q", got.raw)
		}
		return true
	})
}

// farm is a server by its name.
func (w *world) farm(name string) *farm {
	return w.farms[slices.IndexFunc(w.farms, func(f *farm) bool { return f.settings.Name == name })]
}

// offers changes the tools of a server.
func (w *world) offers(f *farm, tools map[string]string) {
	f.tools = tools
	var defs []string
	for _, name := range slices.Sorted(maps.Keys(tools)) {
		defs = append(defs, definition(name, tools[name]))
	}
	f.list("tools", defs...)
}

// start starts a server.
func (w *world) start(f *farm) {
	f.door, f.alive = w.network.listen(f.address), true
	server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if n, err := strconv.Atoi(strings.TrimPrefix(r.Header.Get("Mcp-Session-Id"), "session-")); err == nil && n <= f.forgotten {
			http.Error(rw, "no such session", http.StatusNotFound)
			return
		}
		f.ServeHTTP(rw, r)
	})}
	go func() { _ = server.Serve(f.door) }()
}

// kill ends a server, and all that it remembers.
func (w *world) kill(f *farm) {
	f.alive = false
	f.door.kill()
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = f.count
}

// serve answers a call, at once or when it goes on.
func (w *world) serve(f *farm, r *request) {
	arguments := part(r.Params, "arguments")
	token := partText(arguments, "token")
	w.mu.Lock()
	w.heard[token] = append(w.heard[token], arrival{f.settings.Name, r.about(), string(arguments)})
	at := w.stops[token]
	w.mu.Unlock()
	if at != nil {
		defer close(at.over)
		select {
		case <-at.goOn:
		case <-r.ended:
			return
		}
	}
	r.result(echo(f.settings.Name, r.about(), token))
}

// echo is the result of a call, its first member aside.
func echo(server, tool, token string) string {
	return `{"content":[{"type":"text","text":"` + server + ` ` + tool + ` ` + token + `","unknown":1.50}],"big":12345678901234567890}`
}

// universe is every tool that there could be, as a view would name it.
func (w *world) universe(view string) (all []offer) {
	for _, f := range w.farms {
		for _, own := range toolNames {
			one := offer{name: f.settings.Name + "_" + own, id: f.settings.Name + "." + own, server: f.settings.Name, tool: own}
			if view == "few" && own == "alpha" {
				one.name = "only_" + f.settings.Name
			}
			one.definition = definition(one.name, f.known[own])
			all = append(all, one)
		}
	}
	return all
}

// offersTo are the tools that a view has for a client.
func (w *world) offersTo(view, client string) []offer {
	return slices.DeleteFunc(w.universe(view), func(one offer) bool {
		f := w.farm(one.server)
		who, forbidden := w.forbids[one.id]
		return !f.configured || f.known[one.tool] == "" || forbidden && (who == "" || who == client) ||
			view == "all" && w.excluded[one.id] || view == "few" && (one.tool != "alpha" || !w.picked[one.server])
	})
}

// callable are the tools that a client can call, if their servers live.
func (w *world) callable(v *customer) []offer {
	all := w.offersTo(v.view, v.called)
	if v.view == "gated" {
		names, _ := w.provisioned(v)
		all = slices.DeleteFunc(all, func(one offer) bool { return !slices.Contains(names, one.name) })
	}
	return all
}

// ways to call a tool, by view.
var waysOf = map[string][]func(one offer, arguments string) string{
	"all":   {byName},
	"find":  {byName, by("call_tool", "name", offer.exposed), by("call_tool", "name", offer.dotted)},
	"few":   {byName, by("few_call_tool", "name", offer.exposed), by("few_call_tool", "name", offer.dotted)},
	"gated": {byName, by("call_tool", "name", offer.exposed), by("execute_tool", "tool_id", offer.dotted)},
}

func (o offer) exposed() string { return o.name }
func (o offer) dotted() string  { return o.id }

func byName(one offer, arguments string) string { return toolCall(one.name, arguments) }

func by(meta, key string, called func(offer) string) func(offer, string) string {
	return func(one offer, arguments string) string {
		return toolCall(meta, `{"`+key+`":"`+called(one)+`","arguments":`+arguments+`}`)
	}
}

// calls begins a call in one of the ways of its view.
func (w *world) begin(v *customer, one offer, way int, hangs bool) *calling {
	w.calls++
	c := &calling{by: v, to: one, token: fmt.Sprintf("token %d", w.calls)}
	c.arguments = `{"token":"` + c.token + `","big":12345678901234567890,"\u003c":[ 1.50 ]}`
	if hangs {
		c.stop = &stop{make(chan struct{}), make(chan struct{})}
		w.mu.Lock()
		w.stops[c.token] = c.stop
		w.mu.Unlock()
	}
	ways := waysOf[v.view]
	c.pending = v.begin("tools/call", ways[way%len(ways)](one, c.arguments))
	return c
}

// outcome is what a call may end with.
type outcome int

const (
	either    outcome = iota // the answer of the server, or a failure
	succeeds                 // the answer of the server
	isRefused                // a failure of which no server has heard
	fails                    // a failure
)

// judge waits for the end of a call, and returns it.
func (w *world) judge(c *calling, want outcome) message {
	got := await.Value(w, c.answer)
	w.mu.Lock()
	heard := w.heard[c.token]
	w.mu.Unlock()
	own := strings.HasSuffix(string(got.Result), echo(c.to.server, c.to.tool, c.token)[1:])
	says := func(what string) {
		w.Errorf("%s: %s %q calls %s in %q: %s; servers heard %v", what, eraOf(c.by), c.by.called, c.to.name, c.by.view, got.raw, heard)
	}
	switch {
	case len(heard) > 1:
		says("called twice")
	case len(heard) == 1 && heard[0] != arrival{c.to.server, c.to.tool, c.arguments}:
		says("another call")
	case own && len(heard) == 0:
		says("answered by nobody")
	case own == failed(got):
		says("an answer that is not its own")
	case want == succeeds && !own:
		says("it should be answered")
	case (want == fails || want == isRefused) && own:
		says("it should fail")
	case want == isRefused && len(heard) > 0:
		says("it should reach nobody")
	}
	return got
}

func eraOf(v *customer) string { return kind{modern: v.modern, stdio: v.http == nil}.String() }

// discreet fails the test if an answer names what its client may not know of. asked, which
// errors repeat, does not count.
func (w *world) discreet(v *customer, got message, asked ...string) {
	said := got.raw
	for _, one := range asked {
		said = strings.ReplaceAll(said, one, "")
	}
	there := w.offersTo(v.view, v.called)
	for _, word := range w.words {
		if strings.Contains(said, word) && !slices.ContainsFunc(there, func(one offer) bool { return strings.Contains(one.definition, word) }) {
			w.Errorf("%s %q in %q is told %q: %s", eraOf(v), v.called, v.view, word, got.raw)
		}
	}
	for _, one := range w.universe(v.view) {
		if (strings.Contains(said, one.name) || strings.Contains(said, one.id)) && !slices.Contains(there, one) {
			w.Errorf("%s %q in %q is told of %q: %s", eraOf(v), v.called, v.view, one.name, got.raw)
		}
	}
}

// look holds what there is against the model.
func (w *world) look() {
	for i, v := range w.guests {
		n := w.looks + i
		there, callable := w.offersTo(v.view, v.called), w.callable(v)
		w.list(v, there, callable)
		alive := slices.DeleteFunc(slices.Clone(callable), func(one offer) bool { return !w.farm(one.server).alive })
		if len(alive) > 0 {
			w.judge(w.begin(v, alive[n%len(alive)], n, false), succeeds)
		}
		others := slices.DeleteFunc(w.universe(v.view), func(one offer) bool { return slices.Contains(callable, one) })
		if len(others) > 0 {
			one := others[n%len(others)]
			w.discreet(v, w.judge(w.begin(v, one, n, false), isRefused), one.name, one.id)
		}
		w.search(v, w.words[len(w.words)-1-n%min(len(w.words), 9)], there)
		misspelt := "ant_alhpa"
		w.discreet(v, v.ask("tools/call", toolCall(misspelt, `{}`)), misspelt)
		v.mu.Lock()
		strays := v.strays
		v.mu.Unlock()
		if len(strays) > 0 {
			w.Errorf("%s: answers for which nobody waits: %v", eraOf(v), strays)
		}
	}
	for _, c := range w.hanging {
		select {
		case got := <-c.answer:
			w.Fatalf("a call that hangs in its server is answered %q", got.raw)
		default:
		}
	}
	w.looks++
}

// list holds the list of tools against the model.
func (w *world) list(v *customer, there, callable []offer) {
	got := await.Value(w, v.begin("tools/list", `{}`).answer)
	w.discreet(v, got)
	var all []json.RawMessage
	_ = json.Unmarshal(part(got.Result, "tools"), &all)
	var meta []string
	listed := map[string]string{}
	for _, one := range all {
		name := partText(one, "name")
		if slices.ContainsFunc(w.universe(v.view), func(one offer) bool { return one.name == name }) {
			listed[name] = string(one)
		} else {
			meta = append(meta, name)
		}
	}
	whole, most := map[string]string{}, 0
	for _, one := range there {
		whole[one.name] = one.definition
	}
	wantMeta := map[string][]string{"find": {"retrieve_tools", "call_tool"}, "few": {"few_search_tools", "few_describe_tool", "few_call_tool", "retrieve_tools"}, "gated": provisioning}[v.view]
	switch {
	case v.view == "all":
		most = len(whole)
	case v.view == "find" && !v.modern:
		most = 2
	case v.view == "gated" && !v.modern:
		maps.DeleteFunc(whole, func(name, _ string) bool {
			return !slices.ContainsFunc(callable, func(one offer) bool { return one.name == name })
		})
		most = len(whole)
	}
	ok := slices.Equal(meta, wantMeta) && len(listed) <= most
	for name, definition := range listed {
		ok = ok && whole[name] == definition
	}
	if v.view != "find" && most > 0 {
		ok = ok && len(listed) == len(whole)
	}
	if !ok {
		w.Errorf("%s %q in %q is listed %s\nwant %v and %v, at most %d", eraOf(v), v.called, v.view, got.raw, wantMeta, whole, most)
	}
}

// search asks for the tool with a word: it is found if it is there.
func (w *world) search(v *customer, word string, there []offer) {
	meta := map[string]string{"find": "retrieve_tools", "few": "few_search_tools", "gated": "retrieve_tools"}[v.view]
	if meta == "" {
		return
	}
	got := await.Value(w, v.begin("tools/call", toolCall(meta, `{"query":"brings the `+word+`","limit":3}`)).answer)
	w.discreet(v, got, word)
	at := slices.IndexFunc(there, func(one offer) bool { return strings.Contains(one.definition, word) })
	if failed(got) || at >= 0 && !strings.Contains(got.raw, there[at].name) {
		w.Errorf("%s %q in %q does not find %q: %s", eraOf(v), v.called, v.view, word, got.raw)
	}
}

// provisioned are the names of the tools that a client has provisioned, and their tokens.
func (w *world) provisioned(v *customer) (names []string, tokens int) {
	got := v.ask("tools/call", toolCall("list_provisioned", `{}`))
	answer := answerOf(got)
	w.discreet(v, got)
	var all []json.RawMessage
	_ = json.Unmarshal(part(answer, "provisioned"), &all)
	there := w.offersTo(v.view, v.called)
	for _, said := range all {
		name := partText(said, "tool_id")
		at := slices.IndexFunc(there, func(one offer) bool { return one.name == name })
		if at < 0 {
			w.Fatalf("%s is not there, and provisioned: %s", name, got.raw)
		}
		if _, may := v.owner.tools[there[at].id]; !may {
			w.Errorf("%s is provisioned, and nobody did that: %s", name, got.raw)
		}
		cost := tool.CountTokens([]byte(there[at].definition))
		if n := number(w, said, "tokens"); n != cost {
			w.Errorf("%s is said to cost %d tokens, want %d", name, n, cost)
		}
		names, tokens = append(names, name), tokens+cost
	}
	if number(w, answer, "usage", "tools") != len(names) || number(w, answer, "usage", "tokens") != tokens {
		w.Errorf("list_provisioned = %s, want in all %d tools and %d tokens", answer, len(names), tokens)
	}
	for _, one := range there {
		if certain, maybe := v.owner.tools[one.id]; certain && !slices.Contains(names, one.name) {
			w.Errorf("%s was provisioned, and is not any more: %s", one.name, got.raw)
		} else if maybe {
			if v.owner.tools[one.id] = slices.Contains(names, one.name); !v.owner.tools[one.id] {
				delete(v.owner.tools, one.id)
			}
		}
	}
	return names, tokens
}

// inGated draws a client of the gated view.
func (w *world) inGated(r *rapid.T) *customer {
	var all []*customer
	for _, v := range w.guests {
		if v.view == "gated" {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		r.Skip()
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(r, "client")]
}

func (w *world) provision(r *rapid.T) {
	v := w.inGated(r)
	there := w.offersTo(v.view, v.called)
	choice := there
	if len(there) == 0 || rapid.IntRange(0, 5).Draw(r, "any") == 5 {
		choice = w.universe("gated")
	}
	wanted := rapid.SliceOfNDistinct(rapid.SampledFrom(choice), 1, min(len(choice), 4), offer.exposed).Draw(r, "tools")
	atMost := rapid.SampledFrom([]int{0, 0, 60, 150}).Draw(r, "max_tokens")
	before, used := w.provisioned(v)
	want, asked, known := slices.Clone(before), 0, true
	var ids []string
	for _, one := range wanted {
		ids = append(ids, one.name)
		known = known && slices.Contains(there, one)
		if !slices.Contains(before, one.name) {
			want, asked = append(want, one.name), asked+tool.CountTokens([]byte(one.definition))
		}
	}
	fits := (w.budget.MaxTools == 0 || len(want) <= w.budget.MaxTools) && (w.budget.MaxTokens == 0 || used+asked <= w.budget.MaxTokens) && (atMost == 0 || asked <= atMost)
	fits = fits || len(want) == len(before)
	list, _ := json.Marshal(ids)
	arguments := `{"tool_ids":` + string(list) + `}`
	if atMost > 0 {
		arguments = fmt.Sprintf(`{"tool_ids":%s,"max_tokens":%d}`, list, atMost)
	}
	got := v.ask("tools/call", toolCall("provision_tools", arguments))
	w.discreet(v, got, ids...)
	switch {
	case failed(got) == (known && fits):
		w.Errorf("provision %s beside %v, within %+v and %d tokens: %s", list, before, w.budget, atMost, got.raw)
	case known && fits:
		for _, one := range wanted {
			v.owner.tools[one.id] = true
		}
	default:
		want = before
		if known && !strings.Contains(got.raw, "over budget") {
			w.Errorf("over budget: %s", got.raw)
		}
	}
	if after, _ := w.provisioned(v); !slices.Equal(after, want) {
		w.Errorf("provisioned are %v, want %v", after, want)
	}
}

func (w *world) unprovision(r *rapid.T) {
	v := w.inGated(r)
	one := rapid.SampledFrom(w.universe("gated")).Draw(r, "tool")
	before, _ := w.provisioned(v)
	w.discreet(v, v.ask("tools/call", toolCall("unprovision_tools", `{"tool_ids":["`+one.name+`"]}`)), one.name)
	if slices.Contains(w.offersTo(v.view, v.called), one) {
		delete(v.owner.tools, one.id)
	}
	want := slices.DeleteFunc(before, func(name string) bool { return name == one.name })
	if after, _ := w.provisioned(v); !slices.Equal(after, want) {
		w.Errorf("provisioned are %v, want %v", after, want)
	}
}

func (w *world) clientComes(r *rapid.T) {
	if len(w.guests) == 5 {
		r.Skip()
	}
	var k kind
	switch rapid.SampledFrom([]string{"legacy", "modern", "guest"}).Draw(r, "client") {
	case "modern":
		k.modern = true
	case "guest":
		k.name = "guest"
	}
	view := rapid.SampledFrom([]string{"all", "find", "few", "gated"}).Draw(r, "view")
	k.stdio = view == "find" && rapid.Bool().Draw(r, "stdio")
	w.comes(view, k)
}

// comes brings a client.
func (w *world) comes(view string, k kind) {
	v := &customer{view: view, called: cmp.Or(k.name, "raw"), scope: &checked{TB: w.TB, r: w.r}, owner: w.owners[""]}
	k.over = w.network.transport()
	v.rawClient = newClientAt(v.scope, w.p, "http://127.0.0.1/mcp/"+v.view, k, `{}`, reply)
	if v.id != "" {
		v.owner = &holder{v.called, map[string]bool{}}
		w.owners[v.id] = v.owner
	}
	w.guests = append(w.guests, v)
}

// guest draws a client.
func (w *world) guest(r *rapid.T) *customer {
	if len(w.guests) == 0 {
		r.Skip()
	}
	return w.guests[rapid.IntRange(0, len(w.guests)-1).Draw(r, "client")]
}

func (w *world) clientLeaves(r *rapid.T) {
	w.leave(slices.Index(w.guests, w.guest(r)))
}

// leave ends a client; its calls end in their servers.
func (w *world) leave(i int) {
	v := w.guests[i]
	w.guests = slices.Delete(w.guests, i, i+1)
	v.scope.clean()
	if v.id != "" { // else it is nobody's, or has none: stdio is for another view
		delete(w.owners, v.id)
	}
	synctest.Wait()
	w.hanging = slices.DeleteFunc(w.hanging, func(c *calling) bool {
		if c.by == v {
			w.isOver(c)
		}
		return c.by == v
	})
}

// isOver fails the test if a server is still at a call.
func (w *world) isOver(c *calling) {
	select {
	case <-c.stop.over:
	default:
		w.Errorf("a server is still at a call that %s %q does not wait for any more", eraOf(c.by), c.by.called)
	}
}

func (w *world) callOne(r *rapid.T) {
	v := w.guest(r)
	one := rapid.SampledFrom(w.universe(v.view)).Draw(r, "tool")
	c := w.begin(v, one, rapid.IntRange(0, 2).Draw(r, "way"), false)
	w.discreet(v, w.judge(c, w.expected(v, one)), one.name, one.id)
}

// expected is what a call should end with that is made now.
func (w *world) expected(v *customer, one offer) outcome {
	switch {
	case !slices.Contains(w.callable(v), one):
		return isRefused
	case !w.farm(one.server).alive:
		return fails
	}
	return succeeds
}

func (w *world) callHangs(r *rapid.T) {
	v := w.guest(r)
	callable := slices.DeleteFunc(w.callable(v), func(one offer) bool { return !w.farm(one.server).alive })
	if len(callable) == 0 || len(w.hanging) == 3 {
		r.Skip()
	}
	one := rapid.SampledFrom(callable).Draw(r, "tool")
	w.hanging = append(w.hanging, w.begin(v, one, rapid.IntRange(0, 2).Draw(r, "way"), true))
	w.settle()
}

// hung draws a call that hangs, which ends now.
func (w *world) hung(r *rapid.T) *calling {
	if len(w.hanging) == 0 {
		r.Skip()
	}
	i := rapid.IntRange(0, len(w.hanging)-1).Draw(r, "call")
	c := w.hanging[i]
	w.hanging = slices.Delete(w.hanging, i, i+1)
	return c
}

func (w *world) callGoesOn(r *rapid.T) {
	c := w.hung(r)
	close(c.stop.goOn)
	w.judge(c, succeeds)
}

func (w *world) callIsCancelled(r *rapid.T) {
	c := w.hung(r)
	c.cancel()
	synctest.Wait()
	w.isOver(c)
	select {
	case got := <-c.answer:
		if got.raw != "" && !failed(got) {
			w.Errorf("a call that was cancelled is answered %s", got.raw)
		}
	default:
	}
}

// change is one of what is around the clients.
type change struct {
	can func() bool
	do  func(r *rapid.T)
}

// changes are all of them. They take effect in their time.
func (w *world) changes() map[string]change {
	always := func() bool { return true }
	each := func(which func(*farm) bool, do func(r *rapid.T, f *farm)) change {
		those := func() (all []*farm) {
			for _, f := range w.farms {
				if which(f) {
					all = append(all, f)
				}
			}
			return all
		}
		return change{func() bool { return len(those()) > 0 }, func(r *rapid.T) {
			all := those()
			do(r, all[rapid.IntRange(0, len(all)-1).Draw(r, "server")])
		}}
	}
	ids := func(r *rapid.T, label string) (ids []string) {
		for _, one := range rapid.SliceOfNDistinct(rapid.SampledFrom(w.universe("all")), 0, 2, offer.dotted).Draw(r, label) {
			ids = append(ids, one.id)
		}
		return ids
	}
	return map[string]change{
		"a server comes": each(func(f *farm) bool { return !f.configured }, func(_ *rapid.T, f *farm) {
			f.configured, f.known = true, nil
			w.reload()
		}),
		"a server goes": each(func(f *farm) bool { return f.configured }, func(_ *rapid.T, f *farm) {
			f.configured, f.known = false, nil
			w.reload()
		}),
		"a server dies":    each(func(f *farm) bool { return f.alive }, func(_ *rapid.T, f *farm) { w.kill(f) }),
		"a server returns": each(func(f *farm) bool { return !f.alive }, func(_ *rapid.T, f *farm) { w.start(f) }),
		"other tools": each(func(*farm) bool { return true }, func(r *rapid.T, f *farm) {
			tools := map[string]string{}
			for i, name := range toolNames {
				switch is := rapid.SampledFrom([]string{"new", "as it was", "none"}).Draw(r, name); {
				case is == "new", i == 0 && f.tools[name] == "":
					tools[name] = w.word()
				case is == "as it was" && f.tools[name] != "", i == 0:
					tools[name] = f.tools[name]
				}
			}
			w.offers(f, tools)
			if f.alive && f.configured {
				f.tell(w, "notifications/tools/list_changed", `{}`)
			}
		}),
		"another policy": {always, func(r *rapid.T) {
			w.forbids = map[string]string{}
			for _, id := range ids(r, "forbidden") {
				w.forbids[id] = rapid.SampledFrom([]string{"", "guest"}).Draw(r, "to")
			}
			w.reload()
		}},
		"other views": {always, func(r *rapid.T) {
			w.excluded, w.picked = map[string]bool{}, map[string]bool{}
			for _, id := range ids(r, "excluded") {
				w.excluded[id] = true
			}
			for _, f := range w.farms {
				w.picked[f.settings.Name] = rapid.Bool().Draw(r, f.settings.Name)
			}
			w.budget = view.Gating{MaxTools: rapid.IntRange(0, 3).Draw(r, "max_tools"), MaxTokens: rapid.SampledFrom([]int{0, 100, 150}).Draw(r, "max_tokens")}
			w.reload()
		}},
	}
}

// callInTheMidst has clients call while something changes. What is the same before and
// after decides how the calls end.
func (w *world) callInTheMidst(r *rapid.T) {
	if len(w.guests) == 0 {
		r.Skip()
	}
	changes := w.changes()
	maps.DeleteFunc(changes, func(_ string, c change) bool { return !c.can() })
	what := rapid.SampledFrom(slices.Sorted(maps.Keys(changes))).Draw(r, "change")
	var all []*calling
	var before []outcome
	for range rapid.IntRange(1, 5).Draw(r, "calls") {
		v := w.guest(r)
		one := rapid.SampledFrom(w.universe(v.view)).Draw(r, "tool")
		before = append(before, w.expected(v, one))
		all = append(all, w.begin(v, one, rapid.IntRange(0, 2).Draw(r, "way"), false))
	}
	changes[what].do(r)
	w.settle()
	for i, c := range all {
		// Its definition may have changed meanwhile.
		now := slices.IndexFunc(w.universe(c.by.view), func(one offer) bool { return one.id == c.to.id })
		want := either
		if after := w.expected(c.by, w.universe(c.by.view)[now]); after == before[i] {
			want = after
		}
		w.judge(c, want)
	}
}
