//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"toolfinch/internal/fetch"
)

// visitor is a user's client of a served toolfinch, of either era, or on stdio.
type visitor struct {
	url, user string
	modern    bool
	session   string
	n         int
	lines     *bufio.Scanner // stdio
	in        io.Writer
}

// ask sends a request and returns what is answered.
func (a *visitor) ask(t *testing.T, method, params string) string {
	t.Helper()
	a.n++
	if a.modern {
		meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
		if params != "{}" {
			meta += ","
		}
		params = meta + params[1:]
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, a.n, method, params)
	if a.in != nil {
		fmt.Fprintln(a.in, body)
		for a.lines.Scan() {
			if strings.Contains(a.lines.Text(), fmt.Sprintf(`"id":%d`, a.n)) {
				return a.lines.Text()
			}
		}
		t.Fatalf("%s: toolfinch ended: %v", method, a.lines.Err())
	}
	header := map[string]string{"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Mcp-Protocol-Version": "2025-11-25"}
	if a.modern {
		header["Mcp-Protocol-Version"], header["Mcp-Method"] = "2026-07-28", method
		var named struct{ Name, URI string }
		_ = json.Unmarshal([]byte(params), &named)
		if name := named.Name + named.URI; name != "" {
			header["Mcp-Name"] = name
		}
	} else if a.session != "" {
		header["Mcp-Session-Id"] = a.session
	} else {
		delete(header, "Mcp-Protocol-Version")
	}
	got := a.send(t, http.MethodPost, a.url, body, header)
	if id := got.Header.Get("Mcp-Session-Id"); id != "" {
		a.session = id
	}
	return got.Body
}

func (a *visitor) send(t *testing.T, method, url, body string, header map[string]string) fetch.Answer {
	t.Helper()
	var lines []string
	for name, value := range header {
		lines = append(lines, name+": "+value)
	}
	if a.user != "" {
		lines = append(lines, "X-User: "+a.user)
	}
	return fetch.Send(t, method, url, body, lines...)
}

func (a *visitor) begin(t *testing.T) {
	if !a.modern {
		a.ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	}
}

const echoPolicies = `permit (principal, action, resource);
@id("only root echoes")
forbid (principal, action, resource) when { resource.name == "echo" } unless { principal == User::"root" };
forbid (principal, action, resource == Prompt::"everything.simple-prompt") unless { principal == User::"root" };`

// echoes are the ways to have server-everything echo a word, in a view.
func echoes(name string) map[string]string {
	quoted := func(text string) string { out, _ := json.Marshal(text); return string(out) }
	call := func(tool, arguments string) string {
		return `{"name":` + quoted(tool) + `,"arguments":` + arguments + `}`
	}
	ways := map[string]string{"tools/call " + name: call(name, `{"message":"sesame"}`)}
	inner := call(name, `{"message":"sesame"}`)
	ways["call_tool "+name] = call("call_tool", inner)
	ways["call_tool, text "+name] = call("call_tool", `{"name":`+quoted(name)+`,"arguments":"{\"message\":\"sesame\"}"}`)
	ways["calls "+name] = call("call_tool", `{"calls":[`+inner+`,`+inner+`]}`)
	ways["execute_tool "+name] = call("execute_tool", `{"tool_id":`+quoted(name)+`,"arguments":{"message":"sesame"}}`)
	ways["provision_tools "+name] = call("provision_tools", `{"tool_ids":[`+quoted(name)+`]}`)
	ways["proxy "+name] = call("proxy", `{"action":"call","type":"tool","path":`+quoted(name)+`,"args":{"message":"sesame"}}`)
	ways["proxy info "+name] = call("proxy", `{"action":"info","type":"tool","path":`+quoted(name)+`}`)
	ways["proxy batch "+name] = call("proxy", `{"action":"batch","operations":[{"action":"call","type":"tool","path":`+quoted(name)+`,"args":{"message":"sesame"}}]}`)
	ways["run_script "+name] = call("run_script", `{"script":`+quoted(`result = call_tool(`+quoted(name)+`, message="sesame")`)+`}`)
	ways["search view "+name] = call("found_call_tool", inner)
	ways["describe "+name] = call("found_describe_tool", `{"name":`+quoted(name)+`}`)
	return ways
}

