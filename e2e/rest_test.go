//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/rawjson"
)

// What the pages on REST and the proxy tool show of a configuration loads.
func TestConfigurationsOfRESTAndTheProxyTool(t *testing.T) {
	for _, doc := range []string{"rest.md", "proxy-tool.md"} {
		page, err := os.ReadFile("../docs/" + doc)
		if err != nil {
			t.Fatal(err)
		}
		blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllSubmatch(page, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no configuration: the test reads past it", doc)
		}
		for _, block := range blocks {
			text := string(block[1])
			if !strings.Contains(text, "mcp_servers:") {
				text += "mcp_servers: {memory: {command: x}}\n"
			}
			path := filepath.Join(t.TempDir(), "toolfinch.yaml")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			config, err := configs.Load(configs.Options{Path: path, Env: func(name string) (string, bool) { return t.TempDir(), name == "HOME" }})
			if err != nil || len(config.Warnings) > 0 {
				t.Errorf("%s: %v\n%s", doc, err, text)
			}
		}
	}
}

// served is a toolfinch that serves real servers over HTTP, with the proxy tool,
// the REST API and what docs/rest.md shows of a configuration.
type served struct {
	house
	base string // of all URLs
	pid  int
	log  *logWriter
	node string // a link to the program that the server memory is run by
}

// The proxy tool through the TypeScript SDK, and the REST API through curl, over
// real servers.
func TestTheProxyToolAndRESTOverRealServers(t *testing.T) {
	servers := upstreams(t, "everything", "files", "memory")
	h := newHouse(t, servers)
	probe, err := filepath.Abs("../testdata/node/probe.mjs")
	if err != nil {
		t.Fatal(err)
	}
	s := served{house: h, node: filepath.Join(h.home, "node")}
	if err := os.Symlink(node(t), s.node); err != nil {
		t.Fatal(err)
	}
	s.reconfigure(t, func(config map[string]any) {
		all := config["mcp_servers"].(map[string]any)
		memory := all["memory"].(map[string]any)
		memory["command"] = s.node
		all["slow"] = map[string]any{"command": node(t), "args": []string{probe}, "connect_timeout": patience.String(), "call_timeout": "5s"}
		all["gone"] = map[string]any{"command": filepath.Join(h.home, "no such program")}
		config["proxy_tool"], config["default_view"] = true, "all"
		config["principal_header"] = "X-User"
		config["tool_views"] = map[string]any{
			"careful": map[string]any{"include_all": true, "gating": map[string]any{"max_tokens": 3000, "max_tools": 10}},
			"reader":  map[string]any{"proxy_tool": "portal", "tools": map[string]any{"files": map[string]any{"read_text_file": map[string]any{"name": "read"}}}},
		}
	})
	url, pid, log := s.serveLogged(t)
	s.base, s.pid, s.log = strings.TrimSuffix(url, "/mcp"), pid, log
	s.waitServers(t, 4)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the proxy tool through the TypeScript SDK", s.proxyTool},
		{"the proxy tool of a view", s.portal},
		{"the curl lines of the documentation", s.documented},
		{"executed", s.executed},
		{"a server whose process was killed", s.killed},
		{"a server that hangs", s.hangs},
		{"a server that never was", s.gone},
		{"who may come in", s.guarded},
		{"users of a reverse proxy", s.users},
		{"the document and the metrics", s.described},
		{"switched off", s.off},
	} {
		t.Run(test.name, test.run)
	}
}

