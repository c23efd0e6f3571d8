package register

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// followed is an upstream that can be subscribed to.
type followed struct {
	mu     sync.Mutex // guards the fields below
	events []string   // "+x:r" and "-x:r"
	on     map[tool.ID]bool
	fail   error
	told   chan string // every event, once it is noted
}

func newFollowed() *followed {
	return &followed{on: map[tool.ID]bool{}, told: make(chan string, 10000)}
}

func (f *followed) subscribe(_ context.Context, id tool.ID, on bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sign := map[bool]string{true: "+", false: "-"}[on]
	f.events = append(f.events, sign+id.Name)
	f.told <- sign + id.Name
	if f.on[id] == on {
		return fmt.Errorf("%s was %t already", id, on)
	}
	if on && f.fail != nil {
		return f.fail
	}
	f.on[id] = on
	return nil
}

func (f *followed) seen() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.events, " ")
}

// exposing is a catalog whose resources have other URIs at their server.
type exposing struct{ catalog }

func (exposing) Exposed(server, uri string) string { return server + "+" + uri }

// resources adds srv+x:r and srv+x:s, which their server knows as x:r and x:s.
func resources(t testing.TB, live *Live) {
	t.Helper()
	for _, uri := range []string{"x:r", "x:s"} {
		addItem(t, live, tool.KindResource, "srv+"+uri, fmt.Sprintf(`{"uri":%q}`, uri), nil)
	}
	show(live, func(v *Served) { v.Source = exposing{live.served(identity.Party{}).Source.(catalog)} })
}

const updated = "notifications/resources/updated"

func subscribe(id int, uri string) string {
	return request(id, "resources/subscribe", fmt.Sprintf(`{"uri":%q}`, uri))
}

func unsubscribe(id int, uri string) string {
	return request(id, "resources/unsubscribe", fmt.Sprintf(`{"uri":%q}`, uri))
}

func TestSubscribersHearOfTheirResource(t *testing.T) {
	var upstream *followed
	transports(t, `{}`, setup{follows: &upstream}, func(t *testing.T, live *Live, c *conversation) {
		resources(t, live)
		messages := c.listen()
		if got, want := await(t, c.post(subscribe(1, "srv+x:r")), `"id":1`), `{"jsonrpc":"2.0","id":1,"result":{}}`; got != want {
			t.Errorf("subscribe: %s, want %s", got, want)
		}
		if got := <-upstream.told; got != "+x:r" {
			t.Errorf("the upstream was told %s", got)
		}
		live.Updated("srv", "x:s", json.RawMessage(`{"uri":"x:s"}`)) // nobody asked
		live.Updated("srv", "x:r", json.RawMessage(`{"title":"<&>","uri":"x:r","_meta":{"n":1.0}}`))
		want := `{"jsonrpc":"2.0","method":"` + updated + `","params":{"title":"<&>","uri":"srv+x:r","_meta":{"n":1.0}}}`
		if got := await(t, messages, updated); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		await(t, c.post(unsubscribe(2, "srv+x:r")), `"id":2`)
		if got := <-upstream.told; got != "-x:r" {
			t.Errorf("the upstream was told %s", got)
		}
		live.Updated("srv", "x:r", json.RawMessage(`{"uri":"x:r"}`))
		live.Notify(c.session, "notifications/last", nil)
		if got := await(t, messages, "notifications/"); !strings.Contains(got, "last") {
			t.Errorf("after unsubscribe: %s", got)
		}
	})
}

func TestAnUpstreamIsFollowedOnceForAll(t *testing.T) {
	upstream := newFollowed()
	live := newLive(t, setup{Subscriptions: NewSubscriptions(upstream.subscribe)})
	resources(t, live)
	url := serveHTTP(t, live)
	a, b, third := connect(t, url, "a"), connect(t, url, "b"), connect(t, url, "c")
	step := func(p *peer, message, want string) {
		t.Helper()
		p.messages(message)
		eventually(t, "after "+message+" the upstream has seen "+want, func() bool { return upstream.seen() == want })
	}
	step(a, subscribe(1, "srv+x:r"), "+x:r")
	step(a, subscribe(1, "srv+x:r"), "+x:r") // twice is once
	step(b, subscribe(1, "srv+x:r"), "+x:r")
	step(b, unsubscribe(1, "srv+x:r"), "+x:r")
	step(b, unsubscribe(1, "srv+x:r"), "+x:r")
	step(b, unsubscribe(1, "srv+x:s"), "+x:r") // never subscribed
	step(third, subscribe(1, "srv+x:r"), "+x:r")
	a.do(http.MethodDelete, "").Body.Close()
	step(third, unsubscribe(1, "srv+x:r"), "+x:r -x:r")
	step(third, subscribe(1, "srv+x:s"), "+x:r -x:r +x:s")
	third.do(http.MethodDelete, "").Body.Close()
	eventually(t, "the last session's end leaves the upstream", func() bool { return upstream.seen() == "+x:r -x:r +x:s -x:s" })
}

