package proxy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/must"
	"toolfinch/proxy"
	"toolfinch/store"
	"toolfinch/tool"
	"toolfinch/upstream"
	"toolfinch/view"
)

// openListed opens a proxy, without running it, that knows the tools of its one
// server, up. It returns what listing every tool of them costs.
func openListed(t testing.TB, up *httptest.Server, views ...view.Settings) (p *proxy.Proxy, full int64) {
	t.Helper()
	config := configFor(folder(t), settings("up", up.URL))
	config.Views = views
	learn(t, config)
	p = opened(t, config)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	v := must.Get(p.View(view.Default))(t)
	for _, one := range v.Tools() {
		full += int64(tool.CountTokens(one.Listed()))
	}
	return p, full
}

// received is what a client read, counted by the test.
type received struct {
	seen    map[string]bool
	listed  int64
	answers int64
}

// list asks for the tools; what was not listed before counts.
func (r *received) list(t testing.TB, c *rawClient) {
	t.Helper()
	var listed struct{ Tools []json.RawMessage }
	must.Do(t, json.Unmarshal(c.ask("tools/list", `{}`).Result, &listed))
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	for _, def := range listed.Tools {
		if !r.seen[string(def)] {
			r.seen[string(def)] = true
			r.listed += int64(tool.CountTokens(def))
		}
	}
}

// call calls a tool; the text of its answer counts.
func (r *received) call(t testing.TB, c *rawClient, name, arguments string) {
	t.Helper()
	got := c.ask("tools/call", toolCall(name, arguments))
	var result struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(got.Result, &result); err != nil || len(result.Content) != 1 {
		t.Fatalf("%s: %s", name, got.raw)
	}
	r.answers += int64(tool.CountTokens([]byte(result.Content[0].Text)))
}

// wantSavings compares what is accounted with what is expected, but for what is read
// again and what called tools answered. Listed is with what was listed later.
func wantSavings(t testing.TB, got []store.Savings, want ...store.Savings) {
	t.Helper()
	for i, s := range got {
		got[i] = store.Savings{View: s.View, Sessions: s.Sessions, Retrievals: s.Retrievals, Steps: s.Steps,
			Listed: s.Listed + s.Relisted, Answers: s.Answers, AllSteps: s.AllSteps, AllListed: s.AllListed}
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("accounted\n%+v, want\n%+v", got, want)
	}
}

// A session is accounted for by its steps: for each definition that it is listed, for
// each answer, and once for all that its view has.
func TestSavingsOfASession(t *testing.T) {
	p, full := openListed(t, newUpstream(t, 60))
	c := newClient(t, p, "", kind{stdio: true}, `{}`, nil)
	var r received
	r.list(t, c)
	r.list(t, c)
	r.call(t, c, "retrieve_tools", `{"query":"create an issue"}`)
	r.list(t, c)
	r.call(t, c, "retrieve_tools", `{"query":"create an issue","detail":"name"}`)
	c.ask("tools/call", toolCall("up_echo", `{"text":"12345678"}`))
	c.ask("tools/call", toolCall("call_tool", `{"name":"up_echo","arguments":{"text":"1234"}}`))
	sum := p.Savings(t.Context())[0]
	if sum.Results != 3 || sum.Appended != 1 || sum.Changed != 0 || sum.Reread != 0 || sum.AllCached != full || sum.Cached < r.listed {
		t.Errorf("accounted %+v", sum)
	}
	want := store.Savings{View: "default", Sessions: 1, Retrievals: 2, Steps: 4, Listed: r.listed, Answers: r.answers, AllSteps: 2, AllListed: full}
	wantSavings(t, p.Savings(t.Context()), want)
	if want.Listed+want.Answers >= want.AllListed {
		t.Errorf("nothing is saved by %+v", want)
	}
	wantSavings(t, p.Savings(t.Context()), want) // what was accounted is not again
}

// In a gated view that goes for those that find and provision tools, and that say
// what is provisioned.
func TestSavingsOfAGatedView(t *testing.T) {
	p, full := openListed(t, newUpstream(t, 60), view.Settings{Name: view.Default, Exposure: view.ExposureRetrieve, IncludeAll: true,
		Gating: &view.Gating{MaxTools: 5, MaxTokens: 5000}})
	c := newClient(t, p, "", kind{stdio: true}, `{}`, nil)
	var r received
	r.list(t, c)
	r.call(t, c, "discover_tools", `{"query":"create an issue"}`)
	r.call(t, c, "unprovision_tools", `{"all":true}`)
	r.call(t, c, "provision_tools", `{"tool_ids":["up_echo"]}`)
	r.list(t, c)
	r.call(t, c, "list_provisioned", `{}`)
	r.call(t, c, "retrieve_tools", `{"query":"create an issue"}`) // not listed, and answers
	c.ask("tools/call", toolCall("up_echo", `{"text":"a result"}`))
	c.ask("tools/call", toolCall("execute_tool", `{"tool_id":"up_echo","arguments":{"text":"a result"}}`))
	wantSavings(t, p.Savings(t.Context()), store.Savings{View: "default",
		Sessions: 1, Retrievals: 2, Steps: 7, Listed: r.listed, Answers: r.answers, AllSteps: 2, AllListed: full})
}