// reconfigure edits the configuration.
func (s served) reconfigure(t *testing.T, edit func(config map[string]any)) {
	t.Helper()
	var config map[string]any
	text, err := os.ReadFile(s.config)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err == nil {
		edit(config)
		text, err = json.MarshalIndent(config, "", "  ")
	}
	if err == nil {
		err = os.WriteFile(s.config, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// plain is the answer to a request over HTTP.
type plain struct {
	status int
	body   string
}

// ask sends a request; a body is JSON, and each header is "Name: value".
func (s served) ask(t *testing.T, method, path, body string, header ...string) plain {
	t.Helper()
	got := fetch.Send(t, method, s.base+path, body, header...)
	return plain{got.Status, got.Body}
}

// wants fails the test unless the answer has the status and the texts.
func (p plain) wants(t *testing.T, what string, status int, texts ...string) {
	t.Helper()
	if p.status != status || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(p.body, text) }) {
		t.Errorf("%s answers %d %s\nwant %d and in it %q", what, p.status, p.body, status, texts)
	}
}

func (s served) execute(t *testing.T, id, arguments string, header ...string) plain {
	t.Helper()
	return s.ask(t, http.MethodPost, "/api/proxy/execute", `{"tool_id":"`+id+`","arguments":`+arguments+`}`, header...)
}

// waitServers waits until that many are ready and none is waited for.
func (s served) waitServers(t *testing.T, ready int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		got := s.ask(t, http.MethodGet, "/api/servers", "").body
		if strings.Count(got, `"state":"ready"`) == ready && !strings.Contains(got, `"state":"pending"`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the servers are %s", got)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// direct speaks with a server itself, as toolfinch does, and returns the result of
// each method, byte for byte.
func (s served) direct(t *testing.T, name string, methods ...string) (results []json.RawMessage) {
	t.Helper()
	var config struct {
		Servers map[string]server `json:"mcp_servers"`
	}
	text, err := os.ReadFile(s.config)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	of := config.Servers[name]
	cmd := exec.CommandContext(t.Context(), of.Command, of.Args...)
	cmd.Env = slices.Clone(s.env)
	for key, value := range of.Env {
		cmd.Env = append(cmd.Env, key+"="+value)
	}
	c := speakWith(t, cmd)
	defer func() {
		c.in.Close()
		_ = cmd.Process.Kill() // some ignore the end of their input
		_ = cmd.Wait()
	}()
	c.ask(t, "initialize", `{"protocolVersion":"2025-11-25","clientInfo":{"name":"direct","version":"1"},"capabilities":{"roots":{"listChanged":true},"sampling":{"context":{},"tools":{}},"elicitation":{"form":{},"url":{}}}}`)
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for _, method := range methods {
		results = append(results, rawjson.Member(c.ask(t, method, `{}`), "result"))
	}
	return results
}

// byPath are the definitions of a list by what tells them apart.
func byPath(t *testing.T, list json.RawMessage) map[string]string {
	t.Helper()
	var defs []json.RawMessage
	if err := json.Unmarshal(list, &defs); err != nil {
		t.Fatalf("%v in %s", err, list)
	}
	all := map[string]string{}
	for _, def := range defs {
		var of struct{ Name, URI, URITemplate string }
		if err := json.Unmarshal(def, &of); err != nil {
			t.Fatal(err)
		}
		path := of.Name
		if of.URI+of.URITemplate != "" {
			path = of.URI + of.URITemplate
		}
		all[path] = string(def)
	}
	return all
}

// portalResult is an answer of the proxy tool as a typed client has it, which
// drops annotations that it does not know.
type portalResult struct {
	Result struct {
		Content []struct {
			Type, Text  string
			Annotations map[string]json.RawMessage
			Meta        map[string]json.RawMessage `json:"_meta"`
			Resource    struct {
				URI, MimeType, Text, Blob string
			}
		}
		StructuredContent json.RawMessage
		IsError           bool
	}
	Progress []struct{ Progress, Total float64 }
	Error    *struct {
		Code    int
		Message string
	}
}

func (c *sdkClient) portal(t *testing.T, name string, arguments map[string]any) portalResult {
	t.Helper()
	var answer portalResult
	c.do(t, "call", map[string]any{"name": name, "arguments": arguments}, &answer)
	return answer
}

// embedded is the text of the one embedded resource, which is JSON.
func (r portalResult) embedded(t *testing.T, labels map[string]string) string {
	t.Helper()
	if r.Error != nil || r.Result.IsError || len(r.Result.Content) != 1 || r.Result.Content[0].Type != "resource" {
		t.Fatalf("the answer is not one embedded resource: %+v", r)
	}
	r.labelled(t, labels)
	if got := r.Result.Content[0].Resource.MimeType; got != "application/json" {
		t.Errorf("its type is %s", got)
	}
	return r.Result.Content[0].Resource.Text
}

// labelled fails the test unless each content item has the labels in its _meta.
func (r portalResult) labelled(t *testing.T, labels map[string]string) {
	t.Helper()
	if r.Error != nil || len(r.Result.Content) == 0 {
		t.Fatalf("there is no content: %+v", r)
	}
	for _, item := range r.Result.Content {
		for key, want := range labels {
			if got := string(item.Meta[key]); got != want {
				t.Errorf("_meta has %s = %s, want %s: %+v", key, got, want, item)
			}
		}
	}
}

func (s served) proxyTool(t *testing.T) {
	c := newSDKClient(t, s.env)
	c.do(t, "connect", map[string]any{"url": s.base + "/mcp"}, nil)
	if got := names(c.list(t)); !slices.Contains(got, "proxy") {
		t.Fatalf("listed are %q", got)
	}
	list := func(typ, filter string) map[string]string {
		var f map[string]any
		if filter != "" {
			f = map[string]any{"server": filter}
		}
		return byPath(t, json.RawMessage(c.portal(t, "proxy", map[string]any{"action": "list", "type": typ, "filter": f}).
			embedded(t, map[string]string{"proxyAction": `"list"`, "proxyType": `"` + typ + `"`, "many": "true"})))
	}
	for _, name := range []string{"everything", "files", "memory"} {
		var want map[string]string
		var got map[string]string
		for deadline := time.Now().Add(patience); ; { // some learn what a client can do after they have started
			var tools struct{ Tools json.RawMessage }
			if err := json.Unmarshal(s.direct(t, name, "tools/list")[0], &tools); err != nil {
				t.Fatal(err)
			}
			want, got = byPath(t, tools.Tools), list("tool", name)
			if len(want) == len(got) || time.Now().After(deadline) {
				break
			}
		}
		if len(got) < realServers[name].least {
			t.Errorf("%s has %d tools, want %d at least", name, len(got), realServers[name].least)
		}
		for path, def := range got {
			own := strings.TrimPrefix(path, name+"_")
			if renamed := strings.Replace(want[own], `"name":"`+own+`"`, `"name":"`+path+`"`, 1); def != renamed {
				t.Errorf("%s is listed as\n%s\nand by its server as\n%s", path, def, renamed)
			}
		}
	}
	own := s.direct(t, "everything", "prompts/list", "resources/list", "resources/templates/list")
	for i, key := range []string{"prompts", "resources", "resourceTemplates"} {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(own[i], &members); err != nil {
			t.Fatal(err)
		}
		typ := "resource"
		if key == "prompts" {
			typ = "prompt"
		}
		got := list(typ, "everything")
		for path, def := range byPath(t, members[key]) {
			want := def
			if typ == "prompt" {
				want = strings.Replace(def, `"name":"`+path+`"`, `"name":"everything_`+path+`"`, 1)
				path = "everything_" + path
			}
			if got[path] != want {
				t.Errorf("%s is listed as\n%s\nand by its server as\n%s", path, got[path], want)
			}
		}
	}

	call := func(typ, path string, args map[string]any) portalResult {
		t.Helper()
		got := c.portal(t, "proxy", map[string]any{"action": "call", "type": typ, "path": path, "args": args})
		got.labelled(t, map[string]string{"proxyAction": `"call"`, "proxyType": `"` + typ + `"`, "proxyPath": `"` + path + `"`})
		return got
	}
	if got := call("tool", "everything_get-sum", map[string]any{"a": 20, "b": 22}).Result.Content[0].Text; !strings.Contains(got, "42") {
		t.Errorf("the sum is %q", got)
	}
	path := filepath.Join(s.files, "portal.txt")
	call("tool", "files_write_file", map[string]any{"path": path, "content": "naïve 😀\n"})
	if text, err := os.ReadFile(path); err != nil || string(text) != "naïve 😀\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
	if got := call("tool", "files_read_text_file", map[string]any{"path": "/etc/hostname"}); !got.Result.IsError {
		t.Errorf("outside its folder the server answered %+v", got)
	}
	call("tool", "memory_create_entities", map[string]any{"entities": []any{map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"keeps the spare key"}}}})
	if got := call("tool", "memory_search_nodes", map[string]any{"query": "spare key"}); !strings.Contains(string(got.Result.StructuredContent), "Ada") {
		t.Errorf("the memory has %+v", got)
	}
	if got := call("tool", "everything_get-annotated-message", map[string]any{"messageType": "error"}).Result.Content[0]; string(got.Annotations["priority"]) != "1" {
		t.Errorf("the tool's own annotations are %+v", got)
	}
	const resource = "demo://resource/dynamic/text/1"
	if got := call("resource", resource, nil).Result.Content[0]; got.Type != "resource" || got.Resource.URI != resource || got.Resource.Text == "" {
		t.Errorf("%s = %+v", resource, got)
	}
	if got := call("resource", "demo://resource/dynamic/blob/1", nil).Result.Content[0]; got.Resource.Blob == "" {
		t.Errorf("the blob is %+v", got)
	}
	prompt := call("prompt", "everything_args-prompt", map[string]any{"city": "Bern"}).embedded(t, map[string]string{"pythonType": `"GetPromptResult"`, "dataType": `"GetPromptResult"`})
	if !strings.Contains(prompt, `"messages":[`) || !strings.Contains(prompt, "Bern") {
		t.Errorf("the prompt is %s", prompt)
	}
	info := c.portal(t, "proxy", map[string]any{"action": "info", "type": "tool", "path": "memory_search_nodes"}).
		embedded(t, map[string]string{"many": "false", "pythonType": `"Tool"`, "proxyPath": `"memory_search_nodes"`})
	if !strings.HasPrefix(info, `{"name":"memory_search_nodes"`) {
		t.Errorf("info is %s", info)
	}
	// The SDK forgets about progress when it reads an answer, and drops what it read
	// together with it.
	slow := call("tool", "everything_trigger-long-running-operation", map[string]any{"duration": 0.4, "steps": 4})
	if n := len(slow.Progress); n < 3 || slow.Progress[0].Progress != 1 || slow.Progress[0].Total != 4 {
		t.Errorf("progress is %+v", slow.Progress)
	}
	for _, wrong := range []map[string]any{
		{"action": "call", "type": "tool", "path": "memory_serch_nodes"}, {"action": "list", "type": "tool", "args": map[string]any{}}, {"action": "call", "type": "tool"}, {"type": "tool"},
	} {
		if got := c.portal(t, "proxy", wrong); got.Error == nil && !got.Result.IsError {
			t.Errorf("%v answers %+v", wrong, got)
		}
	}
	page, err := os.ReadFile("../docs/proxy-tool.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`(?m)^    (\{"action".*)$`).FindAllSubmatch(page, -1)
	for _, line := range documented {
		var arguments map[string]any
		if err := json.Unmarshal(line[1], &arguments); err != nil {
			t.Errorf("%v: %s", err, line[1])
			continue
		}
		got := c.portal(t, "proxy", arguments)
		if got.Error != nil || got.Result.IsError || len(got.Result.Content) == 0 || strings.Contains(got.Result.Content[0].Resource.Text, `"isError":true`) || got.Result.Content[0].Resource.Text == "[]" {
			t.Errorf("the documented %s answers %+v", line[1], got)
		}
	}
	if len(documented) < 9 {
		t.Errorf("only %d lines of the documentation were found: the test reads past them", len(documented))
	}
	s.log.wait(t, 0, `"msg":"tool called"`, `"tool":"memory.search_nodes"`, `"outcome":"success"`, `toolfinch-sdk-client`)
	s.log.wait(t, 0, `"msg":"tool called"`, `"tool":"files.read_text_file"`, `"outcome":"tool_error"`)
	if log := s.log.String(); strings.Contains(log, "spare key") {
		t.Error("arguments are in the log")
	}
}

func (s served) portal(t *testing.T) {
	c := newSDKClient(t, s.env)
	c.do(t, "connect", map[string]any{"url": s.base + "/mcp/reader"}, nil)
	if got := names(c.list(t)); !slices.Contains(got, "portal") || slices.Contains(got, "proxy") {
		t.Errorf("listed are %q", got)
	}
	all := c.portal(t, "portal", map[string]any{"action": "list", "type": "tool"}).embedded(t, map[string]string{"totalCount": "1"})
	if got := byPath(t, json.RawMessage(all)); got["read"] == "" {
		t.Errorf("the view has %s", all)
	}
	for _, typ := range []string{"resource", "prompt"} {
		if got := c.portal(t, "portal", map[string]any{"action": "list", "type": typ}).embedded(t, map[string]string{"totalCount": "0"}); got != "[]" {
			t.Errorf("of type %s the view has %s", typ, got)
		}
	}
	for _, path := range []string{"files_read_text_file", "files_write_file", "memory_read_graph", "everything_echo", "proxy", "portal"} {
		if got := c.portal(t, "portal", map[string]any{"action": "call", "type": "tool", "path": path}); !got.Result.IsError || !strings.Contains(got.Result.Content[0].Text, "there is no tool") {
			t.Errorf("%s is in reach: %+v", path, got)
		}
	}
	file := s.file(t, "read me.txt", "inside")
	if got := c.portal(t, "portal", map[string]any{"action": "call", "type": "tool", "path": "read", "args": map[string]any{"path": file}}); got.Error != nil || got.Result.Content[0].Text != "inside" {
		t.Errorf("the tool inside answers %+v", got)
	}
}

// documented runs the lines of docs/rest.md as they stand.
func (s served) documented(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		missing(t, "there is no curl")
	}
	line := regexp.MustCompile(`(?m)^    curl (?:.*\\\n)*.*$`)
	n := 0
	page, err := os.ReadFile("../docs/rest.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range line.FindAllString(string(page), -1) {
		n++
		command = strings.Replace(strings.TrimSpace(command), "curl", "exec '"+curl+"' -sS -w '\\n%{http_code}'", 1)
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(command, "http://127.0.0.1:8080", s.base))
		cmd.Env = s.env
		want := "\n200"
		if strings.Contains(command, `"hash": "..."`) { // nobody has proved here who decides
			want = "\n403"
		}
		out, err := cmd.Output()
		if err != nil || !strings.HasSuffix(string(out), want) {
			t.Errorf("%s\n%v %s", command, err, out)
		}
	}
	if n < 10 {
		t.Errorf("only %d lines were found: the test reads past them", n)
	}
}

