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

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
)

// What the pages on REST and the proxy tool show of a configuration loads.
func TestConfigurationsOfRESTAndTheProxyTool(t *testing.T) {
	for _, doc := range []string{"rest.md", "proxy-tool.md"} {
		page := must.Get(os.ReadFile("../docs/" + doc))(t)
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
			must.Do(t, os.WriteFile(path, []byte(text), 0o600))
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
}

// The proxy tool through the TypeScript SDK, and the REST API through curl, over
// real servers.
func TestTheProxyToolAndRESTOverRealServers(t *testing.T) {
	t.Parallel()
	servers := upstreams(t, "everything", "files", "memory")
	h := newHouse(t, servers)
	s := served{house: h}
	s.reconfigure(t, func(config map[string]any) {
		all := config["mcp_servers"].(map[string]any)
		all["gone"] = map[string]any{"command": filepath.Join(h.home, "no such program")}
		config["proxy_tool"], config["default_view"] = true, "all"
		config["principal_header"] = "X-User"
		config["tool_views"] = map[string]any{
			"careful": map[string]any{"include_all": true, "gating": map[string]any{"max_tokens": 3000, "max_tools": 10}},
			"reader":  map[string]any{"proxy_tool": "portal", "tools": map[string]any{"files": map[string]any{"read_text_file": map[string]any{"name": "read"}}}},
		}
	})
	life := s.start(t)
	url, pid, log := life.url, life.pid, life.log
	s.base, s.pid, s.log = strings.TrimSuffix(url, "/mcp"), pid, log
	s.waitServers(t, 3)
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"the proxy tool through the TypeScript SDK", s.proxyTool},
		{"the curl lines of the documentation", s.documented},
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
	await.Nil(t, func() error {
		got := s.ask(t, http.MethodGet, "/api/servers", "").body
		if strings.Count(got, `"state":"ready"`) != ready || strings.Contains(got, `"state":"pending"`) {
			return fmt.Errorf("the servers are %s", got)
		}
		return nil
	})
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
		must.Do(t, json.Unmarshal(def, &of))
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
		await.Nil(t, func() error { // some learn what a client can do after they have started
			var tools struct{ Tools json.RawMessage }
			if err := json.Unmarshal(s.direct(t, name, "tools/list")[0], &tools); err != nil {
				return err
			}
			if want, got = byPath(t, tools.Tools), list("tool", name); len(want) != len(got) {
				return fmt.Errorf("%s has %d tools, listed are %d", name, len(want), len(got))
			}
			return nil
		})
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
		must.Do(t, json.Unmarshal(own[i], &members))
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
	page := must.Get(os.ReadFile("../docs/proxy-tool.md"))(t)
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