func TestPartsOfAResourceAreToldOf(t *testing.T) {
	var upstream *followed
	transports(t, `{}`, setup{follows: &upstream}, func(t *testing.T, live *Live, c *conversation) {
		resources(t, live)
		messages := c.listen()
		await(t, c.post(subscribe(1, "srv+x:r")), `"id":1`)
		live.Updated("srv", "x:rest", json.RawMessage(`{"uri":"x:rest"}`)) // another resource
		live.Updated("other", "x:r/1", json.RawMessage(`{"uri":"x:r/1"}`)) // another server's
		live.Updated("srv", "x:r/1", json.RawMessage(`{"uri":"x:r/1"}`))
		want := `{"jsonrpc":"2.0","method":"` + updated + `","params":{"uri":"srv+x:r/1"}}`
		if got := await(t, messages, updated); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// What clients know a resource by changes when another server lists the same URI.
func TestEveryoneHearsOfAResourceByTheNameTheyGaveIt(t *testing.T) {
	var upstream *followed
	transports(t, `{}`, setup{follows: &upstream}, func(t *testing.T, live *Live, c *conversation) {
		resources(t, live)
		items := live.served(identity.Party{}).Source.(exposing).catalog
		items["x:r"] = items["srv+x:r"]
		messages := c.listen()
		await(t, c.post(subscribe(1, "x:r")), `"id":1`)
		await(t, c.post(subscribe(2, "srv+x:r")), `"id":2`)
		live.Updated("srv", "x:r", json.RawMessage(`{"uri":"x:r"}`))
		got := []string{await(t, messages, updated), await(t, messages, updated)}
		slices.Sort(got)
		for i, uri := range []string{"srv+x:r", "x:r"} {
			if !strings.Contains(got[i], `{"uri":"`+uri+`"}`) {
				t.Errorf("got %v", got)
			}
		}
		await(t, c.post(unsubscribe(3, "srv+x:r")), `"id":3`)
		live.Updated("srv", "x:r", json.RawMessage(`{"uri":"x:r"}`))
		if got := await(t, messages, updated); !strings.Contains(got, `{"uri":"x:r"}`) {
			t.Errorf("after the other was ended: %s", got)
		}
		if await(t, c.post(unsubscribe(4, "x:r")), `"id":4`); !strings.HasSuffix(upstream.seen(), "+x:r -x:r") {
			t.Errorf("the upstream has seen %s", upstream.seen())
		}
	})
}

func TestASubscriptionThatFailsLeavesNothing(t *testing.T) {
	upstream := newFollowed()
	upstream.fail = &tool.RPCError{Code: -31000, Raw: json.RawMessage(`{"code":-31000,"message":"full","x":1.0}`)}
	live := newLive(t, setup{Subscriptions: NewSubscriptions(upstream.subscribe)})
	resources(t, live)
	p := connect(t, serveHTTP(t, live), "fails")
	if got, want := p.messages(subscribe(1, "srv+x:r"))[0], `{"jsonrpc":"2.0","id":1,"error":{"code":-31000,"message":"full","x":1.0}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := p.messages(subscribe(1, "srv+x:nope"))[0], `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"unknown resource \"srv+x:nope\"","data":{"uri":"srv+x:nope"}}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if keys := live.subscriptions.to("srv", "x:r"); len(keys) > 0 {
		t.Errorf("%v is still subscribed", keys)
	}
	upstream.mu.Lock()
	upstream.fail = nil
	upstream.mu.Unlock()
	if got := p.messages(subscribe(1, "srv+x:r"))[0]; !strings.Contains(got, `"result":{}`) {
		t.Errorf("the second attempt: %s", got)
	}
	if got := upstream.seen(); got != "+x:r +x:r" {
		t.Errorf("the upstream has seen %q", got)
	}
}

func TestSubscriptionsThatAreNotDeclared(t *testing.T) {
	live := newLive(t, setup{})
	resources(t, live)
	p := connect(t, serveHTTP(t, live), "none")
	if got := p.messages(subscribe(1, "srv+x:r"))[0]; !strings.Contains(got, `"error":{"code":-32601,`) {
		t.Errorf("got %s", got)
	}
}

// Whoever joins while the last one leaves is subscribed at the upstream too.
func TestJoiningWhileTheLastLeaves(t *testing.T) {
	upstream := newFollowed()
	live := newLive(t, setup{Subscriptions: NewSubscriptions(upstream.subscribe)})
	id, s := tool.ID{Server: "srv", Name: "x:r", Kind: tool.KindResource}, live.subscriptions
	for range 300 {
		must.Do(t, s.join(t.Context(), "x:r", id, "first"))
		var both sync.WaitGroup
		both.Go(func() { s.leave(t.Context(), "first") })
		both.Go(func() {
			if err := s.join(t.Context(), "x:r", id, "second"); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if keys := s.to("srv", "x:r"); !slices.Equal(keys, []subscription{{"second", "x:r"}}) || !upstream.on[id] {
			t.Fatalf("subscribed are %v, at the upstream %t", keys, upstream.on[id])
		}
		s.leave(t.Context(), "second")
		if len(s.byID) > 0 || upstream.on[id] {
			t.Fatalf("left behind: %v, at the upstream %t", s.byID, upstream.on[id])
		}
	}
}

// Leaving takes as long as the upstream answers; one that does not is waited for once.
func TestLeavingTakesAsLongAsTheUpstreamAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the fields below
		waited, told := map[string]int{}, map[string]int{}
		s := NewSubscriptions(func(ctx context.Context, id tool.ID, on bool) error {
			if on {
				return nil
			}
			mu.Lock()
			if told[id.Server]++; ctx.Err() == nil {
				waited[id.Server]++
			}
			mu.Unlock()
			select {
			case <-time.After(map[string]time.Duration{"silent": time.Hour, "gives up": 5 * time.Second}[id.Server] + time.Second):
				return map[string]error{"refuses": &tool.RPCError{Message: "no"}, "gives up": errors.New("no answer")}[id.Server]
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		for _, server := range []string{"silent", "gives up", "slow", "refuses"} {
			for i := range 20 {
				uri := fmt.Sprint(server, i)
				must.Do(t, s.join(t.Context(), uri, tool.ID{Server: server, Name: uri, Kind: tool.KindResource}, "one"))
			}
		}
		s.leave(t.Context(), "one")
		if want := map[string]int{"silent": 1, "gives up": 1, "slow": 20, "refuses": 20}; !maps.Equal(waited, want) {
			t.Errorf("waited for %v, want %v", waited, want)
		}
		if want := map[string]int{"silent": 20, "gives up": 20, "slow": 20, "refuses": 20}; !maps.Equal(told, want) || len(s.byID) != 0 {
			t.Errorf("told %v, want %v; %d are left", told, want, len(s.byID))
		}
	})
}

// A session that ends while the upstream still answers its subscription must
// not stay subscribed.
func TestASessionThatEndsWhileItSubscribes(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	upstream := newFollowed()
	live := newLive(t, setup{Subscriptions: NewSubscriptions(func(ctx context.Context, id tool.ID, on bool) error {
		if on {
			close(entered)
			<-release
		}
		return upstream.subscribe(ctx, id, on)
	})})
	resources(t, live)
	p := connect(t, serveHTTP(t, live), "hasty")
	answered := make(chan []string, 1)
	go func() { answered <- p.messages(subscribe(1, "srv+x:r")) }()
	receive(t, entered, "the subscription")
	p.do(http.MethodDelete, "").Body.Close()
	close(release)
	receive(t, answered, "the answer")
	eventually(t, "the upstream is left, and nobody is subscribed", func() bool {
		return upstream.seen() == "+x:r -x:r" && len(live.subscriptions.to("srv", "x:r")) == 0
	})
}

const subscriptionID = `"_meta":{"io.modelcontextprotocol/subscriptionId":%d}`

func TestAListenerHearsWhatItAskedFor(t *testing.T) {
	const toolChange, promptChange, resourceChange = toolsChanged, promptsChanged, resourcesChanged
	for _, test := range []struct {
		name, wants, acknowledged string
		hears                     []string
	}{
		{"tools", `{"toolsListChanged":true}`, `{"toolsListChanged":true}`, []string{toolChange}},
		{"prompts", `{"promptsListChanged":true}`, `{"promptsListChanged":true}`, []string{promptChange}},
		{"resources", `{"resourcesListChanged":true,"toolsListChanged":false}`, `{"resourcesListChanged":true}`, []string{resourceChange}},
		{"all lists", `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`,
			`{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`, []string{toolChange, promptChange, resourceChange}},
		{"a resource", `{"resourceSubscriptions":["srv+x:r","srv+x:nope"]}`, `{"resourceSubscriptions":["srv+x:r"]}`, []string{updated}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var upstream *followed
			newcomers(t, `{}`, setup{follows: &upstream}, func(t *testing.T, live *Live, n *newcomer) {
				resources(t, live)
				live.Sync()
				messages := n.request(7, "subscriptions/listen", `"notifications":`+test.wants)
				tag := fmt.Sprintf(subscriptionID, 7)
				want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + tag + `,"notifications":` + test.acknowledged + `}}`
				if got := await(t, messages, ""); got != want {
					t.Errorf("first\n got %s\nwant %s", got, want)
				}
				for _, method := range []string{toolChange, promptChange, resourceChange} {
					broadcast(live, method)
				}
				live.Updated("srv", "x:s", json.RawMessage(`{"uri":"x:s"}`))
				live.Updated("srv", "x:r", json.RawMessage(`{"uri":"x:r","x":1.0}`))
				for _, method := range test.hears {
					params := `{` + tag + `}`
					if method == updated {
						params = `{` + tag + `,"uri":"srv+x:r","x":1.0}`
					}
					if got, want := await(t, messages, ""), `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`}`; got != want {
						t.Errorf("heard\n  %s\nwant\n  %s", got, want)
					}
				}
				live.EndStreams()
				end := `{"jsonrpc":"2.0","id":7,"result":{` + tag + `,"resultType":"complete"}}`
				if got := await(t, messages, ""); got != end {
					t.Errorf("last\n got %s\nwant %s", got, end)
				}
				eventually(t, "the listener is forgotten", func() bool {
					live.listeners.mu.Lock()
					defer live.listeners.mu.Unlock()
					return len(live.listeners.byKey) == 0
				})
				if test.name == "a resource" {
					eventually(t, "the upstream is left", func() bool { return strings.HasSuffix(upstream.seen(), "+x:r -x:r") })
				}
			})
		})
	}
}

func TestAListenerOfNothingIsAnsweredAtOnce(t *testing.T) {
	newcomers(t, `{}`, setup{}, func(t *testing.T, live *Live, n *newcomer) {
		show(live, func(v *Served) { v.Declared = Declared{} })
		resources(t, live)
		for _, wants := range []string{`{}`, `{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["srv+x:r"]}`} {
			messages := n.request(7, "subscriptions/listen", `"notifications":`+wants)
			await(t, messages, `"notifications":{}`)
			if got := await(t, messages, ""); !strings.Contains(got, `"id":7,"result":`) {
				t.Errorf("%s: %s", wants, got)
			}
		}
		if got := n.answer(8, "subscriptions/listen", `"notifications":"all"`); !strings.Contains(got, `"error":{"code":-32602,`) {
			t.Errorf("bad parameters: %s", got)
		}
	})
}

func TestTwoListenersOnOneStreamAreToldApart(t *testing.T) {
	upstream := newFollowed()
	live := newLive(t, setup{Subscriptions: NewSubscriptions(upstream.subscribe)})
	resources(t, live)
	n := &newcomer{t: t, stdio: overStdio(t, live, ""), capabilities: `{}`}
	for id, uri := range map[int]string{1: "srv+x:r", 2: "srv+x:s"} {
		await(t, n.request(id, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["`+uri+`"]}`), "acknowledged")
	}
	live.Updated("srv", "x:s", json.RawMessage(`{"uri":"x:s"}`))
	if got := await(t, n.stdio.listen(), updated); !strings.Contains(got, fmt.Sprintf(subscriptionID, 2)) || !strings.Contains(got, "srv+x:s") {
		t.Errorf("got %s", got)
	}
	n.stdio.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
	eventually(t, "the second one has ended", func() bool { return strings.HasSuffix(upstream.seen(), "-x:s") })
	live.Updated("srv", "x:s", json.RawMessage(`{"uri":"x:s"}`))
	live.Updated("srv", "x:r", json.RawMessage(`{"uri":"x:r"}`))
	if got := await(t, n.stdio.listen(), updated); !strings.Contains(got, "srv+x:r") {
		t.Errorf("got %s", got)
	}
}

func TestAListenerWhoseSubscriptionFailsHearsTheRest(t *testing.T) {
	var upstream *followed
	newcomers(t, `{}`, setup{follows: &upstream}, func(t *testing.T, live *Live, n *newcomer) {
		upstream.fail = errors.New("full")
		resources(t, live)
		messages := n.request(7, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["srv+x:r"]}`)
		if got := await(t, messages, "acknowledged"); !strings.Contains(got, `"notifications":{"toolsListChanged":true}`) {
			t.Errorf("got %s", got)
		}
		if keys := live.subscriptions.to("srv", "x:r"); len(keys) > 0 {
			t.Errorf("%v is subscribed", keys)
		}
	})
}

// A client that does not read costs nobody else anything.
func TestAListenerThatDoesNotReadBlocksNobody(t *testing.T) {
	live := newLive(t, setup{})
	server := serveHTTP(t, live)
	n := &newcomer{t: t, url: server, capabilities: `{}`}
	const wants = `"notifications":{"toolsListChanged":true}`
	deaf := (&peer{t: t, url: server}).post(n.body(1, "subscriptions/listen", wants), n.headers("subscriptions/listen", wants)...)
	defer deaf.Body.Close()
	messages := n.request(2, "subscriptions/listen", wants)
	await(t, messages, "acknowledged")
	eventually(t, "both listen", func() bool {
		live.listeners.mu.Lock()
		defer live.listeners.mu.Unlock()
		return len(live.listeners.byKey) == 2
	})
	// Past what sockets hold, the deaf one's queue is full.
	large := json.RawMessage(`{"pad":"` + strings.Repeat("x", 1<<20) + `"}`)
	live.listeners.mu.Lock()
	for _, listener := range live.listeners.byKey {
		if string(listener.id) == "1" {
			for range 200 {
				listener.tell(toolsChanged, large)
			}
		}
	}
	live.listeners.mu.Unlock()
	for range 10 {
		broadcast(live, toolsChanged)
		await(t, messages, toolsChanged)
	}
}

// Sync tells of each list that differs, legacy sessions and listeners alike.
func TestSyncTellsWhichListChanged(t *testing.T) {
	live := newLive(t, setup{})
	url := serveHTTP(t, live)
	live.Sync()
	legacy := overHTTP(t, url, `{}`).listen()
	n := &newcomer{t: t, url: url, capabilities: `{}`}
	modern := n.request(1, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`)
	await(t, modern, "acknowledged")
	for _, test := range []struct {
		kind tool.Kind
		want string
	}{{tool.KindPrompt, promptsChanged}, {tool.KindResource, resourcesChanged}, {tool.KindTemplate, resourcesChanged}} {
		for _, description := range []string{"new", "changed"} {
			addItem(t, live, test.kind, "x:"+test.kind.String(), fmt.Sprintf(`{%q:"x","description":%q}`, test.kind.Key(), description), nil)
			live.Sync()
			live.Sync() // nothing changed: nobody is told
			for what, messages := range map[string]<-chan string{"legacy": legacy, "modern": modern} {
				got := await(t, messages, "")
				if method := rawjson.Text(rawjson.Member([]byte(got), "method")); method != test.want {
					t.Errorf("%s %s: the %s client got %s", description, test.kind, what, got)
				}
			}
		}
	}
}

func TestSubscriptionsAreBounded(t *testing.T) {
	s := NewSubscriptions(func(context.Context, tool.ID, bool) error { return nil })
	join := func(key, uri string) string {
		if err := s.join(t.Context(), uri, tool.ID{Server: "srv", Name: uri}, key); err != nil {
			return err.Error()
		}
		return ""
	}
	for i := range maxSubscriptions {
		if err := join("one", fmt.Sprint(i)); err != "" {
			t.Fatal(err)
		}
	}
	if got, want := join("one", "1000"), "too many subscriptions of this client: the limit is 1000; end others first"; !strings.HasPrefix(got, want) {
		t.Errorf("one more: %q, want %q", got, want)
	}
	if got := join("one", "7"); got != "" {
		t.Errorf("one that it has: %s", got)
	}
	if got := join("two", "1000"); got != "" {
		t.Errorf("another client: %s", got)
	}
	if got, want := join("two", strings.Repeat("x", maxSubscribed+1)), "too many bytes in the URI of a subscription: the limit is 8192"; !strings.HasPrefix(got, want) {
		t.Errorf("a long URI: %q, want %q", got, want)
	}
	if used := s.most.Used(); used != maxSubscriptions+1 {
		t.Errorf("%d are used", used)
	}
	s.leave(t.Context(), "one")
	s.leave(t.Context(), "two", "1000")
	if used, hits := s.most.Used(), s.most.Hits(); used != 0 || hits != 1 || len(s.of) != 0 {
		t.Errorf("at the end %d are used of %d clients; the limit was reached %d times", used, len(s.of), hits)
	}
}
