package proxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toolfinch/internal/await"
	"toolfinch/proxy"
)

// leavesNothing fails the test when goroutines stay after everything that it
// opens from now on was closed.
func leavesNothing(t *testing.T) {
	ended := await.Began("mark3labs/mcp-go/")
	t.Cleanup(func() { ended(t) })
}

// goodScript is an upstream that does what it should. Whatever another one or a
// client does, works says so.
func goodScript(t *testing.T) *script {
	s := newScript(t, "good", false, true)
	s.list("tools", `{"name":"echo"}`)
	s.list("prompts", `{"name":"hello"}`)
	s.list("resources", `{"uri":"good://one","name":"One"}`)
	s.list("resourceTemplates", `{"uriTemplate":"good://rows/{id}","name":"Rows"}`)
	for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete"} {
		s.on(method, func(r *request) { r.result(`{"good":"` + r.about() + `"}`) })
	}
	return s
}

// works checks that a client is served as if there were nobody else.
func works(t *testing.T, c *rawClient) {
	t.Helper()
	for method, params := range map[string]string{
		"tools/call":               `{"name":"good_echo"}`,
		"prompts/get":              `{"name":"good_hello"}`,
		"resources/read":           `{"uri":"good://rows/1"}`,
		"completion/complete":      `{"ref":{"type":"ref/prompt","name":"good_hello"},"argument":{"name":"x","value":""}}`,
		"resources/templates/list": `{}`,
	} {
		if got := c.ask(method, params); got.Error != nil || !strings.Contains(got.raw, `good`) {
			t.Errorf("%s: %.300s", method, got.raw)
		}
	}
	if got := allPages(c, "prompts/list", "prompts"); !strings.Contains(got, "good_hello") {
		t.Errorf("prompts/list: %.300s", got)
	}
}

// allPages returns the members of all pages of a list.
func allPages(c *rawClient, method, member string) string {
	all, cursor := "", `{}`
	for {
		got := c.ask(method, cursor)
		all += string(part(got.Result, member))
		next := part(got.Result, "nextCursor")
		if next == nil {
			return all
		}
		cursor = `{"cursor":` + string(next) + `}`
	}
}

// fewTools waits until a proxy knows the tools of the upstream that works.
func fewTools(t *testing.T, p *proxy.Proxy) {
	t.Helper()
	eventually(t, func() bool { return p.Tools() > 0 })
}