// A call through the proxy tool is a call, its other answers find or describe.
func TestSavingsOfTheProxyTool(t *testing.T) {
	p, full := openListed(t, newUpstream(t, 20),
		view.Settings{Name: view.Default, Exposure: view.ExposureSearch, IncludeAll: true, ProxyTool: "door"})
	c := newClient(t, p, "", kind{stdio: true}, `{}`, nil)
	var r received
	r.list(t, c)
	sum := store.Savings{View: "default", Sessions: 1, Listed: r.listed, AllSteps: 1, AllListed: full}
	const call = `"action":"call","type":"tool","path":"up_echo","args":{"text":"a result"}`
	const info = `"action":"info","type":"tool","path":"up_echo"`
	for _, test := range []struct {
		arguments string
		counts    bool
	}{
		{`{` + call + `}`, false},
		{`{"action":"list","type":"tool"}`, true},
		{`{` + info + `}`, true},
	} {
		got := c.ask("tools/call", toolCall("door", test.arguments))
		var result struct {
			Content []struct{ Resource struct{ Text string } }
		}
		if err := json.Unmarshal(got.Result, &result); err != nil || failed(got) {
			t.Fatalf("%s: %s", test.arguments, got.raw)
		}
		sum.Steps++
		if test.counts {
			sum.Answers += int64(tool.CountTokens([]byte(result.Content[0].Resource.Text)))
		}
		wantSavings(t, p.Savings(t.Context()), sum)
		sum.AllSteps = 2 // the first operation is a call, whose answer is read
	}

	batch := `{"action":"batch","operations":[{` + info + `}]}`
	before := sum.Answers
	if got := c.ask("tools/call", toolCall("door", batch)); failed(got) {
		t.Fatalf("%.2000s", got.raw)
	}
	if got := p.Savings(t.Context())[0].Answers; got <= before {
		t.Errorf("a batch counts nothing: %d tokens of answers before and after", got)
	}
}

// What many sessions do at once is accounted, and in the store when Run has
// ended.
func TestSavingsAreInTheStoreAfterwards(t *testing.T) {
	const sessions = 8
	up := newUpstream(t, 60)
	_, full := openListed(t, up)
	dir := t.TempDir()
	before := time.Now().UTC()
	var listed, answers int64
	t.Run("run", func(t *testing.T) {
		p := open(t, dir, settings("up", up.URL))
		url := run(t, p)
		eventually(t, func() bool { return p.Tools() == 60 })
		var mu sync.Mutex
		var all sync.WaitGroup
		for range sessions {
			c := newClient(t, p, url, kind{}, `{}`, nil)
			all.Go(func() {
				var r received
				r.list(t, c)
				for i := range 3 {
					r.call(t, c, "retrieve_tools", fmt.Sprintf(`{"query":"create issue number %d"}`, i))
					r.list(t, c)
				}
				mu.Lock()
				defer mu.Unlock()
				listed, answers = listed+r.listed, answers+r.answers
			})
		}
		all.Wait()
	})
	db, err := store.Open(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	got, err := db.Usage().Savings(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	var sum store.Savings
	for _, day := range got { // two at midnight
		if day.View != "default" {
			t.Errorf("there is no such view: %+v", day)
		}
		sum = sum.Plus(day)
	}
	wantSavings(t, []store.Savings{sum}, store.Savings{
		Sessions: sessions, Retrievals: 3 * sessions, Steps: 4 * sessions, Listed: listed, Answers: answers,
		AllSteps: sessions, AllListed: sessions * full})
}

// What a session of five retrievals over real servers is listed and answered has a
// tenth of the tokens of all their tools, or less.
func TestSavingsOnRealServers(t *testing.T) {
	const folder = "../../shared/realtools"
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	config := &configs.Config{DataDir: t.TempDir(), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40}
	db, err := store.Open(t.Context(), config.DataDir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		name = fmt.Sprint(name[strings.LastIndex(name, "_")+1:], i)
		var defs []*tool.Def
		for _, one := range elements(part(raw, "tools")) {
			def := must.Get(tool.ParseDef(name, []byte(compact(t, one))))(t)
			defs = append(defs, def)
		}
		must.Get(db.PutServer(t.Context(), store.Upstream{Name: name}, defs, nil))(t)
		config.Servers = append(config.Servers, upstream.Settings{Name: name, URL: "http://127.0.0.1:1/mcp"})
	}
	must.Do(t, db.Close())
	p := opened(t, config)
	t.Cleanup(func() { _ = p.Close() })
	c := newClient(t, p, "", kind{stdio: true}, `{}`, nil)
	var r received
	r.list(t, c)
	for _, query := range []string{"create an issue in a GitHub repository", "show the logs of a Kubernetes pod", "query metrics from Prometheus",
		"send a message to a Slack channel", "take a screenshot of a web page"} {
		r.call(t, c, "retrieve_tools", `{"query":"`+query+`"}`)
		r.list(t, c)
	}
	got := p.Savings(t.Context())[0]
	t.Logf("%d servers, %d tools: %+v", len(files), p.Tools(), got)
	if p.Tools() < 1000 || got.Retrievals != 5 || 10*(got.Listed+got.Relisted+got.Answers) > got.AllListed {
		t.Errorf("%+v, want a tenth of the tokens", got)
	}
}
