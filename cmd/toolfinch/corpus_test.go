package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/configs/clients"
	"toolfinch/internal/must"
)

// corpus are shapes of files that programs write, and that people write for them. want has a
// line for each server: what it is, or why it is none. In it PROJECT is the folder of the file's
// project, and "off" a disabled server.
var corpus = []struct {
	name, file, text, want string
	warns                  string // parts of warnings of --config, one a line
}{
	{"args as text", "mcp.json", `{"mcpServers": {"a": {"command": "npx", "args": "-y 'a b' c\\x"}}}`, `a: npx [-y] [a b] [c\x]`, "args is no list"},
	{"args as JSON in text", "mcp.json", `{"mcpServers": {"a": {"command": "npx", "args": "[\"-y\", \"a b\"]"}}}`, `a: npx [-y] [a b]`, ""},
	{"args as a number", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": 8080}}}`, `a: a [8080]`, "args is no list"},
	{"args of other kinds", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": ["-p", 8080, true, ""]}, "b": {"command": "b", "args": null}, "c": {"command": "c", "args": {}}}}`, "a: a [-p] [8080] [true] []\nb: b\nc: c", ""},
	{"args that are refused", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": ["x", ["y"]]}, "b": {"command": "b", "args": {"x": 1}}, "c": {"command": "c", "args": [null]}, "d": {"command": "d", "args": "it's"}}}`, "a: refused: args[1] must be text\nb: refused: args must be a list\nc: refused: args[0] must be text\nd: refused: open quote", ""},
	{"args as true", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": true}, "b": {"command": "b"}}}`, "a: refused: args must be a list\nb: b", ""},
	{"empty args", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": "", "env": [], "headers": ""}}}`, `a: a`, ""},
	{"env as a list of pairs", "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": ["K=v=w", "L=", "HOME"]}}}`, `a: a K=v=w L= HOME=/home/me`, "env is no mapping"},
	{"env as names with values", "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": [{"name": "K", "value": 5}, {"key": "L", "value": "x"}, {"M": "y"}]}}}`, `a: a K=5 L=x M=y`, "env is no mapping"},
	{"env of other kinds", "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": {"P": 8080, "Q": true, "R": ""}}, "b": {"command": "b", "env": "{\"K\": \"v\"}"}, "c": {"command": "c", "env": "K=v w\nL=x"}, "d": {"command": "d", "env": null}}}`, "a: a P=8080 Q=true R=\nb: b K=v\nc: c K=v w L=x\nd: d", ""},
	{"env that is refused", "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": true}, "b": {"command": "b", "env": {"K": ["v"]}}, "c": {"command": "c", "env": {"K": null}}, "d": {"command": "d", "env": [5]}, "e": {"url": "https://e", "headers": true}, "f": {"url": "https://f", "headers": {"X": {}}}}}`,
		"a: refused: env must be a mapping\nb: refused: env K must be text\nc: refused: env K has no value\nd: refused: env[0] has no name\ne: refused: headers must be\nf: refused: headers X must be text", ""},
	{"env as text", "mcp.json", `{"mcpServers": {"a": {"command": "a", "env": "K=v L='x y'"}}}`, `a: a K=v L=x y`, "env is no mapping"},
	{"headers as a list", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "headers": ["Authorization: Bearer t:u", {"name": "X", "value": "1"}]}}}`, `a: https://a Authorization=Bearer t:u X=1`, "headers is no mapping"},
	{"headers as text", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "headers": "Authorization: Bearer t"}}}`, `a: https://a Authorization=Bearer t`, "headers is no mapping"},
	{"headers as lines", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "headers": "Authorization: Bearer t\nX-Y: a b"}, "b": {"url": "https://b", "headers": ["X=1"]}, "c": {"url": "https://c", "headers": [{"key": "X", "value": "1"}]}}}`, "a: https://a Authorization=Bearer t X-Y=a b\nb: https://b X=1\nc: https://c X=1", "headers is no mapping"},
	{"headers as JSON in text", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "headers": "{\"X\": \"1\"}"}}}`, `a: https://a X=1`, ""},

	{"disabled as text", "mcp.json", `{"mcpServers": {"a": {"command": "a", "disabled": "true"}, "b": {"command": "b", "enabled": "false"}, "c": {"command": "c", "enabled": "no"}, "d": {"command": "d", "disabled": 1}}}`,
		"a: off\nb: off\nc: off\nd: off", "disabled is text, and is taken as true"},
	{"disabled by other keys", "mcp.json", `{"mcpServers": {"a": {"command": "a", "isActive": false}, "b": {"command": "b", "active": false}, "c": {"command": "c", "enable": false},
		"d": {"command": "d", "disable": true}, "e": {"command": "e", "is_enabled": false}, "f": {"command": "f", "quarantined": true}, "g": {"command": "g", "status": "disabled"}, "h": {"command": "h", "isActive": true}}}`,
		"a: off\nb: off\nc: off\nd: off\ne: off\nf: off\ng: off\nh: h", ""},
	{"spellings of off", "mcp.json", `{"mcpServers": {"a": {"command": "a", "disabled": "YES"}, "b": {"command": "b", "enabled": 0}, "c": {"command": "c", "enabled": "off"}, "d": {"command": "d", "disabled": "1"}, "e": {"command": "e", "Enabled": "False "}, "f": {"command": "f", "is-active": "inactive"}, "g": {"command": "g", "state": "paused"}, "h": {"command": "h", "paused": true}}}`,
		"a: off\nb: off\nc: off\nd: off\ne: off\nf: off\ng: off\nh: off", ""},
	{"spellings of on", "mcp.json", `{"mcpServers": {"a": {"command": "a", "disabled": "no"}, "b": {"command": "b", "enabled": 1}, "c": {"command": "c", "enabled": null}, "d": {"command": "d", "disabled": false, "isActive": true}, "e": {"command": "e", "status": "connected"}}}`, "a: a\nb: b\nc: c\nd: d\ne: e", ""},
	{"a switch that is no word", "mcp.json", `{"mcpServers": {"a": {"command": "a", "disabled": []}, "b": {"command": "b", "isActive": {}}, "c": {"command": "c", "disabled": 2}, "d": {"command": "d", "enabled": ""}}}`, "a: refused: disabled must be\nb: refused: isActive must be\nc: refused: disabled must be\nd: refused: enabled must be", ""},
	{"switched off in a nest", "mcp.json", `{"mcpServers": {"a": {"config": {"command": "a", "disabled": "true"}}, "b": {"command": "b", "env": {"enabled": "false"}}}}`, "a: off\nb: b enabled=false", ""},
	{"contradiction", "mcp.json", `{"mcpServers": {"a": {"command": "a", "enabled": true, "disabled": true}}}`, "a: refused: enabled and disabled contradict", ""},
	{"unreadable switch", "mcp.json", `{"mcpServers": {"a": {"command": "a", "enabled": "perhaps"}}}`, "a: refused: enabled must be true or false", ""},
	{"Gemini's switches", ".gemini/settings.json", `{"mcp": {"excluded": ["b"]}, "mcpServers": {"a": {"command": "a", "env": {"K": "$HOME"}}, "b": {"command": "b"}}}`, "a: a in PROJECT K=/home/me\nb: off", ""},
	{"Gemini's allowed", ".gemini/settings.json", `{"mcp": {"allowed": ["a"]}, "mcpServers": {"a": {"command": "a"}, "b": {"command": "b"}}}`, "a: a in PROJECT\nb: off", ""},

	{"unknown keys", "mcp.json", `{"mcpServers": {"a": {"command": "a", "alwaysLoad": true, "note": "x", "iconPath": "y", "chatMenu": false, "arg": 1}}}`, "a: a", "key \"alwaysLoad\" is not used\nkey \"arg\" is not used (did you mean \"args\"?)"},
	{"known keys without effect", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "headersHelper": "x", "autoApprove": []}}}`, "a: https://a", "headersHelper is not used (write the headers under headers)"},
	{"empty beside the other", "mcp.json", `{"mcpServers": {"a": {"command": "a", "url": "", "type": ""}, "b": {"command": "", "url": "https://b"}, "c": {"command": "c", "url": null}}}`, "a: a\nb: https://b\nc: c", ""},
	{"other names of keys", "mcp.json", `{"mcpServers": {"a": {"cmd": "a", "arguments": ["1"], "envVars": {"K": "v"}, "working_dir": "/d"}, "b": {"server_url": "https://b", "transportType": "streamableHttp"}}}`, "a: a [1] in /d K=v\nb: https://b streamable-http", ""},
	{"transports", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "type": "HTTP"}, "b": {"url": "https://b", "transport": "http-stream"}, "c": {"url": "https://c", "type": "SSE"}, "d": {"url": "https://d", "type": "remote"}, "e": {"command": "e", "type": "local"}, "f": {"url": "https://f", "protocol": "http"}}}`,
		"a: https://a streamable-http\nb: https://b streamable-http\nc: https://c sse\nd: https://d\ne: e\nf: https://f streamable-http", ""},
	{"transport of the other kind", "mcp.json", `{"mcpServers": {"a": {"command": "a", "type": "http"}, "b": {"url": "https://b", "type": "stdio"}, "c": {"command": "c", "url": "https://c", "type": "sse"}, "d": {"command": "d", "url": "https://d", "type": "stdio"}}}`,
		"a: a\nb: https://b\nc: https://c sse\nd: d", "transport is not used with command\ntransport is not used with url\ncommand is not used with url\nurl is not used with command"},
	{"transport not spoken", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "type": "websocket"}}}`, "a: refused: websocket", ""},
	{"nested", "mcp.json", `{"mcpServers": {"a": {"transport": {"type": "stdio", "command": "a", "args": ["1"]}}, "b": {"transport": {"type": "http", "url": "https://b"}, "disabled": false}, "c": {"stdio": {"command": "c"}}, "d": {"sse": {"url": "https://d"}}, "e": {"connection": {"command": "e"}}}}`,
		"a: a [1]\nb: https://b streamable-http\nc: c\nd: https://d sse\ne: e", ""},

	{"names", "mcp.json", `{"mcpServers": {"@a/b": {"command": "a"}, "🚀 rocket": {"command": "b"}, "me & you": {"command": "c"}, "🚀": {"command": "d"}}}`, "a/b: a\nrocket: b\nme - you: c\nserver: d", `server "@a/b" is called "a/b" here`},
	{"names, more", "mcp.json", `{"mcpServers": {" ": {"command": "a"}, "": {"command": "b"}, "a/": {"command": "c"}, "名前": {"command": "d"}, "x\ty": {"command": "e"}, "A": {"command": "f"}, "a": {"command": "g"}}}`, "server: a\nserver-2: b\na/: c\n名前: d\nx-y: e\nA: f\na: g", ""},
	{"a server twice", "mcp.json", `{"mcpServers": [{"name": "a", "command": "a"}, {"name": "a b&c", "command": "b"}, {"name": "a b&c", "command": "c"}]}`, "a: a\na b-c: b\na b-c-2: c", ""},
	{"a key twice", "mcp.json", `{"mcpServers": {"a": {"command": "a", "command": "b"}, "b": {"command": "b", "cmd": "b"}, "c": {"command": "c", "cmd": "d"}}}`, "a: refused: duplicate key\nb: b\nc: refused: command and cmd contradict", ""},
	{"names that become one", "mcp.json", `{"mcpServers": {"a&b": {"command": "x"}, "a-b": {"command": "y"}}}`, "a-b-2: x\na-b: y", ""},
	{"the block in another case", "mcp.json", `{"MCPServers": {"a": {"command": "a"}}}`, "a: a", ""},
	{"placeholders of folders", ".vscode/mcp.json", `{"servers": {"a": {"command": "a", "args": ["${workspaceFolder:-.}${/}x", "--home=${userHome}", "$${workspaceFolder}"], "env": {"D": "${workspaceRoot}"}, "cwd": "sub"}, "b": {"command": "b", "args": ["${command:x}"]}, "c": {"url": "https://c", "headers": {"K": "${input:k}"}}}}`,
		"a: a [PROJECT/x] [--home=/home/me] [${workspaceFolder}] in PROJECT/sub D=PROJECT\nb: refused: known to editors only\nc: refused: asks a person", ""},
	{"variables", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": ["${HOME}", "${env:HOME}", "${NOT_SET:-x}"]}, "b": {"command": "b", "args": ["${NOT_SET}"]}}}`, "a: a [/home/me] [/home/me] [x]\nb: refused: NOT_SET", ""},
	{"oauth of other programs", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "oauth": {"clientId": "c", "callbackPort": "3118"}}, "b": {"url": "https://b", "oauth": false}, "c": {"url": "https://c", "oauth": {"enabled": false}}, "d": {"url": "https://d", "oauth": {"clientId": "c", "scope": "r w", "tokenUrl": "https://t"}}, "e": {"url": "https://e", "oauth": {"callbackPort": 99999}}, "f": {"url": "https://f", "oauth": {"callbackPort": true}}}}`,
		"a: https://a\nb: https://b\nc: https://c\nd: https://d\ne: refused: callbackPort must be\nf: refused: callbackPort must be", "tokenUrl is not used"},
	{"a nest under any key", "mcp.json", `{"mcpServers": {"a": {"launch": {"command": "a", "args": ["1"]}}, "b": {"mcp": {"transport": {"type": "sse", "url": "https://b"}}}, "c": {"command": "c", "env": {"URL": "x"}, "metadata": {"url": "https://docs"}}}}`, "a: a [1]\nb: https://b sse\nc: c URL=x", "launch is taken as the server\nkey \"metadata\" is not used"},
	{"a transport beside the URL", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "transport": {"type": "sse"}}}}`, "a: https://a sse", ""},
	{"not started by itself", "mcp.json", `{"mcpServers": {"a": {"command": "a", "anythingllm": {"autoStart": false}}, "b": {"command": "b", "autoStart": true}}}`, "a: off\nb: b", ""},
	{"keys of oauth", "mcp.json", `{"mcpServers": {"a": {"url": "https://a", "oauth": {"client_id": "c", "authorization_url": "https://x", "flow": "pkce"}}}}`, "a: https://a", "oauth.flow is not used"},
	{"all tools", "mcp.json", `{"mcpServers": {"a": {"command": "a", "tools": "*"}}}`, "a: a", ""},
	{"a list", "mcp.json", `{"mcpServers": [{"name": "a", "command": "a"}, {"id": "b", "url": "https://b"}, {"command": "c"}, {"name": "a", "command": "d"}]}`, "a: a\nb: https://b\nserver-3: c\na-2: d", ""},
	{"a bare list", "servers.json", `[{"name": "a", "command": "a"}, {"name": "b", "url": "https://b"}]`, "a: a\nb: https://b", ""},
	{"bare servers", "servers.json", `{"a": {"command": "a"}, "b": {"url": "https://b"}}`, "a: a\nb: https://b", ""},
	{"one bare server", "alone.json", `{"command": "a", "args": ["1"]}`, "alone: a [1]", ""},
	{"two blocks", "mcp.json", `{"mcpServers": {"a": {"command": "a"}}, "servers": {"b": {"command": "b"}}}`, "a: a\nb: b", ""},
	{"a block within", "settings.json", `{"augment.advanced": {"mcpServers": [{"name": "a", "command": "a"}]}}`, "a: a", ""},
	{"Zencoder", "settings.json", `{"zencoder.mcpServers": {"a": {"command": "a"}}}`, "a: a", ""},
	{"older Continue", "config.json", `{"experimental": {"modelContextProtocolServers": [{"transport": {"type": "stdio", "command": "a", "args": ["1"]}}]}}`, "server-1: a [1]", ""},

	{"Claude Desktop", "claude_desktop_config.json", `{"globalShortcut": "x", "mcpServers": {"a": {"command": "a", "args": ["${HOME}"]}}}`, "a: a [${HOME}]", `key "globalShortcut" is not used`},
	{"Claude Code", ".mcp.json", `{"mcpServers": {"a": {"type": "stdio", "command": "./bin/a", "args": ["${CLAUDE_PROJECT_DIR}/x", "${CLAUDE_PROJECT_DIR:-.}"], "env": {"H": "${HOME}"}}, "b": {"type": "http", "url": "https://b"}}}`,
		"a: PROJECT/bin/a [PROJECT/x] [PROJECT] in PROJECT H=/home/me\nb: https://b streamable-http", ""},
	{"Cursor", ".cursor/mcp.json", `{"mcpServers": {"a": {"command": "a", "args": ["${workspaceFolder}/x", "${userHome}/y", "${workspaceFolderBasename}"], "envFile": ".env"}}}`, "a: a [PROJECT/x] [/home/me/y] [BASE] in PROJECT", "envFile is not used"},
	{"VS Code", ".vscode/mcp.json", "{\n// mine\n\"inputs\": [], \"servers\": {\"a\": {\"type\": \"stdio\", \"command\": \"${workspaceFolder}/a\", \"cwd\": \"${workspaceFolder}/d\"},},}", "a: PROJECT/a in PROJECT/d", ""},
	{"VS Code's settings", "settings.json", `{"mcp": {"inputs": [], "servers": {"a": {"command": "a"}}}, "editor.fontSize": 12}`, "a: a", `key "editor.fontSize" is not used`},
	{"an input", "mcp.json", `{"servers": {"a": {"command": "a", "env": {"K": "${input:key}"}}}}`, "a: refused: asks a person", ""},
	{"a folder that nobody knows", "mcp.json", `{"servers": {"a": {"command": "a", "args": ["${workspaceFolder}"]}}}`, "a: refused: known to editors only", ""},
	{"Windsurf", "mcp_config.json", `{"mcpServers": {"a": {"serverUrl": "https://a", "disabled": false}, "b": {"command": "b", "disabledTools": ["x"]}}}`, "a: https://a\nb: b tools", ""},
	{"Cline", "cline_mcp_settings.json", `{"mcpServers": {"a": {"command": "a", "autoApprove": [], "disabled": true, "timeout": 60}}}`, "a: off", ""},
	{"Roo", ".roo/mcp.json", `{"mcpServers": {"a": {"type": "streamable-http", "url": "https://a", "alwaysAllow": ["x"], "watchPaths": []}}}`, "a: https://a streamable-http", ""},
	{"Zed", "settings.json", `{"context_servers": {"a": {"source": "custom", "command": "a", "args": ["$HOME"], "env": {}}, "b": {"command": {"path": "b", "args": ["1"]}}}, "theme": "x"}`, "a: a [$HOME]\nb: b [1]", ""},
	{"JetBrains", "mcp.json", `{"mcpServers": {"a": {"command": "a", "args": [], "enabled": false}, "b": {"url": "https://b"}}}`, "a: off\nb: https://b", ""},
	{"opencode", "opencode.json", `{"$schema": "x", "mcp": {"a": {"type": "local", "command": ["a", "1"], "environment": {"K": "{env:HOME}"}, "enabled": true}, "b": {"type": "remote", "url": "https://b", "enabled": false}}}`, "a: a [1] in PROJECT K=/home/me\nb: off", ""},
	{"Codex", "config.toml", "model = 'x'\n[mcp_servers.a]\ncommand = 'a'\nargs = ['1', '${HOME}']\nenv_vars = ['HOME']\n[mcp_servers.a.env]\nK = 'v'\n[mcp_servers.b]\nurl = 'https://b'\nbearer_token_env_var = 'HOME'\nenabled = false\n", "a: a [1] [${HOME}] HOME=/home/me K=v\nb: off", `config.toml:1:1: key "model" is not used`},
	{"Codex, refused", "config.toml", "[mcp_servers.a]\ncommand = 'a'\nargs = true\n", "a: refused: args must be a list", ""},
	{"Continue", "assistant.yaml", "name: x\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: a\n    command: a\n    env: {K: \"${{ secrets.HOME }}\", L: \"${x}\"}\n", "a: a K=/home/me L=${x}", ""},
	{"YAML of no known program", "x.yaml", "title: x\nmcpServers:\n  a: {command: a, env: {K: \"${HOME}\"}}\n  b: {command: b, disabled: \"yes\"}\n", "a: a K=/home/me\nb: off", `key "title" is not used`},
	{"a list in YAML", "x.yml", "mcpServers:\n- {name: a, command: a, args: \"${HOME} b\"}\n", "a: a [/home/me] [b]", "args is no list"},
	{"Goose", "goose.yaml", "GOOSE_MODEL: x\nextensions:\n  a: {enabled: true, type: stdio, cmd: a, args: [1], envs: {K: v}, env_keys: [HOME]}\n  b: {enabled: false, type: sse, uri: \"https://b\"}\n", "a: a [1] K=v HOME=/home/me\nb: off", ""},
	{"LibreChat", "librechat.yaml", "version: 1.2.1\ncache: true\nmcpServers:\n  a:\n    type: stdio\n    command: a\n    args: [-y]\n    env: {K: \"${HOME}\"}\n    timeout: 30000\n    serverInstructions: true\n  b: {type: streamable-http, url: \"https://b\", iconPath: x}\n", "a: a [-y] K=/home/me\nb: https://b streamable-http", "key \"cache\" is not used\ntimeout is not used"},
	{"mcpproxy-go", "mcp_config.json", `{"mcpServers": [{"name": "a", "protocol": "stdio", "command": "a", "enabled": true}, {"name": "b", "protocol": "http", "url": "https://b", "quarantined": true}, {"name": "c", "protocol": "stdio", "command": "c", "working_dir": "/d", "enabled": true}]}`, "a: a\nb: off\nc: c in /d", ""},
	{"docker", "mcp.json", `{"mcpServers": {"a": {"command": "docker", "args": ["run", "-i", "--rm", "-e", "K", "mcp/a"], "env": {"K": "v"}}}}`, "a: docker [run] [-i] [--rm] [-e] [K] [mcp/a] K=v", ""},
	{"ours", "toolfinch.yaml", "mcp_servers:\n  a: {command: a, inherit_env: [X], call_timeout: 5s, oauth: off}\n", "a: a", ""},
}

