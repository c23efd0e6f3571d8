package configs

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"toolfinch/configs/clients"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/upstream"
)

func TestServersOfEveryClient(t *testing.T) {
	tests := []struct {
		client, file string
		want         []clients.Server
	}{
		{"claude-desktop", `{"globalShortcut": "", "mcpServers": {
			"files": {"command": "npx", "args": ["-y", "${HOME}", 5], "env": {"KEY": "s", "N": 1}}}}`, []clients.Server{
			{Name: "files", Command: "npx", Args: []string{"-y", "$${HOME}", "5"}, Env: map[string]string{"KEY": "s", "N": "1"}},
		}},
		{"claude-code", `{"numStartups": 3, "mcpServers": {
			"a": {"type": "stdio", "command": "a", "env": {"T": "${T:-x}"}},
			"b": {"type": "http", "url": "https://b.example.com", "headers": {"X": "1"}},
			"c": {"type": "sse", "url": "https://c.example.com"}}}`, []clients.Server{
			{Name: "a", Command: "a", Env: map[string]string{"T": "${T:-x}"}},
			{Name: "b", URL: "https://b.example.com", Headers: map[string]string{"X": "1"}, Transport: "streamable-http"},
			{Name: "c", URL: "https://c.example.com", Transport: "sse"},
		}},
		{"vscode", "{\n// mine\n\"servers\": {\"a\": {\"command\": \"a\", \"cwd\": \"/d\",},}, \"inputs\": []}", []clients.Server{
			{Name: "a", Command: "a", Cwd: "/d"},
		}},
		{"windsurf", `{"mcpServers": {"a": {"serverUrl": "https://a.example.com", "disabled": true}, "b": {}}}`, []clients.Server{
			{Name: "a", URL: "https://a.example.com", Disabled: true},
			{Name: "b", Problem: "it has neither a command nor a URL"},
		}},
		{"codex", `model = "m"
[mcp_servers.b]
url = "https://b.example.com"
bearer_token_env_var = "TOKEN"
http_headers = { X = "${lit}" }
enabled = false
[mcp_servers.a]
command = "a"
args = ["1"]
env_vars = ["PATHS"]
[mcp_servers.a.env]
K = "v"
`, []clients.Server{
			{Name: "a", Command: "a", Args: []string{"1"}, Env: map[string]string{"K": "v", "PATHS": "${PATHS}"}},
			{Name: "b", URL: "https://b.example.com", Headers: map[string]string{"X": "$${lit}", "Authorization": "Bearer ${TOKEN}"}, Disabled: true},
		}},
		{"gemini", `{"mcpServers": {"a": {"httpUrl": "https://a.example.com/$PLACE"}, "b": {"command": "b", "args": ["$", "${X}", "5$"]}}}`, []clients.Server{
			{Name: "a", URL: "https://a.example.com/${PLACE}", Transport: "streamable-http"},
			{Name: "b", Command: "b", Args: []string{"$", "${X}", "5$"}},
		}},
		{"opencode", `{"$schema": "x", "mcp": {
			"a": {"type": "local", "command": ["npx", "-y", "a"], "environment": {"K": "{env:KEY}", "L": "${x}"}, "enabled": false},
			"b": {"type": "remote", "url": "https://b.example.com", "headers": {"Authorization": "Bearer {env:T}!"}}}}`, []clients.Server{
			{Name: "a", Command: "npx", Args: []string{"-y", "a"}, Env: map[string]string{"K": "${KEY}", "L": "$${x}"}, Disabled: true},
			{Name: "b", URL: "https://b.example.com", Headers: map[string]string{"Authorization": "Bearer ${T}!"}},
		}},
		{"cline", `{"mcpServers": {
			"a": {"command": "a", "args": ["${x}"], "disabled": true, "timeout": 90, "autoApprove": ["t"]},
			"b": {"type": "streamableHttp", "url": "https://b"}}}`, []clients.Server{
			{Name: "a", Command: "a", Args: []string{"$${x}"}, Disabled: true, CallTimeout: "1m30s", NotTaken: []string{"autoApprove"}},
			{Name: "b", URL: "https://b", Transport: "streamable-http"},
		}},
		{"roo", `{"mcpServers": {"a": {"command": "a", "env": {"T": "${env:T}"}, "timeout": 60, "disabledTools": ["rm"], "watchPaths": []}}}`, []clients.Server{
			{Name: "a", Command: "a", Env: map[string]string{"T": "${env:T}"}, CallTimeout: "1m", Tools: rawjson.Of(map[string]any{"rm": map[string]bool{"enabled": false}}), NotTaken: []string{"watchPaths"}},
		}},
		{"kiro", `{"mcpServers": {"a": {"url": "https://a", "headers": {"K": "${K}"}, "oauthScopes": ["s"]}}}`, []clients.Server{
			{Name: "a", URL: "https://a", Headers: map[string]string{"K": "${K}"}, NotTaken: []string{"oauthScopes"}},
		}},
		{"copilot", `{"mcpServers": {
			"a": {"type": "local", "command": "a", "args": ["-y"], "tools": ["*"], "env": {"K": "${K}"}},
			"b": {"type": "http", "url": "https://b", "tools": ["get"]}}}`, []clients.Server{
			{Name: "a", Command: "a", Args: []string{"-y"}, Env: map[string]string{"K": "${K}"}},
			{Name: "b", URL: "https://b", Transport: "streamable-http", Tools: []byte(`{"get":{},"*":{"enabled":false}}`)},
		}},
		{"amp", `{"amp.mcpServers": {"a": {"command": "a", "args": []}, "b": {"url": "https://b"}}}`, []clients.Server{
			{Name: "a", Command: "a"}, {Name: "b", URL: "https://b"},
		}},
		{"cline-cli", `{"mcpServers": {"a": {"transport": {"type": "stdio", "command": "a", "args": ["1"], "env": {"K": "v"}}, "disabled": true},
			"b": {"transport": {"type": "streamableHttp", "url": "https://b"}}}}`, []clients.Server{
			{Name: "a", Command: "a", Args: []string{"1"}, Env: map[string]string{"K": "v"}, Disabled: true}, {Name: "b", URL: "https://b", Transport: "streamable-http"},
		}},
		{"junie", `{"mcpServers": {"a": {"command": "a"}}}`, []clients.Server{{Name: "a", Command: "a"}}},
		{"lm-studio", `{"mcpServers": {"a": {"url": "https://a"}}}`, []clients.Server{{Name: "a", URL: "https://a"}}},
		{"zed", `{"context_servers": {
			"old": {"command": {"path": "/bin/old", "args": ["1"], "env": {"K": "v"}}},
			"new": {"source": "custom", "command": "new", "args": []},
			"extension": {"settings": {}}}}`, []clients.Server{
			{Name: "old", Command: "/bin/old", Args: []string{"1"}, Env: map[string]string{"K": "v"}},
			{Name: "new", Command: "new"},
			{Name: "extension", Problem: "it has neither a command nor a URL", NotTaken: []string{"settings"}},
		}},
		{"cursor", "", nil},
		{"cursor", `{"mcpServers": null}`, nil},
		{"goose", `
GOOSE_PROVIDER: anthropic
extensions:
  developer: {bundled: true, enabled: true, name: developer, timeout: 300, type: builtin}
  github:
    enabled: true
    name: GitHub
    type: stdio
    cmd: npx
    args: [-y, "@modelcontextprotocol/server-github"]
    env_keys: [GITHUB_TOKEN]
    envs: {MODE: "1"}
    timeout: 90
    description: Issues
    available_tools: [create_issue]
  far: {enabled: false, type: streamable_http, uri: "https://a", headers: {K: "${K}"}, available_tools: [], bundled: null}
`, []clients.Server{
			{Name: "developer", Problem: "it is a part of the program, not a server", CallTimeout: "5m"},
			{Name: "github", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-github"}, Env: map[string]string{"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "1"},
				Description: "Issues", CallTimeout: "1m30s", Tools: []byte(`{"create_issue":{},"*":{"enabled":false}}`)},
			{Name: "far", URL: "https://a", Headers: map[string]string{"K": "${K}"}, Transport: "streamable-http", Disabled: true},
		}},
		{"continue", `
name: Mine
version: 1.0.0
schema: v1
mcpServers:
  - name: SQLite
    command: npx
    args: ["-y", "mcp-sqlite", "${x}"]
    env: {KEY: "${{ secrets.KEY }}"}
    cwd: /d
    connectionTimeout: 5000
    faviconUrl: https://x
  - name: far
    type: sse
    url: https://a
    requestOptions: {headers: {Authorization: "Bearer ${{secrets.T}}"}, verifySsl: false}
`, []clients.Server{
			{Name: "SQLite", Command: "npx", Args: []string{"-y", "mcp-sqlite", "$${x}"}, Env: map[string]string{"KEY": "${KEY}"}, Cwd: "/d", ConnectTimeout: "5s", NotTaken: []string{"faviconUrl"}},
			{Name: "far", URL: "https://a", Headers: map[string]string{"Authorization": "Bearer ${T}"}, Transport: "sse", NotTaken: []string{"verifySsl"}},
		}},
	}
	for _, test := range tests {
		got, err := ServersIn(fileOf(test.client), []byte(test.file))
		for i := range got {
			got[i].Lost = nil
		}
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", test.client, got, err, test.want)
		}
	}
}