func (s served) executed(t *testing.T) {
	s.execute(t, "everything_get-sum", `{"a":20,"b":22}`).wants(t, "a sum", 200, `{"result":{"content":[{"type":"text","text":"The sum of 20 and 22 is 42."}]`)
	s.execute(t, "everything_get-sum", `{"a":"x"}`).wants(t, "what does not fit", 400, `{"detail":"`, "input schema")
	s.execute(t, "everything_get-some", `{}`).wants(t, "an unknown tool", 400, `{"detail":"Unknown tool: everything_get-some`, "everything_get-sum")
	s.execute(t, "files_read_text_file", `{"path":"/etc/hostname"}`).wants(t, "a tool's own failure", 200, `"isError":true`)
	s.ask(t, "GET", "/api/tools/discover?query=search+nodes+of+the+knowledge+graph&limit=1", "").wants(t, "discover", 200, `"tool_id":"memory_search_nodes"`)
	s.ask(t, "GET", "/api/tools?view=reader", "").wants(t, "the tools of a view", 200, `"tool_id":"read"`, `"total":1`)
	s.ask(t, "POST", "/api/reindex", "").wants(t, "reindex", 200, `"server":"files"`, `"server":"gone","tools":0,"added":0,"removed":0,"changed":0,"error":"`)
}