// Each file has the same servers through import, setup, --config and, where it can be edited, registry add.
func TestCorpusThroughEveryDoor(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths are those of Unix")
	}
	bin := t.TempDir()
	for _, program := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "x", "y", "npx", "docker"} {
		must.Do(t, os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o700))
	}
	for _, tt := range corpus {
		t.Run(tt.name, func(t *testing.T) {
			home := must.Get(filepath.EvalSymlinks(t.TempDir()))(t)
			project := filepath.Join(home, "work")
			t.Setenv("HOME", home)
			t.Setenv("PATH", bin)
			t.Setenv("XDG_CONFIG_HOME", "")
			path := filepath.Join(project, filepath.FromSlash(tt.file))
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Write(t, path, tt.text)
			want := strings.NewReplacer("PROJECT", project, "BASE", "work", "/home/me", home).Replace(tt.want)

			direct, err := configs.Load(configs.Options{Path: path, Dir: project, Env: os.LookupEnv})
			sys := clients.System{GOOS: runtime.GOOS, Env: os.LookupEnv, Dir: "/elsewhere"}
			file, _ := clients.FileAt(path, sys)
			usual := project
			if file.Project != "" && !file.Guessed {
				usual = "" // the project's folder is meant
			}
			compare(t, "--config", servedBy(direct, err, usual), want)
			if direct != nil {
				for part := range strings.Lines(tt.warns) {
					if all := configs.Errors(direct.Warnings).Error(); !strings.Contains(all, strings.TrimSpace(part)) {
						t.Errorf("warnings have no %q:\n%s", part, all)
					}
				}
			}

			own := filepath.Join(home, "own", "toolfinch.yaml")
			dry, dryErr := runImport(t, own, path, "--dry-run")
			if _, err := os.Stat(own); err == nil {
				t.Error("a dry run wrote")
			}
			rows, realErr := runImport(t, own, path)
			if real := strings.ReplaceAll(fmt.Sprint(rows), "added", "new"); fmt.Sprint(dry) != real || exitCode(dryErr) != exitCode(realErr) {
				t.Errorf("dry run: %v, %v\nimport: %v, %v", dry, dryErr, real, realErr)
			}
			compare(t, "import", append(servedFrom(own), refusedIn(rows)...), want)

			if client := clientOfUser(must.Get(configs.ClientFiles(path, sys))(t), tt.text); client != nil && !strings.Contains(tt.want, "PROJECT") {
				place := must.Get(client.File(sys, false))(t)
				must.Do(t, os.MkdirAll(filepath.Dir(place.Path), 0o700))
				must.Write(t, place.Path, tt.text)
				s := &settings{config: filepath.Join(home, "setup", "toolfinch.yaml")}
				must.Do(t, os.Mkdir(filepath.Dir(s.config), 0o700))
				cmd := newSetup(s)
				cmd.SetOut(io.Discard)
				cmd.SetErr(io.Discard)
				p := must.Get(s.planSetup(cmd, []*clients.Client{client}, setupFlags{}))(t)
				if p.config.After != nil {
					must.Write(t, s.config, string(p.config.After))
				}
				compare(t, "setup", append(servedFrom(s.config), refusedIn(p.rows)...), want)
				for _, change := range p.changes { // what the client keeps is what was refused
					for _, server := range must.Get(configs.ServersIn(change.File, change.After))(t) {
						if server.Name != clients.Own && !strings.Contains(want, server.Name+": refused") {
							t.Errorf("setup: the client keeps %q", server.Name)
						}
					}
				}
			}

			err = configs.AddServerUnset(path, clients.Server{Name: "added-one", Command: "x"})
			added := "added-one: x"
			if strings.Contains(tt.text, `"allowed"`) {
				added = "added-one: off"
			} else if usual == "" {
				added += " in " + project
			}
			if err == nil {
				want += "\n" + added
			} else if !strings.Contains(err.Error(), "as another program writes them") {
				t.Errorf("registry add: %v", err)
			}
			direct, err = configs.Load(configs.Options{Path: path, Dir: project, Env: os.LookupEnv})
			compare(t, "registry add", servedBy(direct, err, usual), want)
		})
	}
}