// Paths of a project's file are seen from the project.
func TestPathsOfAProjectBecomeAbsolute(t *testing.T) {
	f := fileOf("cursor")
	f.Project = "/p"
	got, err := ServersIn(f, []byte(`{"mcpServers": {"a": {"command": "./a", "cwd": "sub"}, "b": {"command": "b", "cwd": "${D}"},
		"c": {"command": ".venv/bin/python", "args": ["-m", "srv"]}, "d": {"command": "/bin/d"}, "e": {"command": "~/e"}}}`))
	if err != nil || filepath.ToSlash(got[2].Command) != "/p/.venv/bin/python" || got[3].Command != "/bin/d" || got[4].Command != "~/e" || filepath.ToSlash(got[0].Command) != "/p/a" || filepath.ToSlash(got[0].Cwd) != "/p/sub" || got[1].Cwd != "${D}" || got[1].Command != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// fileOf is a file of the client.
func fileOf(client string) clients.File {
	f := clients.File{Client: clients.Find(client), Path: "/p/f"}
	if !f.Client.CanEdit() {
		f.Path = "/p/f.yaml"
	}
	f.Block = f.Client.Block
	return f
}

func TestBrokenFilesAreSaidToBeSo(t *testing.T) {
	tests := []struct{ client, data, want string }{
		{"cursor", `{"mcpServers": {"secret": `, "f: line 1, column 27: not valid JSON: "},
		{"cursor", `{"mcpServers": {"a": {"headers": {"Authorization": Bearer secret}}}}`, "f: line 1, column 52: not valid JSON: "},
		{"cursor", `{"mcpServers": {"a": {"env": {"K": secret}}}}`, "f: line 1, column 36: not valid JSON: "},
		{"cursor", `{"mcpServers": {"a": {"env": {"K": 'secret'}}}}`, "f: line 1, column 36: not valid JSON: "},
		{"cursor", `{"mcpServers": {"a": {"env": {"K": "\secret"}}}}`, "f: line 1, column 36: not valid JSON: "},
		{"cursor", "{\n// mine\n\"mcpServers\": {\"a\": {\"env\": {\"K\": \"x\" secret}}}}", "f: line 3, column "},
		{"cursor", `{"mcpServers": {"a": {"env": {"K": "secret`, "f: line 1, column "},
		{"cursor", `{"mcpServers": "secret"}`, "f: line 1: mcpServers must be a mapping of servers, not text"},
		{"cursor", `secret`, "f: line 1, column 1: "},
		{"goose", "extensions:\n  a: {env: {K: \"secret}}\n", "f.yaml: line "},
		{"goose", "extensions:\n  a:\n    env:\n\tK: secret\n", "f.yaml: line "},
		{"goose", "extensions:\n  a: {env: {K: *secret}}\n", "f.yaml: line "},
		{"codex", "[mcp_servers.a]\nbearer_token_env_var = 'secret\n", "f: line 2, column "},
		{"codex", "[mcp_servers.a]\nenv = { K = 'x' }\nenv = { K = 'secret' }\n", "f: "},
		{"codex", "[mcp_servers.a]\nenv = { K = secret }\n", "f: line 2, column "},
		{"cursor", `[]`, "f: it must be a mapping"},
		{"cursor", `{"mcpServers": 5}`, "f: line 1: mcpServers must be a mapping of servers, not a number"},
		{"codex", "x = [", "f: line 1, column 5: not valid TOML"},
		{"goose", "extensions: []\n  x", "f.yaml: line "},
	}
	for _, test := range tests {
		f := fileOf(test.client)
		_, err := ServersIn(f, []byte(test.data))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", test.data, err, test.want)
		}
		if _, err := f.Set([]byte(test.data), "x", clients.Entry{Command: "x"}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: was edited, or %v", test.data, err)
		}
	}
}

