package configs

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"toolfinch/configs/clients"
	"toolfinch/internal/must"
	"toolfinch/view"
)

func TestGatingAndProxyTool(t *testing.T) {
	gated := func(tokens, tools int, ttl time.Duration) *view.Gating {
		return &view.Gating{MaxTokens: tokens, MaxTools: tools, TTL: ttl}
	}
	usual := gated(view.DefaultMaxTokens, view.DefaultMaxTools, 0)
	for _, tt := range []struct {
		text   string
		gating *view.Gating
		proxy  string
	}{
		{"", nil, ""},
		{"gating: \nproxy_tool: ", nil, ""},
		{"gating: true\nproxy_tool: true", usual, "proxy"},
		{"gating: false\nproxy_tool: false", nil, ""},
		{"gating: ${ON}\nproxy_tool: ${ON}", usual, "proxy"},
		{"gating: ${OFF}\nproxy_tool: ${OFF}", nil, ""},
		{"gating: {}\nproxy_tool: {}", usual, "proxy"},
		{"gating: {enabled: true}\nproxy_tool: {name: }", usual, "proxy"},
		{"gating: {enabled: false, max_tools: 3}\nproxy_tool: {name: all-1_2}", nil, "all-1_2"},
		{"gating: {enabled: '${OFF}'}\nproxy_tool: all", nil, "all"},
		{"gating: {max_tools: 3}\nproxy_tool: ${NAME}", gated(view.DefaultMaxTokens, 3, 0), "everything"},
		{"gating: {max_tokens: '${N}', max_tools: 0, ttl: '${N}'}\nproxy_tool: the_${NAME}", gated(7, 0, 7*time.Second), "the_everything"},
		{"gating: {max_tokens: 0, ttl: 24h}\nproxy_tool: {name: '${NAME}'}", gated(0, view.DefaultMaxTools, 24*time.Hour), "everything"},
	} {
		env := []string{"ON=true", "OFF=false", "N=7", "NAME=everything"}
		c := mustLoad(t, minimal+tt.text+"\n", env...)
		if !reflect.DeepEqual(c.Gating, tt.gating) || c.ProxyTool != tt.proxy {
			t.Errorf("%q: got %+v, %q; want %+v, %q", tt.text, c.Gating, c.ProxyTool, tt.gating, tt.proxy)
		}
		// The same under a view, whatever the top level says.
		text := "proxy_tool: other\ntool_views:\n  v:\n    include_all: true\n    " + strings.ReplaceAll(tt.text, "\n", "\n    ") + "\n"
		want := tt.proxy
		if !strings.Contains(tt.text, "proxy_tool: ") || strings.HasSuffix(tt.text, "proxy_tool: ") {
			want = "other"
		}
		c = mustLoad(t, minimal+text, env...)
		if v := c.Views[0]; !reflect.DeepEqual(v.Gating, tt.gating) || v.ProxyTool != want {
			t.Errorf("%q in a view: got %+v, %q; want %+v, %q", tt.text, v.Gating, v.ProxyTool, tt.gating, want)
		}
	}
}