// what a forbidden tool would give away: that it echoed, or its definition.
var echoed = regexp.MustCompile(`Echo: sesame|Echoes back|Message to echo|not allowed|polic`)

// A tool of a published server that a policy forbids is reached by no surface and in no
// spelling, in either era, on stdio, HTTP and REST; and by whom it is not forbidden, by all.
func TestAForbiddenToolIsReachedByNoSurface(t *testing.T) {
	view := func(more map[string]any) map[string]any {
		more["include_all"] = true
		return more
	}
	h := newHouse(t, map[string]server{"everything": script(t, module(t, everythingJS), "stdio")}, map[string]any{
		"principal_header": "X-User", "policies": []string{echoPolicies}, "default_view": "all", "proxy_tool": true,
		"tool_views": map[string]any{
			"gated": view(map[string]any{"gating": true}), "scripts": view(map[string]any{"run_script": true, "exposure_mode": "retrieve", "proxy_tool": true}),
			"found": view(map[string]any{"exposure_mode": "search"}), "direct": view(map[string]any{"exposure_mode": "direct"}),
		},
	})
	if out, err := h.output(t, "reindex"); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	url, _ := h.serveHTTP(t)
	reached := map[string]bool{}
	check := func(t *testing.T, user, way, got string) {
		t.Helper()
		if root := user == "root"; root {
			reached[way] = reached[way] || echoed.MatchString(got)
		} else if echoed.MatchString(got) {
			t.Errorf("%s: %s answers %s", user, way, got)
		}
	}
	names := []string{"everything_echo", "everything.echo", "everything:echo", "echo"}
	for _, user := range []string{"alice", "", "root"} {
		for _, modern := range []bool{false, true} {
			for _, view := range []string{"", "/gated", "/scripts", "/found", "/direct"} {
				a := &visitor{url: url + view, user: user, modern: modern}
				a.begin(t)
				for _, list := range []string{
					a.ask(t, "tools/list", `{}`), a.ask(t, "prompts/list", `{}`),
					a.ask(t, "tools/call", `{"name":"retrieve_tools","arguments":{"query":"echo a message back","limit":50,"detail":"name"}}`),
					a.ask(t, "tools/call", `{"name":"discover_tools","arguments":{"query":"echo a message back"}}`),
					a.ask(t, "tools/call", `{"name":"found_search_tools","arguments":{}}`),
					a.ask(t, "tools/call", `{"name":"proxy","arguments":{"action":"list","type":"tool"}}`),
				} {
					if user != "root" && strings.Contains(list, "echo\"") || user != "root" && strings.Contains(list, "simple-prompt") {
						t.Errorf("%q in %q lists what is forbidden: %.2000s", user, view, list)
					}
				}
				for _, name := range names {
					for way, params := range echoes(name) {
						check(t, user, way, a.ask(t, "tools/call", params))
					}
				}
				for _, name := range []string{"everything_simple-prompt", "simple-prompt"} {
					if got := a.ask(t, "prompts/get", `{"name":"`+name+`"}`); user != "root" && !strings.Contains(got, `unknown prompt`) {
						t.Errorf("prompts/get %s = %s", name, got)
					}
				}
			}
		}
		for _, view := range []string{"", "?view=gated"} {
			a, base := &visitor{user: user}, strings.TrimSuffix(url, "/mcp")
			for _, name := range names {
				got := a.send(t, "POST", base+"/api/proxy/execute"+view, `{"tool_id":"`+name+`","arguments":{"message":"sesame"}}`, nil)
				check(t, user, "REST execute "+name, got.Body)
				if user != "root" && got.Status != http.StatusBadRequest {
					t.Errorf("REST answers %d", got.Status)
				}
				check(t, user, "REST tool "+name, a.send(t, "GET", base+"/api/tools/"+name+view, "", nil).Body)
			}
			for _, path := range []string{"/api/tools", "/api/tools/discover"} {
				if got := a.send(t, "GET", base+path+view, "", nil); user != "root" && strings.Contains(got.Body, `echo"`) {
					t.Errorf("%s lists what is forbidden: %s", path, got.Body)
				}
			}
		}
	}
	for _, name := range names[:1] { // by some view, each way reaches it
		for way := range echoes(name) {
			if !reached[way] && !strings.Contains(way, "search view") {
				t.Errorf("root does not reach it by %s: this test proves nothing", way)
			}
		}
	}
	metrics := fetch.Send(t, "GET", strings.TrimSuffix(url, "/mcp")+"/metrics", "").Body
	if !regexp.MustCompile(`toolfinch_denials_total\{policy="only root echoes"\} [1-9]`).MatchString(metrics) {
		t.Errorf("denials are not counted: %s", metrics)
	}

	cmd := exec.Command(program(t), "serve", "--config", h.config)
	cmd.Env = h.env
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	a := &visitor{in: in, lines: lines}
	a.begin(t)
	for _, name := range names {
		for way, params := range echoes(name) {
			check(t, "the owner", way, a.ask(t, "tools/call", params))
		}
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}

	for _, test := range []struct {
		args []string
		want string
		code int
	}{
		{[]string{"--as", "alice", "--tool", "everything.echo"}, `denied: call everything.echo by "only root echoes" (FILE:17)`, 1},
		{[]string{"--as", "root", "--tool", "everything_echo", "--view", "gated"}, "allowed: call everything.echo by ", 0},
		{[]string{"--transport", "stdio", "--prompt", "everything_simple-prompt", "--action", "search"}, "denied: search everything.simple-prompt by FILE:17", 1},
		{[]string{"--tool", "everything.ecco"}, "", 2},
	} {
		out, err := h.output(t, append([]string{"policy", "test"}, test.args...)...)
		code := 0
		if exit, ok := err.(*exec.ExitError); ok {
			code = exit.ExitCode()
		}
		out = bytes.ReplaceAll(out, []byte(h.config), []byte("FILE"))
		if code != test.code || !bytes.HasPrefix(out, []byte(test.want)) {
			t.Errorf("policy test %v: exit code %d, %s\nwant %d, %s", test.args, code, out, test.code, test.want)
		}
	}
}