// Two entries of a file are two servers, whatever they differ in. An equal program in another file is the same one, as is
// a URL of the same name.
func TestEntriesAreTwoServersUnlessTheyAreEqual(t *testing.T) {
	dir := t.TempDir()
	file := func(name, servers string) string {
		return must.Write(t, filepath.Join(dir, name), `{"mcpServers": {`+servers+`}}`)
	}
	for _, one := range []string{`"command": "true"`, `"url": "https://example.com"`} {
		for i, other := range []string{"", `"oauth": {"clientId": "a"}`, `"envFile": ".env"`, `"auth": "x"`, `"headersHelper": "x"`, `"note": "x"`, `"disabled": true`, `"timeout": 5`, `"excludeTools": ["x"]`,
			`"cwd": "/"`, `"env": {"A": "b"}`, `"headers": {"A": "b"}`, `"args": ["x"]`, `"description": "x"`} {
			own := filepath.Join(dir, fmt.Sprint(one[1:4], i), "toolfinch.yaml")
			rows, err := runImport(t, own, file("mcp.json", `"a": {`+one+`}, "b": {`+strings.TrimSuffix(one+", "+other, ", ")+`}`))
			if err != nil || len(rows) != 2 || rows[0].Status != "added" || rows[1].Status != "added" {
				t.Errorf("%s, %s: %+v, %v", one, other, rows, err)
			}
			key, _, _ := strings.Cut(one[1:], `"`)
			must.Write(t, own, strings.ReplaceAll(must.Read(t, own), "    "+key+":", "    changes: allow\n    "+key+":")) // tuned afterwards
			again, err := runImport(t, own, file("mcp.json", `"a": {`+one+`}, "b": {`+strings.TrimSuffix(one+", "+other, ", ")+`}`))
			if err != nil || again[0].Status != "there" || again[1].Status != "there" || again[1].As != "b" {
				t.Errorf("again %s, %s: %+v, %v", one, other, again, err)
			}
		}
		own := filepath.Join(dir, one[1:4], "toolfinch.yaml")
		for _, test := range []struct{ name, want string }{{"a", "added"}, {"A", "there"}, {"b", map[string]string{"com": "there", "url": "added"}[one[1:4]]}} {
			if rows, err := runImport(t, own, file("other.json", `"`+test.name+`": {`+one+`}`)); err != nil || rows[0].Status != test.want {
				t.Errorf("%s %s: %+v, %v", one, test.name, rows, err)
			}
		}
	}
}

