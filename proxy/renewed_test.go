package proxy_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/upstream"
	"toolfinch/view"
)

const grown = `{"name":"new","description":"A new tool","inputSchema":{"type":"object"}}`

// growing is a server with a tool that adds another. told says when the server tells that.
func growing(t *testing.T, modern, stdio bool, told string) *script {
	s := newScript(t, "s", modern, stdio)
	const grow = `{"name":"grow","description":"Adds a tool","inputSchema":{"type":"object"}}`
	s.list("tools", grow)
	if told == "never" {
		s.capabilities = `{"tools":{}}`
	}
	tell := func() { s.tell(t, "notifications/tools/list_changed", `{}`) }
	s.on("tools/call grow", func(r *request) {
		s.list("tools", grow, grown)
		if told == "before" {
			tell()
		}
		r.result(`{"content":[]}`)
		if told == "after" {
			tell()
		}
	})
	s.on("tools/call new", func(r *request) { r.result(`{"content":[{"type":"text","text":"it is new"}]}`) })
	return s
}

// openOpen runs a proxy over a server whose changes need no approval.
func openOpen(t *testing.T, s *script, exposure view.Exposure) (client func(k kind) *rawClient) {
	one := view.Settings{Name: view.Default, IncludeAll: true, Exposure: exposure}
	p, url := running(t, changing(&configs.Config{DataDir: folder(t), TopK: 5, Routing: configs.RoutingAuto, MaxRegistered: 40, StartWait: time.Minute,
		Views: []view.Settings{one}, Servers: []upstream.Settings{s.settings}}))
	return func(k kind) *rawClient { return newClient(t, p, url, k, `{}`, reply) }
}

// A tool that a call adds can be called when the answer is there, whether and when the server tells of it.
func TestAToolThatACallAddsCanBeCalled(t *testing.T) {
	for _, told := range []string{"before", "after", "never"} {
		for _, server := range []kind{{}, {stdio: true}, {modern: true}, {modern: true, stdio: true}} {
			for _, call := range []string{toolCall("s_new", `{}`), toolCall("call_tool", `{"name":"s_new"}`)} {
				t.Run(told+" "+server.String()+" "+call[:20], func(t *testing.T) {
					t.Parallel()
					s := growing(t, server.modern, server.stdio, told)
					c := openOpen(t, s, view.ExposureRetrieve)(kind{})
					c.ask("tools/call", toolCall("s_grow", `{}`))
					var got string
					can := func() bool {
						got = c.ask("tools/call", call).raw
						return strings.Contains(got, "it is new")
					}
					if told == "before" && server.stdio { // otherwise it may come after the answer
						if !can() {
							t.Errorf("got %s", got)
						}
					}
					eventually(t, can)
				})
			}
		}
	}
}

// The lists of a server that does not say when they change are read again when a client lists.
func TestAClientThatListsHasListsReadAgain(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			s := growing(t, false, true, "never")
			client := openOpen(t, s, view.ExposureDirect)
			if got := client(kind{}).ask("tools/list", `{}`); strings.Contains(got.raw, "s_new") {
				t.Fatalf("before: %s", got.raw)
			}
			s.list("tools", grown)
			eventually(t, func() bool { // at most once a second
				return strings.Contains(client(k).ask("tools/list", `{}`).raw, "s_new")
			})
		})
	}
}

// A prompt and a resource that a server has added without a word are found by their names.
func TestWhatIsNewIsFoundByItsName(t *testing.T) {
	s := growing(t, false, true, "never")
	s.capabilities = `{"tools":{},"prompts":{},"resources":{}}`
	s.on("prompts/get new", func(r *request) { r.result(`{"messages":[],"description":"it is new"}`) })
	s.on("resources/read new://1", func(r *request) { r.result(`{"contents":[{"uri":"new://1","text":"it is new"}]}`) })
	c := openOpen(t, s, view.ExposureRetrieve)(kind{})
	if got := c.ask("prompts/get", `{"name":"s_new"}`); got.Error == nil {
		t.Errorf("before: %s", got.raw)
	}
	s.list("prompts", `{"name":"new"}`)
	s.list("resources", `{"uri":"new://1","name":"new"}`)
	for method, params := range map[string]string{"prompts/get": `{"name":"s_new"}`, "resources/read": `{"uri":"new://1"}`} {
		eventually(t, func() bool { return strings.Contains(c.ask(method, params).raw, "it is new") })
	}
}

// A server that has failed so far is tried at once when one of its tools is called by name.
func TestAServerThatIsLateIsTriedByName(t *testing.T) {
	s := newScript(t, "s", false, true)
	s.list("tools", grown)
	s.on("tools/call new", func(r *request) { r.result(`{"content":[{"type":"text","text":"it is new"}]}`) })
	var tries atomic.Int32
	var up atomic.Bool
	s.on("initialize", func(r *request) {
		tries.Add(1)
		if !up.Load() {
			r.fail(`{"code":-32000,"message":"the database is being migrated"}`)
			return
		}
		s.usual(r)
	})
	p, url := openCold(t, time.Millisecond, view.Settings{Exposure: view.ExposureRetrieve}, s.settings)
	c := newClient(t, p, url, kind{}, `{}`, reply)
	eventually(t, func() bool { return tries.Load() >= 3 }) // the next try is seconds away
	for _, name := range []string{"t_new", "s_new"} {
		up.Store(true)
		got := c.ask("tools/call", toolCall(name, `{}`))
		if found := strings.Contains(got.raw, "it is new"); found != (name == "s_new") {
			t.Errorf("%s: %s", name, got.raw)
		}
	}
}

// A path with a slash at its end is the path.
func TestPathsWithASlashAtTheirEnd(t *testing.T) {
	s := growing(t, false, true, "never")
	p, url := openCold(t, time.Minute, view.Settings{Exposure: view.ExposureDirect}, s.settings)
	for _, path := range []string{"/mcp", "/mcp/", "/mcp/default", "/mcp/default/"} {
		if got := newClientAt(t, p, url+path, kind{}, `{}`, reply).ask("tools/list", `[]`); !strings.Contains(got.raw, "s_grow") {
			t.Errorf("%s: %s", path, got.raw)
		}
	}
}
