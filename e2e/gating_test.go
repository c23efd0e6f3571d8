//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
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

	"toolfinch/internal/fetch"
)

// gateTools are how a gated configuration is listed.
var gateTools = []string{"discover_tools", "provision_tools", "unprovision_tools", "execute_tool", "list_provisioned"}

// newGatedHouse has a budget that a file server of fourteen tools is above.
func newGatedHouse(t *testing.T) house {
	t.Helper()
	h := newHouse(t, upstreams(t, "files", "memory"))
	h.edit(t, "toolfinch.json", `"data_dir"`, `"gating": {"max_tokens": 700, "max_tools": 4}, "principal_header": "X-User", "data_dir"`)
	return h
}

// gateAnswer is the structured content of the meta-tools of a gate.
type gateAnswer struct {
	Tools []struct {
		ID          string `json:"tool_id"`
		Tokens      int
		Provisioned bool
	}
	Provisioned, Unprovisioned []struct {
		ID string `json:"tool_id"`
	}
	DidNotFit []struct {
		ID     string `json:"tool_id"`
		Tokens int
	} `json:"did_not_fit"`
	Usage struct{ Tools, Tokens int }
}

func (c *sdkClient) gate(t *testing.T, name string, arguments map[string]any) gateAnswer {
	t.Helper()
	var a gateAnswer
	if err := json.Unmarshal([]byte(c.call(t, name, arguments).text()), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// A client made of the TypeScript SDK works with published servers behind a gate,
// over each transport.
func TestSDKClientBehindTheGate(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	for transport, connect := range map[string]func(t *testing.T, h house) map[string]any{
		"stdio": func(t *testing.T, h house) map[string]any { return h.stdio(t) },
		"streamable HTTP": func(t *testing.T, h house) map[string]any {
			url, _ := h.serveHTTP(t)
			return map[string]any{"url": url}
		},
		"SSE": func(t *testing.T, h house) map[string]any {
			url, _ := h.serveHTTP(t)
			return map[string]any{"sse": strings.TrimSuffix(url, "/mcp") + "/sse"}
		},
	} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			h := newGatedHouse(t)
			parameters := connect(t, h)
			c := newSDKClient(t, h.env)
			var hello struct{ Instructions string }
			c.do(t, "connect", parameters, &hello)
			if !strings.Contains(hello.Instructions, "provision_tools") {
				t.Errorf("the instructions do not say what to do: %s", hello.Instructions)
			}
			behindTheGate(t, h, c)
		})
	}
}