// runImport imports all servers of a file.
func runImport(t *testing.T, own, path string, flags ...string) ([]importRow, error) {
	t.Helper()
	cmd := newImport(&settings{config: own})
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{path, "--all", "--json"}, flags...))
	err := cmd.Execute()
	var said struct{ Servers []importRow }
	if bad := json.Unmarshal([]byte(out.String()), &said); bad != nil {
		t.Fatalf("%v, %v: %s", err, bad, out.String())
	}
	return said.Servers, err
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return map[bool]int{false: 1}[err == nil]
}

func refusedIn(rows []importRow) (lines []string) {
	for _, row := range rows {
		if row.Status == "unusable" || row.Status == "failed" {
			lines = append(lines, row.Server+": refused: "+row.Reason)
		}
	}
	return lines
}

// servedFrom is servedBy for a file of ours, "" for none.
func servedFrom(own string) []string {
	if _, err := os.Stat(own); err != nil {
		return nil
	}
	c, err := configs.Load(configs.Options{Path: own, Dir: filepath.Dir(own), Env: os.LookupEnv})
	return servedBy(c, err, filepath.Dir(own))
}

// clientOfUser returns the client whose file of the user can have the content of a file; nil for none.
func clientOfUser(found []clients.File, text string) *clients.Client {
	c, f := found[0].Client, found[0]
	if c == clients.AnyFile {
		c = clients.Find("cursor")
	}
	if servers, err := configs.ServersIn(clients.File{Client: c, Path: f.Path, Block: c.Block}, []byte(text)); len(found) > 1 || !c.CanEdit() || f.IsYAML() || len(servers) == 0 || err != nil {
		return nil
	}
	return c
}