func (s served) killed(t *testing.T) {
	kill(t, s.pid, "server-memory")
	await.True(t, func() bool { // by itself; the documentation has had it reconnected once
		return strings.Contains(s.ask(t, "GET", "/metrics", "").body, `toolfinch_server_reconnects_total{server="memory"} 2`)
	})
	s.ask(t, "POST", "/api/servers/memory/reconnect", "").wants(t, "reconnect", 200, `{"server":{"name":"memory"`, `"state":"ready"`)
	s.execute(t, "memory_search_nodes", `{"query":"Ada"}`).wants(t, "after the reconnect", 200, "spare key")
	if got := runningBelow(s.pid, "server-memory"); len(got) != 1 {
		t.Errorf("%d processes of the server run", len(got))
	}
	s.ask(t, "GET", "/metrics", "").wants(t, "metrics", 200,
		`toolfinch_server_starts_total{server="everything"} 1`, `toolfinch_server_reconnects_total{server="everything"} 0`,
		`toolfinch_server_starts_total{server="memory"} 4`, `toolfinch_server_reconnects_total{server="memory"} 3`)
	if err := os.Remove(s.node); err != nil {
		t.Fatal(err)
	}
	kill(t, s.pid, "server-memory")
	s.execute(t, "memory_search_nodes", `{"query":"Ada"}`).wants(t, "a server that cannot be started again", 502, `{"detail":"Server memory not connected: `)
	s.ask(t, "POST", "/api/servers/memory/reconnect", "").wants(t, "its reconnect", 502, "memory")
	s.execute(t, "everything_echo", `{"message":"m"}`).wants(t, "another server", 200, "Echo: m")
	if err := os.Symlink(node(t), s.node); err != nil {
		t.Fatal(err)
	}
	s.ask(t, "POST", "/api/servers/memory/reconnect", "").wants(t, "reconnect, mended", 200)
	s.execute(t, "memory_search_nodes", `{"query":"Ada"}`).wants(t, "mended", 200, "spare key")
}