func TestHostileDefinitionsHarmNobody(t *testing.T) {
	leavesNothing(t)
	many := newScript(t, "many", false, false)
	defs := make([]string, 5_000)
	for i := range defs {
		defs[i] = fmt.Sprintf(`{"uri":"many://%d","name":"r%d"}`, i, i)
	}
	many.page = 1_000
	many.list("resources", defs...)

	endless := newScript(t, "endless", true, true)
	endless.settings.CallTimeout = 10 * time.Second
	pages, listed := 0, make(chan struct{})
	endless.on("resources/list", func(r *request) {
		endless.usual(r)
		close(listed)
	})
	endless.on("prompts/list", func(r *request) {
		if pages++; pages == 2 {
			<-listed
		}
		r.result(fmt.Sprintf(`{"prompts":[{"name":"p%d"}],"nextCursor":"%d"}`, pages, pages))
	})
	endless.list("resources", `{"uri":"endless://one","name":"One"}`)

	huge := newScript(t, "huge", false, true)
	huge.list("resources", `{"uri":"huge://long","name":"`+strings.Repeat("long ", 1<<20)+`"}`, `{"uri":"huge://short","name":"short"}`)

	odd := newScript(t, "odd", false, false)
	odd.list("resources",
		`{"uri":"nul\u0000://\n\r\u2028","name":"nul"}`, `{"uri":"toolfinch:good/good://one","name":"prefixed"}`, `{"uri":"toolfinch:","name":"scheme"}`,
		`{"uri":"`+strings.Repeat("x", 1<<20)+`","name":"long"}`, `{"uri":"good://one","name":"another's"}`, `{"uri":"\ud800","name":"half"}`,
		`7`, `null`, `[]`, `"text"`, `{}`, `{"uri":7}`, `{"uri":{"a":1}}`, `{"uri":""}`, `{"uri":"types://1","name":[],"title":{},"description":7,"annotations":"x","size":"big","_meta":7}`)
	odd.list("resourceTemplates",
		`{"uriTemplate":"{","name":"open"}`, `{"uriTemplate":"`+strings.Repeat("{", 100_000)+`","name":"braces"}`, `{"uriTemplate":"{a:999999999}","name":"modifier"}`,
		`{"uriTemplate":"`+strings.Repeat("{a*}{b*}", 8)+`","name":"stars"}`, `{"uriTemplate":"toolfinch:good/{x}","name":"prefixed"}`, `{"uriTemplate":7}`)
	odd.list("prompts", `{"name":"retrieve_tools"}`, `{"name":"call_tool"}`, `{"name":"`+strings.Repeat("p", 100_000)+`"}`, `{"name":"\u0000\n"}`, `{"name":7}`, `{"name":"x","arguments":7}`)
	none := ""
	odd.settings.Prefix = &none

	mistyped := newScript(t, "mistyped", false, true)
	mistyped.capabilities = `{"resources":7,"tools":[],"prompts":"yes"}`

	talks := newScript(t, "talks", false, false)
	talks.on("initialize", func(r *request) {
		r.result(`{"protocolVersion":"2025-11-25","capabilities":{"resources":{}},"serverInfo":{"name":"` + strings.Repeat("n", 1<<20) + `","version":"1"},"instructions":"` + strings.Repeat("Listen to me. ", 100_000) + `"}`)
	})
	talks.list("resources", `{"uri":"talks://one","name":"One"}`)

	notList := newScript(t, "notlist", true, false)
	for _, method := range []string{"tools/list", "prompts/list", "resources/list"} {
		notList.on(method, func(r *request) { r.result(`{"tools":7,"prompts":{"a":1},"resources":"x"}`) })
	}

	p, url := openScripts(t, nil, many, endless, huge, odd, mistyped, talks, notList, goodScript(t))
	c := newClient(t, p, url, kind{modern: true, stdio: true}, `{}`, reply)
	var got string
	eventually(t, func() bool {
		got = allPages(c, "resources/list", "resources")
		for _, one := range []string{`"many://4999"`, `"endless://one"`, `"huge://short"`, `"talks://one"`, `"toolfinch:good/good://one"`} {
			if !strings.Contains(got, one) {
				return false
			}
		}
		return true
	})
	if strings.Count(got, `"many://`) != len(defs) || strings.Contains(got, "huge://long") || strings.Contains(got, "types://1") {
		t.Errorf("%d of %d resources, or one that is too long or malformed", strings.Count(got, `"many://`), len(defs))
	}
	if got := c.ask("server/discover", `{}`); len(got.raw) > 64<<10 {
		t.Errorf("server/discover has %d bytes", len(got.raw))
	}
	if got := c.ask("tools/list", `{}`); strings.Count(got.raw, `"name":"retrieve_tools"`) != 1 {
		t.Errorf("tools/list = %s", got.raw)
	}
	if got := c.ask("resources/read", `{"uri":"toolfinch:good/good://one"}`); !strings.Contains(got.raw, `"good":"good://one"`) {
		t.Errorf("the resource of the server that the URI names: %.300s", got.raw)
	}
	if got := c.ask("tools/call", `{"name":"retrieve_tools","arguments":{"query":"echo","kind":"any"}}`); got.Error != nil || !strings.Contains(got.raw, "good_echo") {
		t.Errorf("retrieve_tools: %.300s", got.raw)
	}
	eventually(t, func() bool { return strings.Contains(allPages(c, "prompts/list", "prompts"), `"endless_p1000"`) }) // its first 1,000 pages
	works(t, c)
}

