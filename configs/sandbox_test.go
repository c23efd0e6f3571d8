package configs

import (
	"reflect"
	"strings"
	"testing"

	"toolfinch/upstream/sandbox"
)

func TestSandboxes(t *testing.T) {
	for text, want := range map[string]sandbox.Settings{
		"none":                              {},
		"landlock":                          {Landlock: &sandbox.Rules{}},
		"landlock, sandbox_optional: true":  {Landlock: &sandbox.Rules{}, Optional: true},
		"[bwrap, --ro-bind, /, /]":          {Wrapper: []string{"bwrap", "--ro-bind", "/", "/"}},
		"{write: [data, /srv]}":             {Landlock: &sandbox.Rules{Write: []string{"DIR/data", "/srv"}}},
		"{read: [], connect: []}":           {Landlock: &sandbox.Rules{Read: []string{}, Ports: []int{}}},
		"{read: [.], connect: [443, 8443]}": {Landlock: &sandbox.Rules{Read: []string{"DIR"}, Ports: []int{443, 8443}}},
		"{filesystem: {allowWrite: [/a]}}":  {}, // VS Code's, with a warning
	} {
		dir := write(t, "toolfinch.yaml", "mcp_servers: {a: {command: a, sandbox: "+text+"}}")
		c, err := loadAll(Options{Trusts: trustsAll, Dir: dir, Env: environ()})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want.Landlock != nil {
			for _, paths := range [][]string{want.Landlock.Read, want.Landlock.Write} {
				for i := range paths {
					paths[i] = strings.Replace(paths[i], "DIR", dir, 1)
				}
			}
		}
		if got := c.Servers[0].Sandbox; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
		if again := mustLoad(t, c.Resolved()).Servers[0].Sandbox; !reflect.DeepEqual(again, want) {
			t.Errorf("%s, printed and read again: %+v", text, again)
		}
		if warned := len(c.Warnings) > 0; warned != strings.Contains(text, "filesystem") {
			t.Errorf("%s: warnings %v", text, c.Warnings)
		}
	}
	for text, want := range map[string]string{
		"seccomp":            "sandbox must be",
		"[]":                 "sandbox is empty",
		"[./no-such]":        "names a program that is not there",
		"{raed: [/]}":        `unknown key "raed"`,
		`{write: [""]}`:      "write[0] is empty",
		"{connect: [65536]}": "connect[0] must be a whole number from 1 to 65535",
		"{connect: 443}":     "connect must be a list",
	} {
		_, err := load(t, "mcp_servers: {a: {command: a, sandbox: "+text+"}}")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Servers in a sandbox are kept from the port that clients come in at.
func TestThePortOfClients(t *testing.T) {
	for text, want := range map[string]int{
		"transport: http":                          8080,
		"{transport: http, listen: '[::1]:9000'}":  9000,
		"{transport: http, listen: '127.0.0.1:0'}": 0,
		"{transport: stdio}":                       0,
	} {
		if got := mustLoad(t, text).Port(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}