// servedBy has a line for each server, without the working folder that it has by default.
func servedBy(c *configs.Config, err error, dir string) (lines []string) {
	if err != nil {
		for _, e := range strings.Split(err.Error(), "\n") {
			lines = append(lines, "error: "+e)
		}
		return lines
	}
	for _, s := range c.Servers {
		if s.Fault != "" {
			lines = append(lines, s.Name+": refused: "+s.Fault)
			continue
		}
		line := s.Name + ": " + s.Command + s.URL
		for _, arg := range s.Args {
			line += " [" + arg + "]"
		}
		if s.Cwd != "" && s.Cwd != dir {
			line += " in " + s.Cwd
		}
		for _, texts := range []map[string]string{s.Env, s.Headers} {
			for _, name := range slices.Sorted(maps.Keys(texts)) {
				line += " " + name + "=" + texts[name]
			}
		}
		if s.URL != "" && s.Transport != "auto" {
			line += " " + string(s.Transport)
		}
		for _, u := range c.Tools {
			if u.Name == s.Name {
				line += " tools"
			}
		}
		lines = append(lines, line)
	}
	for _, name := range c.Disabled {
		lines = append(lines, name+": off")
	}
	return lines
}

// compare compares servers in any order of the lines and of their variables. A refusal is
// wanted by a part of its reason.
func compare(t *testing.T, door string, got []string, want string) {
	t.Helper()
	sorted := func(line string) string {
		words := strings.Split(line, " ")
		slices.Sort(words)
		return strings.Join(words, " ")
	}
	for line := range strings.Lines(want) {
		line = strings.TrimSuffix(line, "\n")
		name, reason, refused := strings.Cut(line, ": refused: ")
		at := slices.IndexFunc(got, func(g string) bool {
			if refused {
				return strings.Contains(g, name) && strings.Contains(g, reason)
			}
			return sorted(g) == sorted(line)
		})
		if at < 0 {
			t.Errorf("%s: no %q in\n%s", door, line, strings.Join(got, "\n"))
			continue
		}
		got = slices.Delete(got, at, at+1)
	}
	if len(got) > 0 {
		t.Errorf("%s: more than wanted: %s", door, fmt.Sprint(strings.Join(got, "\n")))
	}
}