func behindTheGate(t *testing.T, h house, c *sdkClient) {
	if got := names(c.list(t)); !slices.Equal(got, gateTools) {
		t.Fatalf("listed are %q", got)
	}
	c.waitReady(t, 2)
	path := h.file(t, "a.txt", "behind the gate")
	read := map[string]any{"path": path}
	const refusal = "Tool files_read_text_file not provisioned. Use provision_tools first."
	refused := func() {
		t.Helper()
		for name, arguments := range map[string]map[string]any{
			"files_read_text_file": read,
			"execute_tool":         {"tool_id": "files_read_text_file", "arguments": read},
			"call_tool":            {"name": "files_read_text_file", "arguments": read},
		} {
			if got := c.try(t, name, arguments); !got.Result.IsError || got.text() != refusal {
				t.Errorf("%s answered %+v, want %s", name, got, refusal)
			}
		}
	}
	refused()

	found := c.gate(t, "discover_tools", map[string]any{"query": "read the text of a file", "tags": []string{"files", "read-only"}})
	if len(found.Tools) == 0 || found.Tools[0].ID != "files_read_text_file" || found.Tools[0].Tokens < 50 || found.Tools[0].Provisioned {
		t.Fatalf("discovered are %+v", found)
	}
	var ids []string
	sum := 0
	for _, one := range c.gate(t, "discover_tools", map[string]any{"tags": []string{"files"}, "limit": 50}).Tools[:4] {
		ids = append(ids, one.ID)
		sum += one.Tokens
	}
	c.refuses(t, "provision_tools", map[string]any{"tool_ids": ids},
		fmt.Sprintf("over budget: asked for 4 tools (%d tokens) beside 0 tools (0 tokens) already provisioned; the budget is 4 tools and 700 tokens", sum))
	if got := c.gate(t, "list_provisioned", nil); len(got.Provisioned) != 0 {
		t.Errorf("after a refusal there are %+v", got)
	}

	got := c.gate(t, "provision_tools", map[string]any{"query": "read the text of a file"})
	if len(got.Provisioned) == 0 || got.Provisioned[0].ID != "files_read_text_file" || got.Usage.Tokens > 700 || got.Usage.Tools > 4 || len(got.DidNotFit) == 0 || got.DidNotFit[0].Tokens == 0 {
		t.Fatalf("provisioned are %+v", got)
	}
	want := slices.Clone(gateTools)
	for _, one := range got.Provisioned {
		want = append(want, one.ID)
	}
	var tools []listed
	c.do(t, "relisted", nil, &tools)
	if !slices.Equal(names(tools), want) {
		t.Errorf("listed anew are %q, want %q", names(tools), want)
	}
	if text := c.call(t, "files_read_text_file", read).text(); text != "behind the gate" {
		t.Errorf("read %q", text)
	}
	if text := c.call(t, "execute_tool", map[string]any{"tool_id": "files_read_text_file", "arguments": read}).text(); text != "behind the gate" {
		t.Errorf("read through execute_tool %q", text)
	}
	c.refuses(t, "execute_tool", map[string]any{"tool_id": "files_read_text_file", "arguments": map[string]any{}}, "do not fit files_read_text_file")
	for _, id := range []string{"files.read_text_file", "files:read_text_file"} {
		if text := c.call(t, "execute_tool", map[string]any{"tool_id": id, "arguments": read}).text(); text != "behind the gate" {
			t.Errorf("read through execute_tool as %s: %q", id, text)
		}
	}
	c.refuses(t, "execute_tool", map[string]any{"tool_id": "files read_text_file", "arguments": read}, "Invalid tool ID format: files read_text_file")
	c.refuses(t, "memory_read_graph", map[string]any{}, "Tool memory_read_graph not provisioned. Use provision_tools first.")

	if got := c.gate(t, "unprovision_tools", map[string]any{"all": true}); len(got.Unprovisioned) == 0 || got.Usage.Tokens != 0 {
		t.Errorf("given back are %+v", got)
	}
	c.do(t, "relisted", nil, &tools)
	if !slices.Equal(names(tools), gateTools) {
		t.Errorf("in the end listed are %q", names(tools))
	}
	refused()
}

// What a user has provisioned is there after toolfinch was started anew, and the
// owner's commands and edits need no permission.
func TestProvisionedToolsOutliveTheProgram(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	h := newGatedHouse(t)
	path := h.file(t, "b.txt", "still there")
	read := map[string]any{"path": path}
	ann, bob := map[string]string{"X-User": "ann"}, map[string]string{"X-User": "bob"}
	reads := func(t *testing.T, url string, who map[string]string, may bool) {
		t.Helper()
		got := ask2026(t, url, who, "files_read_text_file", read)
		want := "Tool files_read_text_file not provisioned. Use provision_tools first."
		if may {
			want = "still there"
		}
		if may == got.Result.IsError || got.text() != want {
			t.Errorf("%v reads %+v, want %q", who, got, want)
		}
	}
	execute := func(t *testing.T, url, user string) int {
		t.Helper()
		body, _ := json.Marshal(map[string]any{"tool_id": "files_read_text_file", "arguments": read})
		got := fetch.Send(t, http.MethodPost, strings.TrimSuffix(url, "/mcp")+"/api/proxy/execute", string(body), "X-User: "+user)
		if got.Status == 200 && !strings.Contains(got.Body, "still there") {
			t.Errorf("%s: %s", user, got.Body)
		}
		return got.Status
	}

	t.Run("before", func(t *testing.T) {
		url, _ := h.serveHTTP(t)
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // until the server was listed
			if found := ask2026(t, url, ann, "discover_tools", map[string]any{"tags": []string{"files"}}); strings.Contains(found.text(), "files_") {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("no tool of the server is ever found")
			}
		}
		reads(t, url, ann, false)
		if got := ask2026(t, url, ann, "provision_tools", map[string]any{"tool_ids": []string{"files_read_text_file"}}); got.Result.IsError {
			t.Fatalf("provision_tools = %+v", got)
		}
		reads(t, url, ann, true)
		reads(t, url, bob, false)
	})
	t.Run("after", func(t *testing.T) {
		url, _, log := h.serveLogged(t)
		reads(t, url, ann, true)
		reads(t, url, bob, false)
		reads(t, url, nil, false)
		if as, was := execute(t, url, "ann"), execute(t, url, "bob"); as != 200 || was != 400 {
			t.Errorf("over REST ann gets %d, bob %d", as, was)
		}
		c := newSDKClient(t, h.env)
		c.do(t, "connect", map[string]any{"url": url}, nil)
		if got := names(c.list(t)); !slices.Equal(got, gateTools) {
			t.Errorf("a session of nobody is listed %q", got)
		}

		seen := len(log.String())
		h.edit(t, "toolfinch.json", `"max_tokens": 700`, `"enabled": false, "max_tokens": 700`)
		seen = log.wait(t, seen, reloaded)
		reads(t, url, bob, true)
		var tools []listed
		c.do(t, "relisted", nil, &tools)
		if got := names(tools); !slices.Equal(got, []string{"retrieve_tools", "call_tool"}) {
			t.Errorf("without a gate listed are %q", got)
		}
		h.edit(t, "toolfinch.json", `"enabled": false, `, ``)
		log.wait(t, seen, reloaded)
		reads(t, url, bob, false)
		reads(t, url, ann, true)
	})
	t.Run("toolfinch call", func(t *testing.T) {
		if out, err := h.output(t, "call", "files.read_text_file", "--path", path); err != nil || string(out) != "still there\n" {
			t.Errorf("it prints %q, %v", out, err)
		}
	})
}