// A broken edit of a policy is refused with its place, and what was forbidden stays so.
func TestABrokenPolicyIsRefusedWhileServing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, map[string]server{"everything": script(t, module(t, everythingJS), "stdio")}, map[string]any{"policies": []string{"files/team.cedar"}})
	const permit, forbid = "permit (principal, action, resource);\n", `forbid (principal, action, resource) when { resource.name == "echo" };`
	h.file(t, "team.cedar", permit+forbid)
	run := h.start(t)
	waitConnected(t, run.url)
	echo := func() string {
		a := &visitor{url: run.url}
		a.begin(t)
		return a.ask(t, "tools/call", `{"name":"everything_echo","arguments":{"message":"sesame"}}`)
	}
	for _, edit := range []struct {
		text, log, names string
		echoes           bool
	}{
		{permit + "forbid (principal, action;", refused, "team.cedar:2:", false},
		{permit, reloaded, "", true},
		{"", reloaded, "", false},
		{permit + forbid, reloaded, "", false},
	} {
		at := len(run.log.String())
		h.file(t, "team.cedar", edit.text)
		run.log.wait(t, at, edit.log, edit.names)
		if got := echo(); strings.Contains(got, "Echo: sesame") != edit.echoes {
			t.Errorf("with the policies %q: %s", edit.text, got)
		}
	}
	run.stop()
}