// A server that cannot be read costs that server, and says where and why; nothing of it is
// lost without a word.
func TestServersThatAreRefused(t *testing.T) {
	tests := []struct{ client, server, want string }{
		{"cursor", `{"command": "a", "args": "open \"secret"}`, "line 1: args is text with an open quote"},
		{"cursor", `{"command": "a", "args": true}`, "line 1: args must be a list, not true or false"},
		{"cursor", `{"command": "a", "args": {"secret": 1}}`, "line 1: args must be a list, not a mapping"},
		{"cursor", `{"command": "a", "args": [["secret"]]}`, "line 1: args[0] must be text, not a list"},
		{"cursor", `{"command": "a", "env": ["secret"]}`, "line 1: env[0] has no name and value"},
		{"cursor", `{"command": "a", "env": "secret"}`, "line 1: env[0] has no name and value"},
		{"cursor", `{"command": "a", "env": true}`, "line 1: env must be a mapping of names to text, not true or false"},
		{"cursor", `{"command": "a", "env": {"A": null}}`, "line 1: env A has no value"},
		{"cursor", `{"url": "https://a", "headers": {"A": ["secret"]}}`, "line 1: headers A must be text, not a list"},
		{"cursor", `{"command": "a", "disabled": "maybe"}`, "line 1: disabled must be true or false, not text"},
		{"cursor", `{"command": "a", "disabled": true, "enabled": true}`, "line 1: disabled and enabled contradict each other"},
		{"cursor", `{"url": "wss://a", "type": "websocket"}`, `its transport is "websocket", which toolfinch does not speak`},
		{"cursor", `{"url": "https://a", "serverUrl": "https://b"}`, "line 1: url and serverUrl contradict each other"},
		{"cursor", `{"command": "a", "disabledTools": "secret"}`, "line 1: disabledTools must be a list of tools, not text"},
		{"cursor", `{"command": "a", "url": "https://a"}`, "it has both a command and a URL"},
		{"cursor", `"a"`, "it has neither a command nor a URL"},
	}
	for _, test := range tests {
		got, err := ServersIn(fileOf(test.client), []byte(`{"mcpServers": {"a": `+test.server+`, "b": {"command": "b"}}}`))
		if err != nil || len(got) != 2 || got[0].Problem != test.want || got[1].Problem != "" {
			t.Errorf("%s: %+v, %v, want %s", test.server, got, err, test.want)
		}
	}
	got, err := ServersIn(fileOf("codex"), []byte("[mcp_servers.a]\ncommand = \"a\"\nargs = true\n"))
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0].Problem, "line 3: args must be") {
		t.Errorf("TOML: %+v, %v", got, err)
	}
}

// What import takes from a file, --config does, too.
func TestConfigTakesTheFormsOfClients(t *testing.T) {
	dir := write(t, "c.yaml", `
mcpServers:
  - {name: list, command: [npx, -y, pkg], environment: {K: 5}, args: [more]}
  - {name: codex, url: "https://a", bearer_token_env_var: HOME, enabled_tools: [get, put], disabled_tools: [put]}
  - {name: inner, transport: {type: local, command: x}, timeout: 5, env: []}
`)
	c := must.Get(loadAll(Options{Dir: dir, Path: "c.yaml", Env: environ()}))(t)
	s := c.Servers
	if len(s) != 3 || s[0].Command != "npx" || strings.Join(s[0].Args, " ") != "-y pkg more" || s[0].Env["K"] != "5" ||
		s[1].Headers["Authorization"] != "Bearer "+home || s[2].Command != "x" || s[2].Transport != upstream.TransportStdio {
		t.Errorf("%+v", s)
	}
	if len(c.Tools) != 1 || len(c.Tools[0].Tools) != 3 {
		t.Errorf("tools: %+v", c.Tools)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Message, "timeout is not used") {
		t.Errorf("warnings: %v", c.Warnings)
	}
}
