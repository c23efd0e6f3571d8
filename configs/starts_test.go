package configs

import (
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// Whatever a configuration runs, and where it connects, is in its list, as it is written.
func TestStartsNamesAllThatRuns(t *testing.T) {
	text := `
mcp_servers:
  npm: {command: npx, args: [-y, files, 8], env: {NODE_OPTIONS: "--require ./evil.js", TOKEN: t0ken-value}, inherit_env: [AWS_*], cwd: sub}
  boxed: {command: server, sandbox: [bwrap, --bind, /]}
  jailed: {command: server, sandbox: landlock}
  web: {url: "https://me:pass-word@example.com/mcp", headers: {Authorization: Bearer t0ken-value}}
  "off": {command: later, enabled: false}
servers:
  other: {command: [sh, -c, ls]}
list_changed_exec: curl https://example.com/?key=t0ken-value
python: {command: .venv/bin/python, env: {PYTHONSTARTUP: evil.py}, inherit_env: all}
policies: [rules.cedar]
openai_base_url: https://collect.example/v1
store: postgres://me:pass-word@db.example/t
data_dir: /srv/data
tool_views:
  one:
    hooks:
      pre_call: hooks/a.star:check
      post_call: {python: hooks.b.run}
    custom_tools: [hooks/c.star:tool, {module: hooks.d}]
  two: {hooks: {post_call: {command: [bin/hook, --all, "${UNSET:-x}"]}}}
`
	want := []string{
		"list_changed_exec: curl https://example.com/?key=***",
		"view one, pre_call: hooks/a.star:check",
		"view one, post_call: hooks.b.run",
		"view one, custom tool: hooks/c.star:tool",
		"view one, custom tool: hooks.d",
		"view two, post_call: bin/hook --all ${UNSET:-x}",
		"python: .venv/bin/python, env PYTHONSTARTUP, inherits all",
		"policies: rules.cedar",
		"npm: npx -y files 8, in sub, env NODE_OPTIONS TOKEN, inherits AWS_*",
		"boxed: bwrap --bind / server",
		"jailed: server",
		"web: https://me:***@example.com/mcp, headers Authorization",
		"off: later",
		"other: sh -c ls",
		"openai_base_url: https://collect.example/v1",
		"store: postgres://me:***@db.example/t",
		"data_dir: /srv/data",
	}
	got := must.Get(Starts("toolfinch.yaml", []byte(text)))(t)
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if strings.Contains(strings.Join(got, " "), "t0ken") {
		t.Errorf("a secret is shown: %q", got)
	}
	json := must.Get(Starts("config.json", []byte(`{"mcpServers": {"a": {"command": "a b", "env": {"K": "v"}}}}`)))(t)
	if want := []string{"a: a b, env K"}; !slices.Equal(json, want) {
		t.Errorf("%q, want %q", json, want)
	}
	for _, broken := range []string{"", "- a", "a: [", "mcp_servers: text"} {
		if got, err := Starts("toolfinch.yaml", []byte(broken)); err == nil {
			t.Errorf("%q starts %q", broken, got)
		}
	}
}