func (s served) hangs(t *testing.T) {
	s.execute(t, "slow_cancelled_waits", `{}`).wants(t, "a call that takes too long", 504, `{"detail":"Tool execution failed: `, "slow")
	s.execute(t, "slow_log_line", `{"line":"m"}`).wants(t, "the same server", 200, "logged")
}

func (s served) gone(t *testing.T) {
	listed, again := s.ask(t, "GET", "/api/servers", ""), s.ask(t, "POST", "/api/servers/gone/reconnect", "")
	listed.wants(t, "the servers", 200, `"state":"failed"`, `no such program`)
	again.wants(t, "reconnect", 502, "gone", "no such program")
	for _, got := range []plain{listed, again} {
		if strings.Contains(got.body, s.home) {
			t.Errorf("clients are told in which folder the owner's programs are: %s", got.body)
		}
	}
	s.ask(t, "POST", "/api/servers/nobody/reconnect", "").wants(t, "an unknown server", 404, `"detail"`)
}

func (s served) guarded(t *testing.T) {
	for _, header := range []string{"Origin: https://evil.example", "Host: evil.example"} {
		for _, path := range []string{"/mcp", "/api/proxy/execute", "/api/tools", "/api/status", "/metrics", "/openapi.json"} {
			if got := s.ask(t, "POST", path, `{}`, header); got.status != http.StatusForbidden {
				t.Errorf("%s with %s: status %d, want 403", path, header, got.status)
			}
		}
	}
}