// A view that says nothing has what the top level says, wherever that stands and
// comes from; a whole block takes its place.
func TestViewsLeaveToTheTopLevel(t *testing.T) {
	text := `
tool_views:
  default: {include_all: true}
  silent: {include_all: true, gating: , proxy_tool: }
  own: {include_all: true, gating: {max_tools: 3}, proxy_tool: own}
  none: {include_all: true, gating: false, proxy_tool: false}
  open: {include_all: true, gating: false, exposure_mode: direct}
gating: {max_tokens: 100, ttl: 1m}
proxy_tool: file
` + minimal
	for _, tt := range []struct {
		env   []string
		flags map[string]string
		top   string
	}{
		{nil, nil, "file"},
		{[]string{"MCPPROXY_PROXY_TOOL=env"}, nil, "env"},
		{[]string{"MCPPROXY_PROXY_TOOL=true"}, nil, "proxy"},
		{[]string{"MCPPROXY_PROXY_TOOL=false"}, nil, ""},
		{[]string{"MCPPROXY_PROXY_TOOL=env"}, map[string]string{"proxy_tool": "flag"}, "flag"},
	} {
		c := must.Get(loadAll(Options{Trusts: trustsAll, Dir: write(t, "toolfinch.yaml", text), Env: environ(tt.env...), Flags: tt.flags}))(t)
		top := &view.Gating{MaxTokens: 100, MaxTools: view.DefaultMaxTools, TTL: time.Minute}
		want := []view.Settings{
			{Name: "default", Gating: top, ProxyTool: tt.top},
			{Name: "silent", Gating: top, ProxyTool: tt.top},
			{Name: "own", Gating: &view.Gating{MaxTokens: view.DefaultMaxTokens, MaxTools: 3}, ProxyTool: "own"},
			{Name: "none"},
			{Name: "open", ProxyTool: tt.top},
		}
		if !reflect.DeepEqual(c.Gating, top) || c.ProxyTool != tt.top {
			t.Errorf("%v: %+v, %q", tt.env, c.Gating, c.ProxyTool)
		}
		for i, v := range c.Views {
			if got := (view.Settings{Name: v.Name, Gating: v.Gating, ProxyTool: v.ProxyTool}); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%v: got %+v, want %+v", tt.env, got, want[i])
			}
		}
	}
}

// What the top level gives a view can be wrong in the view, and the error stands
// there.
func TestTheTopLevelMustSuitTheViews(t *testing.T) {
	_, err := load(t, `
gating: true
mcp_servers:
  a: {command: a, tools: {x: {name: everything}, off: {name: proxy, enabled: false}}}
tool_views:
  listed: {include_all: true, exposure_mode: direct}
  auto: {include_all: true}
  named: {tools: {a: {y: {name: everything}}}}
  has: {tools: {a: {x: {title: X}}}}
`, "MCPPROXY_PROXY_TOOL=everything")
	const want = `toolfinch.yaml:6:3: view "listed": the proxy tool has the name of another tool (of the one on line 4; choose another one: proxy_tool: NAME)
toolfinch.yaml:6:46: view "listed": exposure_mode direct lists every tool, but gating only those that were provisioned (choose another exposure_mode, or write gating: false in the view)
toolfinch.yaml:7:3: view "auto": the proxy tool has the name of another tool (of the one on line 4; choose another one: proxy_tool: NAME)
toolfinch.yaml:8:3: view "named": the proxy tool has the name of another tool (of the one on line 8; choose another one: proxy_tool: NAME)
toolfinch.yaml:9:3: view "has": the proxy tool has the name of another tool (of the one on line 4; choose another one: proxy_tool: NAME)
MCPPROXY_PROXY_TOOL: the proxy tool has the name of another tool (of the one on line 4; choose another one: proxy_tool: NAME)`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// The name of a tool is free for the proxy tool of a view that does not have the
// tool, or has it by another name.
func TestNamesThatTheProxyToolMayHave(t *testing.T) {
	const file = `
mcp_servers:
  a: {command: a, tools: {x: {name: everything}}}
  b: {command: b}
  off: {command: c, enabled: false, tools: {y: {name: everything}}}
tool_views: {v: {proxy_tool: everything, %s}}
`
	for view, free := range map[string]bool{
		`include_all: true`:                                                           false,
		`include_all: true, exclude: [b.x]`:                                           false,
		`include_all: true, exclude: [a.*]`:                                           true,
		`include_all: true, tools: {a: {x: {enabled: false}}}`:                        true,
		`include_all: true, tools: {a: {x: {name: x}}}`:                               true,
		`include_all: true, tools: {a: {x: {}}}`:                                      false,
		`tools: {a: {x: {}}}`:                                                         false,
		`tools: {a: {x: {}}}, exclude: [a.*], include_all: true`:                      false, // what is named is not excluded
		`tools: {a: {"x*": {}}}`:                                                      false,
		`tools: {b: {x: {}}}`:                                                         true,
		`tools: {b: {x: {}}, off: {y: {}}}`:                                           true,
		`tools: {b: {x: {name: everything}}}`:                                         false,
		`tools: {b: {x: {name: everything, enabled: false}}}`:                         true,
		`composite_tools: {everything: {parallel: {s: {tool: a.x}}}}`:                 false,
		`composite_tools: {c: {parallel: {s: {tool: a.x}}}}`:                          true,
		`include_all: true, exclude: [a.*], custom_tools: ["h.star:everything"]`:      false,
		`include_all: true, exclude: [a.*], exposure_mode: search`:                    true,
		`include_all: true, exclude: [a.*], exposure_mode: direct, run_script: true`:  true,
		`composite_tools: {c: {parallel: {s: {tool: a.x}}}}, gating: {max_tools: 10}`: true,
	} {
		_, err := loadWith(t, fmt.Sprintf(file, view), []string{"h.star"})
		if free && err != nil || !free && (err == nil || !strings.Contains(err.Error(), `view "v": the proxy tool has the name of another tool`)) {
			t.Errorf("{%s}: %v, want it free: %v", view, err, free)
		}
	}
}

// Edits keep what is said of gating, and a view that cannot be gated is not
// written beside it.
func TestEditsBesideGating(t *testing.T) {
	const file = `mcp_servers:
  a: {command: a}
gating: # for all
  max_tools: 3 # few
  ttl: 1h
proxy_tool: {name: all}
rest_api: false
tool_views:
  v: {include_all: true, gating: false}
`
	path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), file)
	must.Do(t, AddServer(path, clients.Server{Name: "b", Command: "b"}))
	added := strings.Replace(file, "gating:", "  b:\n    command: b\ngating:", 1)
	if got := must.Read(t, path); got != added {
		t.Errorf("got\n%s", got)
	}
}