// What docs/gating.md shows of a session is what a client gets: each block has the
// arguments of a call and its answer. A member that is not shown may be there.
func TestTheDocumentedSession(t *testing.T) {
	page, err := os.ReadFile("../docs/gating.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "\r\n", "\n")
	config := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(text)
	calls := regexp.MustCompile("(?ms)^```json ([a-z_]+)\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if config == nil || len(calls) < 9 {
		t.Fatalf("only %d calls were found: the test reads past them", len(calls))
	}
	home := t.TempDir()
	yaml := config[1] + "mcp_servers:\n  clock: {command: toolfinch, args: [demo-server, clock, demo]}\n  math: {command: toolfinch, args: [demo-server, math, demo]}\n"
	if err := os.WriteFile(filepath.Join(home, "toolfinch.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "HOME="+home, "MCPPROXY_DATA_DIR="+filepath.Join(home, "data"), "MCPPROXY_MODELS_DIR="+filepath.Join(home, "models"))
	run := func(args ...string) *exec.Cmd {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		t.Cleanup(cancel)
		cmd := exec.CommandContext(ctx, program(t), args...)
		cmd.Dir, cmd.Env = home, env
		return cmd
	}
	if out, err := run("reindex").CombinedOutput(); err != nil {
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	serve := run("serve")
	c := speakWith(t, serve)
	defer func() {
		_ = c.in.Close()
		if err := serve.Wait(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(method string, params any) (answer called) {
		t.Helper()
		given, err := json.Marshal(params)
		if err == nil {
			err = json.Unmarshal(c.ask(t, method, string(given)), &answer)
		}
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return answer
	}
	ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "reader", "version": "1"}})
	for _, call := range calls {
		var arguments, want, got any
		shown := json.NewDecoder(strings.NewReader(call[2]))
		if err := errors.Join(shown.Decode(&arguments), shown.Decode(&want)); err != nil {
			t.Errorf("%s: %v", call[0], err)
			continue
		}
		answer := ask("tools/call", map[string]any{"name": call[1], "arguments": arguments})
		got = answer.text()
		if strings.HasPrefix(answer.text(), "{") {
			if err := json.Unmarshal([]byte(answer.text()), &got); err != nil {
				t.Error(err)
			}
		}
		if different := difference(got, want); different != "" {
			t.Errorf("%s %v answers %s\n%s", call[1], arguments, answer.text(), different)
		}
	}
}

// difference says where got has not all that want has, "" for nowhere. Times and
// scores only have to be there.
func difference(got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for key, value := range want {
			own, there := object[key]
			switch {
			case !there:
				return key + " is missing"
			case key == "expires_at" || key == "score":
			default:
				if different := difference(own, value); different != "" {
					return key + ": " + different
				}
			}
		}
		return ""
	case []any:
		array, _ := got.([]any)
		if len(array) != len(want) {
			return fmt.Sprintf("there are %d, want %d", len(array), len(want))
		}
		for i := range want {
			if different := difference(array[i], want[i]); different != "" {
				return different
			}
		}
		return ""
	}
	if got != want {
		return fmt.Sprintf("%v, want %v", got, want)
	}
	return ""
}