func (s served) users(t *testing.T) {
	const id, arguments = "everything_echo", `{"message":"m"}`
	as := func(user string) plain {
		return s.ask(t, "POST", "/api/proxy/execute?view=careful", `{"tool_id":"`+id+`","arguments":`+arguments+`}`, "X-User: "+user)
	}
	as("ada").wants(t, "before", 400, "Tool everything_echo not provisioned. Use provision_tools first.")
	s.ask(t, "POST", "/api/tools/provision?view=careful", `{"tool_ids":["everything_echo"]}`, "X-User: ada").wants(t, "provision", 200, `"usage":{"tools":1,`)
	as("ada").wants(t, "ada", 200, "Echo: m")
	as("bob").wants(t, "bob", 400, "not provisioned")
}

func (s served) described(t *testing.T) {
	var document struct {
		OpenAPI string
		Info    struct{ Version string }
		Paths   map[string]json.RawMessage
	}
	if err := json.Unmarshal([]byte(s.ask(t, "GET", "/openapi.json", "").body), &document); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1") || document.Info.Version == "" || len(document.Paths) < 10 {
		t.Errorf("the document is of OpenAPI %s, version %q, with %d paths", document.OpenAPI, document.Info.Version, len(document.Paths))
	}
	s.ask(t, "GET", "/metrics", "").wants(t, "metrics", 200, `toolfinch_tools{view="reader"} 1`, `toolfinch_servers{state="ready"} 4`, `toolfinch_servers{state="failed"} 1`)
}

func (s served) off(t *testing.T) {
	s.reconfigure(t, func(config map[string]any) { config["rest_api"] = false })
	deadline := time.Now().Add(patience)
	for s.ask(t, "GET", "/api/tools", "").status != http.StatusNotFound {
		if time.Now().After(deadline) {
			t.Fatal("the edit is not taken")
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, path := range []string{"/openapi.json", "/metrics", "/api/servers"} {
		if got := s.ask(t, "GET", path, ""); got.status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", path, got.status)
		}
	}
	s.ask(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		"Accept: application/json, text/event-stream").wants(t, "MCP", 200, "protocolVersion")
}