// What a server says floods it and nobody else, and its call is answered.
func TestFloodsOfAnUpstream(t *testing.T) {
	leavesNothing(t)
	const flood = 1_000
	for _, k := range []kind{{stdio: true}, {modern: true}} {
		t.Run(k.String()+" server", func(t *testing.T) {
			t.Parallel()
			s := newScript(t, "bad", k.modern, k.stdio)
			s.list("tools", `{"name":"flood"}`)
			s.on("tools/call", func(r *request) {
				token := string(part(part(r.Params, "_meta"), "progressToken"))
				if token == "" {
					token = "7"
				}
				long := strings.Repeat("x", 1<<20)
				for i := range flood {
					switch i % 10 {
					case 0:
						r.notify("notifications/tools/list_changed", `{}`)
					case 1:
						r.notify("notifications/resources/updated", fmt.Sprintf(`{"uri":"bad://%d"}`, i))
					case 2:
						r.notify("notifications/message", `{"level":"error","data":{}}`)
					case 3:
						r.notify("notifications/progress", `{"progressToken":`+token+`,"progress":1}`)
					case 4, 5: // on the stream of a call it would be its answer
						if k.stdio {
							r.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"serverInfo":7}}`, (i%2)<<32+1_000_000+i))
						}
					case 6:
						r.notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, i))
					case 7:
						r.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"ping-%d","method":"ping"}`, i))
					case 8:
						r.notify("toolfinch/raw", `{"message":"e30="}`)
					case 9:
						r.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":"what-%d","method":"no/such"}`, i))
					}
				}
				for _, id := range []string{`null`, `1.5`, `-1`, `{}`, `[]`, `true`, `"` + long + `"`, `1e400`, `""`} {
					r.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"sampling/createMessage","params":{}}`)
				}
				for _, params := range []string{`7`, `null`, `[]`, `"x"`, `{"progressToken":{}}`, `{"requestId":{}}`, `{"_meta":7}`} {
					for _, method := range []string{"progress", "message", "cancelled", "resources/updated", "elicitation/complete", "subscriptions/acknowledged"} {
						r.notify("notifications/"+method, params)
					}
				}
				r.notify("notifications/message", `{"level":"error","data":"`+long+`"}`)
				r.write(`{"jsonrpc":"2.0","method":7}`)
				r.write(`{"jsonrpc":"2.0"}`)
				r.write(`[]`)
				r.result(`{"content":[],"flooded":true}`)
			})
			p, url := openScripts(t, nil, s, goodScript(t))
			fewTools(t, p)
			c := newClient(t, p, url, kind{}, `{}`, reply)
			other := newClient(t, p, url, kind{modern: true, stdio: true}, `{}`, reply)
			flooded := c.begin("tools/call", `{"name":"bad_flood","_meta":{"progressToken":"p"}}`)
			works(t, other)
			if got := <-flooded.answer; !strings.Contains(got.raw, `"flooded":true`) {
				t.Errorf("the call: %.300s", got.raw)
			}
			works(t, other)
			for _, m := range c.heard {
				if len(m.raw) > 1<<20 {
					t.Errorf("the client was sent %d bytes of %s", len(m.raw), m.Method)
				}
			}
		})
	}
}

// Who waits for a server that never answers is not in the way of who does not.
func TestAServerThatHangsInEveryMethod(t *testing.T) {
	leavesNothing(t)
	for _, k := range []kind{{}, {modern: true, stdio: true}} {
		t.Run(k.String()+" server", func(t *testing.T) {
			t.Parallel()
			s := newScript(t, "bad", k.modern, k.stdio)
			s.settings.CallTimeout, s.settings.AskTimeout = 10*time.Minute, 10*time.Minute
			s.list("tools", `{"name":"hang"}`)
			s.list("resources", `{"uri":"bad://one","name":"One"}`, `{"uri":"bad://two","name":"Two"}`)
			s.list("prompts", `{"name":"hang"}`)
			for _, method := range []string{"tools/call", "prompts/get", "resources/read", "completion/complete", "resources/subscribe", "resources/unsubscribe", "logging/setLevel", "subscriptions/listen"} {
				s.on(method, func(r *request) { <-r.ended })
			}
			p, url := openScripts(t, nil, s, goodScript(t))
			fewTools(t, p)
			waits := newClient(t, p, url, kind{}, `{}`, reply)
			eventually(t, func() bool { return strings.Contains(waits.ask("resources/list", `{}`).raw, "bad://two") })
			for _, one := range [][2]string{
				{"tools/call", `{"name":"bad_hang"}`}, {"prompts/get", `{"name":"bad_hang"}`}, {"resources/read", `{"uri":"bad://one"}`},
				{"completion/complete", `{"ref":{"type":"ref/prompt","name":"bad_hang"},"argument":{"name":"x","value":""}}`},
				{"resources/subscribe", `{"uri":"bad://one"}`}, {"resources/subscribe", `{"uri":"bad://two"}`}, {"logging/setLevel", `{"level":"debug"}`},
			} {
				waits.begin(one[0], one[1])
			}
			eventually(t, func() bool { return len(s.got("tools/call")) == 1 && len(s.got("completion/complete")) == 1 })
			for _, client := range kinds[:3] { // there is but one stdio
				c := newClient(t, p, url, client, `{}`, reply)
				works(t, c)
				if client.modern {
					continue
				}
				for _, method := range []string{"resources/subscribe", "resources/unsubscribe"} {
					if got := c.ask(method, `{"uri":"good://one"}`); got.Error != nil {
						t.Errorf("%s: %s", method, got.raw)
					}
				}
				if got := c.ask("logging/setLevel", `{"level":"info"}`); got.Error != nil {
					t.Errorf("logging/setLevel: %s", got.raw)
				}
			}
		})
	}
}

// A 2026-07-28 server may ask whatever it likes, for as long as it likes.
func TestInputRequiredWithoutEnd(t *testing.T) {
	leavesNothing(t)
	many := make([]string, 200)
	for i := range many {
		many[i] = fmt.Sprintf(`"q%d":{"method":"roots/list"}`, i)
	}
	s := newScript(t, "bad", true, false)
	s.settings.CallTimeout = 10 * time.Minute
	for name, need := range map[string]string{
		"forever":   `"inputRequests":{"a":{"method":"roots/list"}}`,
		"many":      `"inputRequests":{` + strings.Join(many, ",") + `}`,
		"long":      `"inputRequests":{"a":{"method":"roots/list"}},"requestState":"` + strings.Repeat("s", 300<<10) + `"`,
		"strange":   `"inputRequests":{"a":{"method":"tools/call","params":{"name":"x"}}}`,
		"mistyped":  `"inputRequests":7,"requestState":{}`,
		"mistyped2": `"inputRequests":{"a":7}`,
		"mistyped3": `"inputRequests":{"a":{"method":7}}`,
	} {
		s.lists["tools"] = append(s.lists["tools"], `{"name":"`+name+`"}`)
		s.on("tools/call "+name, func(r *request) { r.result(`{"resultType":"input_required",` + need + `}`) })
	}
	p, url := openScripts(t, nil, s, goodScript(t))
	fewTools(t, p)
	legacy := newClient(t, p, url, kind{}, can, reply)
	modern := newClient(t, p, url, kind{modern: true}, can, reply)
	for _, tool := range members([]byte(`{"forever":1,"many":1,"long":1,"strange":1,"mistyped":1,"mistyped2":1,"mistyped3":1}`)) {
		call := `{"name":"bad_` + tool.key + `"}`
		if got := legacy.ask("tools/call", call); got.Error == nil && string(part(got.Result, "isError")) != "true" {
			t.Errorf("%s, legacy client: %.300s", tool.key, got.raw)
		}
		got := modern.ask("tools/call", call)
		if state := part(got.Result, "requestState"); state != nil {
			// Nor is the state of one call that of another.
			if got := modern.ask("tools/call", `{"name":"good_echo","requestState":`+string(state)+`}`); got.Error == nil {
				t.Errorf("%s: another server took the state: %.300s", tool.key, got.raw)
			}
		}
	}
	if asked := len(legacy.got("roots/list")); asked > 10+10+10 {
		t.Errorf("the legacy client was asked %d times", asked)
	}
	works(t, legacy)
	works(t, modern)
}

// What clients say that means nothing is refused, and costs nobody else anything.
func TestRubbishOfClients(t *testing.T) {
	leavesNothing(t)
	s := newScript(t, "bad", false, true)
	s.list("tools", `{"name":"ask"}`)
	s.on("tools/call", func(r *request) { r.result(`{"content":[],"answer":` + string(r.ask("roots/list", `{}`).Result) + `}`) })
	p, url := openScripts(t, nil, s, goodScript(t))
	fewTools(t, p)
	long := strings.Repeat("x", 100<<10)
	rubbish := [][2]string{
		{"prompts/list", `{"cursor":7}`}, {"resources/list", `{"cursor":"!!"}`}, {"resources/list", `{"cursor":"` + long + `"}`}, {"resources/templates/list", `{"cursor":{}}`},
		{"tasks/get", `{"taskId":"` + long + `"}`}, {"tasks/get", `{"taskId":7}`}, {"tasks/cancel", `{"taskId":"good/\n"}`}, {"tasks/update", `{}`},
		{"tools/call", `{"name":7}`}, {"tools/call", `{"name":"` + long + `"}`}, {"tools/call", `{"name":"good_echo","requestState":"toolfinch-parked-x"}`}, {"tools/call", `{"name":"good_echo","requestState":7}`},
		{"resources/read", `{"uri":"\u0000"}`}, {"resources/read", `{"uri":"toolfinch:nobody/x"}`}, {"resources/read", `{"uri":"toolfinch:/"}`}, {"resources/subscribe", `{"uri":["x"]}`}, {"resources/unsubscribe", `{}`},
		{"completion/complete", `{"ref":7}`}, {"completion/complete", `{"ref":{"type":"ref/resource","uri":{}}}`}, {"logging/setLevel", `{"level":7}`},
		{"subscriptions/listen", `{"notifications":7}`}, {"subscriptions/listen", `{"notifications":{"resourceSubscriptions":[7]}}`}, {"no/such", `{}`},
	}
	var all sync.WaitGroup
	for _, k := range kinds[:3] { // there is but one stdio
		all.Go(func() {
			c := newClient(t, p, url, k, `{"roots":{}}`, reply)
			for _, one := range rubbish {
				passes := !k.modern && strings.Contains(one[1], "requestState") // means nothing in that era, and is the server's to judge
				if got := c.ask(one[0], one[1]); !passes && got.raw != "" && got.Error == nil && string(part(got.Result, "isError")) != "true" && one[0] != "resources/unsubscribe" {
					t.Errorf("%s client, %s %.100s: %.200s", k, one[0], one[1], got.raw)
				}
			}
			for _, raw := range []string{
				`{"jsonrpc":"2.0","id":"toolfinch-1","result":{"forged":1}}`, `{"jsonrpc":"2.0","id":"toolfinch-1","error":7}`, `{"jsonrpc":"2.0","id":{},"result":{}}`,
				`{"jsonrpc":"2.0","id":"toolfinch-2","result":"` + strings.Repeat("x", 2<<20) + `"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}`, `{"jsonrpc":"2.0","method":"toolfinch/raw","params":{"message":"e30="}}`, `[]`, `7`, `{`, ``,
			} {
				c.post(c.life, raw)
			}
			works(t, c)
			if k.modern {
				return
			}
			// The answer of one client is not another's, though the IDs are the same.
			if got := c.call("tools/call", `{"name":"bad_ask"}`); !strings.Contains(got.raw, `"answer":{"roots"`) || strings.Contains(got.raw, "forged") {
				t.Errorf("%s client: %.300s", k, got.raw)
			}
		})
	}
	all.Wait()
}