// docs/configuration.md names every key, and what it shows of gating loads.
func TestDocumentation(t *testing.T) {
	doc := must.Read(t, filepath.Join("..", "docs", "configuration.md"))
	var keys []string
	for _, list := range [][]string{
		topKeys(), serverKeys.names(), viewKeys.names(), overrideKeys.names(), hookKeys.names(), compositeKeys.names(), gatingKeys.names(),
	} {
		keys = append(keys, list...)
	}
	for _, key := range keys {
		if !strings.Contains(doc, "`"+key+"`") {
			t.Errorf("%s is not in the documentation", key)
		}
	}
	for _, k := range top.keys {
		if k.env != "" && !strings.Contains(doc, "`"+k.env+"`") {
			t.Errorf("%s is not in the documentation", k.env)
		}
	}
	shown := regexp.MustCompile(`(?m)^    (gating: .*)$`).FindStringSubmatch(doc)
	if shown == nil {
		t.Fatal("the documentation shows no gating")
	}
	if c := mustLoad(t, minimal+shown[1]+"\n"); c.Gating == nil || c.Gating.TTL != time.Hour {
		t.Errorf("%s is read as %+v", shown[1], c.Gating)
	}
}

// mcp:proxy is what servers of the extension call the proxy tool. No other name has a colon.
func TestTheProxyToolMayHaveTheNameOfTheExtension(t *testing.T) {
	for _, text := range []string{`proxy_tool: "mcp:proxy"`, `proxy_tool: {name: "mcp:proxy"}`} {
		c := mustLoad(t, minimal+text+"\n")
		if c.ProxyTool != "mcp:proxy" || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Message, "colon") {
			t.Errorf("%s: %q, %v", text, c.ProxyTool, Errors(c.Warnings))
		}
	}
	if _, err := load(t, minimal+`proxy_tool: "mcp:portal"`); err == nil {
		t.Error("mcp:portal is accepted")
	}
}
