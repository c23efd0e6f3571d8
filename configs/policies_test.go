package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/internal/must"
	"toolfinch/tool"
	"toolfinch/trust/policy"
)

const serverA = "data_dir: data\nmcp_servers: {a: {command: a}}\n"

// loadBeside loads a configuration with files beside it.
func loadBeside(t *testing.T, text string, files map[string]string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(content), 0o644))
	}
	path := filepath.Join(dir, "toolfinch.yaml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	return Load(Options{Path: path, Env: func(string) (string, bool) { return "", false }})
}

// Files and policies in the configuration hold together; a file is followed.
func TestPolicies(t *testing.T) {
	c := must.Get(loadBeside(t, serverA+"policies:\n  - rules/team.cedar\n  - forbid (principal, action, resource == Tool::\"a.x\");\n", map[string]string{
		"rules/team.cedar": "permit (principal, action, resource);",
	}))(t)
	may := func(name string) bool {
		return c.Policies.Decide(policy.Request{Party: identity.Party{}, Action: policy.ActionCall, ID: tool.ID{Server: "a", Name: name}}).Allow
	}
	if may("x") || !may("y") {
		t.Errorf("x is allowed: %v, y: %v", may("x"), may("y"))
	}
	if file := filepath.Join(filepath.Dir(c.Path), "rules", "team.cedar"); !slices.Equal(c.Modules(), []string{file}) {
		t.Errorf("Modules() = %v, want %s", c.Modules(), file)
	}
}

// An error in a policy has a place, and refuses the configuration.
func TestErrorsOfPolicies(t *testing.T) {
	for _, test := range []struct{ text, cedar, want string }{
		{"policies: [team.cedar]\n", "// ours\npermit (principal, action, resorce);", "team.cedar:2:28: policy: resorce where resource is expected"},
		{"policies:\n  - |\n    permit (principal, action, resource);\n    forbid (principal, action == Action::\"cal\", resource);\n", "", `toolfinch.yaml:6:43: policy: there is no Action::"cal" (did you mean call?)`},
		{"policies: [none.cedar]\n", "", "toolfinch.yaml:3:12: policies: none.cedar: cannot be read: no such file or directory"},
		{"policies: true\n", "", "policies must be a list"},
		{"auth: {keys: true, issuers: [https://idp.example]}\npolicies: [team.cedar]\n", `permit (principal in Group::"dev", action, resource);`,
			`team.cedar:1:30: policy: Group::"dev" does not begin with the issuer that says who is in it (write Group::"key|dev" or Group::"https://idp.example|dev")`},
		{"auth: keys\npolicies: [team.cedar]\n", `permit (principal in Group::"dev", action, resource);`, `(write Group::"key|dev")`},
		{"auth: {issuers: ['https://idp.example/a|b']}\n", "", "auth.issuers[0] must be an https URL without a query and |"},
		{"rate_limits: [{server: b, calls_per_minute: 1}]\n", "", `toolfinch.yaml:3:24: rate_limits[0].server: there is no server "b"`},
		{"rate_limits: [{server: a}]\n", "", "rate_limits[0] bounds nothing"},
		{"rate_limits: [{per: [user], concurrency: 1}]\n", "", "principal, server or tool"},
	} {
		_, err := loadBeside(t, serverA+test.text, map[string]string{"team.cedar": test.cedar})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s%s\n got %v\nwant %s", test.text, test.cedar, err, test.want)
		}
	}
	c, err := loadBeside(t, serverA+"policies:\n  - permit (principal, action, resource in Server::\"b\");\n", nil)
	if err != nil || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0].Error(), `toolfinch.yaml:4:53: policy: there is no server "b"`) {
		t.Errorf("a server that there is not: %v, %v", c.Warnings, err)
	}
}

// Policies see the arguments that the server gets: one that asks by a view's name for an argument is warned of.
func TestAPolicyByTheNameOfAView(t *testing.T) {
	const asks = "policies: ['permit (principal, action, resource) when { context.args.file == \"a\" };']\n"
	const renames = "{a: {read: {parameters: {path: {rename: %s}}}}}"
	for text, want := range map[string]string{
		asks + "tool_views: {v: {tools: " + fmt.Sprintf(renames, "file") + "}}\n":  `policy: it asks for the argument "file", which is "path" renamed for clients (policies see what the server gets: write context.args.path)`,
		asks + "tool_views: {v: {tools: " + fmt.Sprintf(renames, "other") + "}}\n": "",
	} {
		c := must.Get(loadBeside(t, serverA+text, nil))(t)
		if got := fmt.Sprint(c.Warnings); want == "" && len(c.Warnings) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// allow: read_only is a policy of the view, beside others or alone.
func TestAllowReadOnly(t *testing.T) {
	for _, policies := range []string{"", "policies: ['permit (principal, action, resource);']\n"} {
		c := must.Get(loadBeside(t, serverA+policies+"tool_views: {reader: {include_all: true, allow: read_only}, all: {include_all: true, allow: all}}\n", nil))(t)
		for _, test := range []struct {
			view string
			tool tool.Annotations
			want bool
		}{
			{"reader", tool.Annotations{ReadOnly: true}, true},
			{"reader", tool.Annotations{Destructive: true, OpenWorld: true}, false}, // one without annotations
			{"reader", tool.Annotations{Idempotent: true}, false},
			{"all", tool.Annotations{Destructive: true}, true},
		} {
			decided := c.Policies.Decide(policy.Request{Action: policy.ActionCall, ID: tool.ID{Server: "a", Name: "x"}, View: test.view, Annotations: test.tool})
			if decided.Allow != test.want || !test.want && decided.Policy() != "allow: read_only of view reader" {
				t.Errorf("with %q, %s, %+v: %+v", policies, test.view, test.tool, decided)
			}
		}
	}
	if c, err := loadBeside(t, serverA, nil); err != nil || c.Policies != nil {
		t.Errorf("without policies there are some: %v, %v", c.Policies, err)
	}
}
