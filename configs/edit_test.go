package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toolfinch/configs/clients"
	"toolfinch/internal/document"
	"toolfinch/internal/must"
)

var (
	addNew = func(path string) error {
		return AddServer(path, clients.Server{Name: "new", Command: "npx", Args: []string{"-y", "x"}})
	}
	removeB = func(path string) error { return RemoveServer(path, "b") }
	enable  = func(path string) error { _, err := SetEnabled(path, "b", true); return err }
	disable = func(path string) error { _, err := SetEnabled(path, "b", false); return err }
)

// Edits change what they are asked to, and no other byte.
func TestEdits(t *testing.T) {
	const two = `# mine
mcp_servers: # all of them
  # the first
  a:
    command: a # really

  # the second
  b:
    command: b
    # args: [x]

# how many
top_k: 7
`
	tests := []struct {
		name, file, before string
		edit               func(path string) error
		want               string
	}{
		{"add behind the last", "c.yaml", two, addNew, strings.Replace(two, "    # args: [x]\n", "    # args: [x]\n\n  new:\n    command: npx\n    args: [\"-y\", x]\n", 1)},
		{"remove the last", "c.yaml", two, removeB, "# mine\nmcp_servers: # all of them\n  # the first\n  a:\n    command: a # really\n\n# how many\ntop_k: 7\n"},
		{"remove the first", "c.yaml", two, func(path string) error { return RemoveServer(path, "a") },
			"# mine\nmcp_servers: # all of them\n  # the second\n  b:\n    command: b\n    # args: [x]\n\n# how many\ntop_k: 7\n"},
		{"switch off", "c.yaml", two, disable, strings.Replace(two, "    # args: [x]\n", "    # args: [x]\n    enabled: false\n", 1)},
		{"switch on what is on", "c.yaml", two, enable, two},
		{"switch on", "c.yaml", "mcp_servers:\n  b: \n    enabled: false # for now\n    command: b\n", enable, "mcp_servers:\n  b: \n    enabled: true # for now\n    command: b\n"},
		{"switch on by a variable", "c.yaml", "mcp_servers:\n  b:\n    enabled: \"${B_ON:-false}\" # for now\n    command: b\n", enable, "mcp_servers:\n  b:\n    enabled: true # for now\n    command: b\n"},
		{"switch off where others say disabled", "c.yaml", "mcp_servers: {b: {command: b, disabled: false}}\n", disable, "mcp_servers: {b: {command: b, disabled: true}}\n"},
		{"switch off in braces", "c.yaml", "mcp_servers:\n  b: {command: b} # b\n", disable, "mcp_servers:\n  b: {command: b, enabled: false} # b\n"},
		{"comments of the next stay", "c.yaml", "mcp_servers:\n    b:\n        command: b\n    # of c\n    c:\n        command: c\n", removeB, "mcp_servers:\n    # of c\n    c:\n        command: c\n"},
		{"comments apart stay behind the last", "c.yaml", "mcp_servers:\n  a: {command: a}\n\n  # a heading\n\n  # of b\n  b: {command: b}\n", removeB, "mcp_servers:\n  a: {command: a}\n\n  # a heading\n"},
		{"comments apart stay", "c.yaml", "mcp_servers:\n  a: {command: a}\n\n  # a heading\n\n  # of b\n  b: {command: b}\n  c: {command: c}\n", removeB, "mcp_servers:\n  a: {command: a}\n\n  # a heading\n\n  c: {command: c}\n"},
		{"comments below the last stay", "c.yaml", "mcp_servers:\n  a: {command: a}\n\n  b: {command: b}\n\n  # not for now:\n  # c:\n  #   command: c\n", removeB, "mcp_servers:\n  a: {command: a}\n\n  # not for now:\n  # c:\n  #   command: c\n"},
		{"a comment that could be of the new one", "c.yaml", "mcp_servers:\n  a: {command: a}\n  # b: {command: b}\n", addNew, "mcp_servers:\n  a: {command: a}\n  # b: {command: b}\n\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"indentation is the file's", "c.yaml", "mcp_servers:\n    a:\n        command: a\n", addNew, "mcp_servers:\n    a:\n        command: a\n    new:\n        command: npx\n        args: [\"-y\", x]\n"},
		{"text that looks like comments", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    description: |\n      # heading\n      text\n      # end\ntop_k: 7\n", addNew,
			"mcp_servers:\n  b:\n    command: b\n    description: |\n      # heading\n      text\n      # end\n  new:\n    command: npx\n    args: [\"-y\", x]\ntop_k: 7\n"},
		{"text that looks like comments, removed", "c.yaml", "mcp_servers:\n  b:\n    command: b\n    description: |\n      # heading\n      text\n      # end\ntop_k: 7\n", removeB, "mcp_servers:\ntop_k: 7\n"},
		{"text over several lines", "c.yaml", "mcp_servers:\n  a:\n    description: \"one\n      two\n\n      three\"\n    command: a\n  b:\n    command: b\n    description: >-\n      x\n\n      y\n\n", disable,
			"mcp_servers:\n  a:\n    description: \"one\n      two\n\n      three\"\n    command: a\n  b:\n    command: b\n    description: >-\n      x\n\n      y\n    enabled: false\n\n"},
		{"no servers yet", "c.yaml", "# mine\ntop_k: 7\n", addNew, "# mine\ntop_k: 7\n\nmcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"no line end", "c.yaml", "top_k: 7", addNew, "top_k: 7\n\nmcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"nothing but comments", "c.yaml", "# mine\n", addNew, "# mine\n\nmcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"empty", "c.yaml", "", addNew, "mcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"an empty block", "c.yaml", "mcp_servers: # none\ntop_k: 7\n", addNew, "mcp_servers: # none\n  new:\n    command: npx\n    args: [\"-y\", x]\ntop_k: 7\n"},
		{"null", "c.yaml", "mcp_servers: ~\ntop_k: 7\n", addNew, "mcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\ntop_k: 7\n"},
		{"empty braces", "c.yaml", "mcp_servers: {} # none\ntop_k: 7\n", addNew, "mcp_servers: # none\n  new:\n    command: npx\n    args: [\"-y\", x]\ntop_k: 7\n"},
		{"braces", "c.yaml", "mcp_servers: {a: {command: a}}\n", addNew, "mcp_servers: {a: {command: a}, new: {command: npx, args: [\"-y\", x]}}\n"},
		{"braces over lines", "c.yaml", "mcp_servers: {\n  a: {command: ä},\n  b: {command: b}\n  }\ntop_k:   7\n", addNew, "mcp_servers: {\n  a: {command: ä},\n  b: {command: b}, new: {command: npx, args: [\"-y\", x]}\n  }\ntop_k:   7\n"},
		{"comments in braces over lines", "c.yaml", "mcp_servers: {\n  a: {command: a}, # a\n  b: {command: b} # b\n  }\n", addNew, "mcp_servers: {\n  a: {command: a}, # a\n  b: {command: b} # b\n  , new: {command: npx, args: [\"-y\", x]}}\n"},
		{"the only one, below a heading", "c.yaml", "mcp_servers:\n  # a heading\n\n  b: {command: b}\n", removeB, "mcp_servers:\n  # a heading\n"},
		{"the only one, above what is switched off", "c.yaml", "mcp_servers:\n  b: {command: b}\n  # c: {command: c}\n", removeB, "mcp_servers:\n  # c: {command: c}\n"},
		{"out of braces, the last", "c.yaml", "mcp_servers: { a: {command: ä}, b: {command: b} }\n", removeB, "mcp_servers: { a: {command: ä} }\n"},
		{"out of braces, the first", "c.yaml", "mcp_servers: { b: {command: b}, a: {command: a} }\n", removeB, "mcp_servers: { a: {command: a} }\n"},
		{"out of braces, the only one", "c.yaml", "mcp_servers: {b: {command: b}}\n", removeB, "mcp_servers: {}\n"},
		{"clients' key", "c.yaml", "mcpServers:\n  a: {command: a}\n", addNew, "mcpServers:\n  a: {command: a}\n  new:\n    command: npx\n    args: [\"-y\", x]\n"},
		{"an anchor", "c.yaml", "x-base: &base\n  env: {A: b}\nmcp_servers: &all\n  b:\n    <<: *base\n    command: b\n", disable, "x-base: &base\n  env: {A: b}\nmcp_servers: &all\n  b:\n    <<: *base\n    command: b\n    enabled: false\n"},
		{"document marks", "c.yaml", "%YAML 1.2\n---\nmcp_servers:\n  a: {command: a}\n...\n", addNew, "%YAML 1.2\n---\nmcp_servers:\n  a: {command: a}\n  new:\n    command: npx\n    args: [\"-y\", x]\n...\n"},
		{"line ends and byte order mark", "c.yaml", "\ufeffmcp_servers:\r\n  a: {command: a}\r\n  b:\r\n    command: b\r\ntop_k: 7\r\n", removeB, "\ufeffmcp_servers:\r\n  a: {command: a}\r\ntop_k: 7\r\n"},
		{"line ends, more", "c.yaml", "mcp_servers:\r\n  b:\r\n    command: b\r\n", disable, "mcp_servers:\r\n  b:\r\n    command: b\r\n    enabled: false\r\n"},
		{"names in quotes", "c.yaml", "mcp_servers:\n  'a': {command: a}\n  \"b\":\n    command: b\n", removeB, "mcp_servers:\n  'a': {command: a}\n"},

		{"another key that switches off", "c.json", `{"mcpServers": {"b": {"command": "b", "isActive": false, "status": "disabled"}}}`, enable, `{"mcpServers": {"b": {"command": "b", "isActive": true}}}`},
		{"text that switches off", "c.json", `{"mcpServers": {"b": {"command": "b", "disabled": "true"}}}`, enable, `{"mcpServers": {"b": {"command": "b", "disabled": false}}}`},
		{"switched on, and quarantined", "c.json", `{"mcpServers": {"b": {"command": "b", "enabled": true, "quarantined": false}}}`, disable, `{"mcpServers": {"b": {"command": "b", "enabled": false, "quarantined": true}}}`},
		{"JSON", "c.json", "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"}\n  }\n}\n", addNew, "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"a\"},\n    \"new\": {\n      \"command\": \"npx\",\n      \"args\": [\"-y\", \"x\"]\n    }\n  }\n}\n"},
		{"JSON with comments", "c.jsonc", "{\n  // all\n  \"mcp_servers\": {\n    // of a\n    \"a\": {\"command\": \"a\"}, // a\n    // of b\n    \"b\": {\"command\": \"b\"}, // b\n  },\n}\n", removeB, "{\n  // all\n  \"mcp_servers\": {\n    // of a\n    \"a\": {\"command\": \"a\"}, // a\n  },\n}\n"},
		{"JSON under the name of YAML", "c.yaml", "{\"mcp_servers\": {\"b\": {\"command\": \"b\"}}}", disable, "{\"mcp_servers\": {\"b\": {\"command\": \"b\", \"enabled\": false}}}"},
		{"YAML that begins as JSON", "c.yaml", "{mcp_servers: {b: {command: b}}}\n", disable, "{mcp_servers: {b: {command: b, enabled: false}}}\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), test.file), test.before)
			must.Do(t, test.edit(path))
			if got := must.Read(t, path); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestAddServerMakesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "toolfinch.yaml")
	must.Do(t, addNew(path))
	text := must.Read(t, path)
	if !strings.HasPrefix(text, "# toolfinch.yaml of toolfinch.") || !strings.HasSuffix(text, "\n\nmcp_servers:\n  new:\n    command: npx\n    args: [\"-y\", x]\n") {
		t.Errorf("got\n%s", text)
	}
	if c, err := loadAll(Options{Path: path, Env: environ()}); err != nil || len(c.Servers) != 1 {
		t.Errorf("loaded as %+v, %v", c, err)
	}
	path = filepath.Join(t.TempDir(), "toolfinch.json")
	must.Do(t, addNew(path))
	if c, err := loadAll(Options{Path: path, Env: environ()}); err != nil || len(c.Servers) != 1 {
		t.Errorf("JSON loaded as %+v, %v", c, err)
	}
}

// What an edit refuses leaves the file as it was, and says why.
func TestEditsThatAreRefused(t *testing.T) {
	const file = "mcp_servers:\n  git.hub: {command: g}\n  b: {command: b}\n"
	tests := []struct {
		name, file, before string
		edit               func(path string) error
		want               string
	}{
		{"taken", "c.yaml", file, func(p string) error { return AddServer(p, clients.Server{Name: "b", Command: "x"}) }, `c.yaml has a server "b" already`},
		{"unknown", "c.yaml", file, func(p string) error { return RemoveServer(p, "git.hb") }, `c.yaml has no server "git.hb" (did you mean "git.hub"?)`},
		{"the file of opencode", "opencode.json", `{"mcp": {"b": {"type": "local", "command": ["b"]}}}`, addNew, "opencode.json has its servers as another program writes them, which toolfinch reads and does not edit: toolfinch import takes them over"},
		{"the file of Codex", "config.toml", "[mcp_servers.b]\ncommand = 'b'\n", disable, "config.toml has its servers as another program writes them, which toolfinch reads and does not edit: toolfinch import takes them over"},
		{"bare servers", "x.json", `{"b": {"command": "b"}}`, addNew, "x.json has its servers as another program writes them, which toolfinch reads and does not edit: toolfinch import takes them over"},
		{"unknown to switch", "c.yaml", file, func(p string) error { _, err := SetEnabled(p, "zzz", true); return err }, `c.yaml has no server "zzz"`},
		{"nothing to start", "c.yaml", file, func(p string) error { return AddServer(p, clients.Server{Name: "x"}) }, "nothing was written: "},
		{"both", "c.yaml", file, func(p string) error { return AddServer(p, clients.Server{Name: "x", Command: "x", URL: "http://x"}) }, `nothing was written: server "x" has both command and url (keep one)`},
		{"a name that is none", "c.yaml", file, func(p string) error { return AddServer(p, clients.Server{Name: "-x", Command: "x"}) }, "nothing was written: illegal server name"},
		{"a variable that is not set", "c.yaml", file, func(p string) error {
			return AddServer(p, clients.Server{Name: "x", Command: "x", Env: map[string]string{"T": "${TOOLFINCH_TEST_NONE}"}})
		}, "nothing was written: "},
		{"not UTF-8", "c.yaml", file, func(p string) error { return AddServer(p, clients.Server{Name: "x", Command: "\xff"}) }, "c.yaml: mcp_servers.x: the text is not UTF-8"},
		{"broken YAML", "c.yaml", "mcp_servers: [", addNew, "c.yaml:1:"},
		{"broken JSON", "c.json", "{\"mcp_servers\": {", addNew, "c.json:1:"},
		{"comments beside one in braces", "c.yaml", "mcp_servers: {\n  a: {command: a}, # a\n  b: {command: b} # b\n  }\n", removeB, "c.yaml: mcp_servers.b: " + document.ErrByHand.Error()},
		{"a comment in empty braces", "c.yaml", "mcp_servers: { # none\n  }\n", addNew, "c.yaml: mcp_servers.new: " + document.ErrByHand.Error()},
		{"line ends of two kinds", "c.yaml", "mcp_servers:\r\n  b:\n    command: b\n", removeB, "c.yaml: mcp_servers.b: " + document.ErrByHand.Error()},
		{"a list", "c.yaml", "- a\n", addNew, "c.yaml:1:1: the file must be a mapping"},
		{"a block that is none", "c.yaml", "mcp_servers: 5\n", addNew, "c.yaml: mcp_servers.new: " + document.ErrByHand.Error()},
		{"an alias", "c.yaml", "x-all: &all\n  b: {command: b}\nmcp_servers: *all\n", addNew, "c.yaml: mcp_servers.new: " + document.ErrByHand.Error()},
		{"merged", "c.yaml", "x-all: &all\n  b: {command: b}\nmcp_servers:\n  <<: *all\n", removeB, "c.yaml: mcp_servers.b: " + document.ErrByHand.Error()},
		{"the anchor of another", "c.yaml", "mcp_servers:\n  b: &b\n    command: b\n  c: *b\n", removeB, "c.yaml: mcp_servers.b: " + document.ErrByHand.Error()},
		{"what another is like", "c.yaml", "mcp_servers:\n  b: &b\n    command: b\n  c: *b\n", disable, "c.yaml: mcp_servers.b.enabled: " + document.ErrByHand.Error()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := must.Write(t, filepath.Join(t.TempDir(), test.file), test.before)
			err := test.edit(path)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if got := must.Read(t, path); got != test.before {
				t.Errorf("written all the same:\n%s", got)
			}
		})
	}
	if err := removeB(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), file)
	must.Do(t, os.Chmod(path, 0o400))
	if err := removeB(path); !errors.Is(err, clients.ErrReadOnly) {
		t.Errorf("a read-only file: %v", err)
	}
	var name *NameError
	if err := AddServer(path, clients.Server{Name: "b", Command: "x"}); !errors.As(err, &name) || !name.Taken {
		t.Errorf("taken: %v", err)
	}
}

// A file that does not load can be mended: what was wrong before is no reason.
func TestEditsOfAFileThatDoesNotLoad(t *testing.T) {
	path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), "mcp_servers:\n  a: {commnd: a}\n  b: {}\n")
	must.Do(t, removeB(path))
	if got, want := must.Read(t, path), "mcp_servers:\n  a: {commnd: a}\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Whatever a server is called and given, it reads back the same, and taking it
// out again leaves the file as it was.
func TestServersReadBackTheSame(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{
		"a", "Z", "0", "7", " ", "  ", "-", "--", ":", ": ", "#", " #", "'", `"`, `\`, "{", "}", "[", "]", ",", "&", "*", "!", "|", ">", "%", "@", "`", "~", "?", "=", "<<",
		"\n", "\t", "\r", "\x1b", "\x7f", "\u0085", "\u2028", "\ufeff", "é", "日本", "😀", "true", "null", "no", "1e3", "0x1f", ".5", "1_000", "2026-07-28", ".inf", "$x", "$${x}", "//", "/*", "---", "...", "\\u00e9",
	}
	piece := func(most int) string {
		var b strings.Builder
		for range random.IntN(most) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	files := map[string]string{
		"block.yaml": "# mine\nmcp_servers:\n  a:\n    command: a # really\n\ntop_k: 7\n",
		"flow.yaml":  "mcp_servers: {a: {command: a}} # all\n",
		"crlf.yaml":  "mcp_servers:\r\n    a:\r\n        command: a\r\n",
		"c.json":     "{\n\t\"mcp_servers\": {\n\t\t\"a\": {\"command\": \"a\"} // a\n\t}\n}\n",
	}
	for name, before := range files {
		path := must.Write(t, filepath.Join(t.TempDir(), name), before)
		for i := range 20 {
			want := clients.Server{Command: "c" + piece(4), Description: piece(6), Env: map[string]string{"K": piece(6), "k" + strings.ReplaceAll(piece(3), "=", ""): piece(6)}}
			for range random.IntN(4) {
				want.Args = append(want.Args, piece(6))
			}
			server := fmt.Sprint("s", i, strings.Repeat("@.:- ", random.IntN(3)))
			want.Name, want.Configured = server, true
			if err := AddServer(path, want); err != nil {
				t.Fatalf("%s: %q %#v: %v", name, server, want, err)
			}
			servers, err := Servers(path)
			if err != nil || len(servers) != 2 {
				t.Fatalf("%s: %#v: %+v, %v\n%s", name, want, servers, err, must.Read(t, path))
			}
			at := slices.IndexFunc(servers, func(s clients.Server) bool { return s.Name == server })
			if at < 0 || !reflect.DeepEqual(servers[at], want) {
				t.Fatalf("%s:\n got %#v\nwant %#v\n%s", name, servers, want, must.Read(t, path))
			}
			if err := RemoveServer(path, server); err != nil {
				t.Fatalf("%s: remove %#v: %v", name, server, err)
			}
			if got := must.Read(t, path); got != before {
				t.Fatalf("%s: with %#v and without\n%s\nwant\n%s", name, want, got, before)
			}
		}
	}
}

// Every server of the example file can be taken out and switched off, and the
// file still loads.
func TestTheExampleCanBeEdited(t *testing.T) {
	path := must.Write(t, filepath.Join(t.TempDir(), "toolfinch.yaml"), Example())
	for _, name := range []string{"files", "tickets"} {
		must.Get(SetEnabled(path, name, false))(t)
		must.Get(SetEnabled(path, name, true))(t)
	}
	if got, want := must.Read(t, path), strings.Replace(Example(), "    enabled: false\n", "    enabled: true\n", 1); got != want {
		t.Errorf("got\n%s", got)
	}
	must.Do(t, RemoveServer(path, "tickets"))
	c, err := loadAll(Options{Path: path, Env: environ()})
	if err != nil || len(c.Servers) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if strings.Contains(must.Read(t, path), "A server behind a URL") {
		t.Error("the comment of a removed server stayed")
	}
}

func TestServersAsWritten(t *testing.T) {
	path := must.Write(t, filepath.Join(t.TempDir(), "c.yaml"), "mcp_servers:\n  a:\n    command: ~/a\n    args: [\"${X}\", 5]\n    env: {T: \"${T}\"}\n    enabled: false\nmcpServers:\n  b: {serverUrl: \"https://b.example.com\", type: sse, headers: {H: v}}\n")
	got, err := Servers(path)
	want := []clients.Server{
		{Name: "a", Command: "~/a", Args: []string{"${X}", "5"}, Env: map[string]string{"T": "${T}"}, Disabled: true, Configured: true},
		{Name: "b", URL: "https://b.example.com", Transport: "sse", Headers: map[string]string{"H": "v"}, Configured: true},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// A file keeps its mode, and a link to it stays one.
func TestEditsKeepWhatTheFileIs(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("modes and links are those of other systems")
	}
	path := must.Write(t, filepath.Join(t.TempDir(), "real.yaml"), "mcp_servers: {}\n")
	must.Do(t, os.Chmod(path, 0o664))
	link := filepath.Join(t.TempDir(), "toolfinch.yaml")
	must.Do(t, os.Symlink(path, link))
	must.Do(t, addNew(link))
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o664 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if info, err = os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link: %v, %v", info.Mode(), err)
	}
	if got := must.Read(t, path); !strings.Contains(got, "npx") {
		t.Errorf("got %s", got)
	}
}

// Whatever the file is, an edit of it either changes just what it should or is
// refused: set itself compares what was and what is.
func FuzzEdits(f *testing.F) {
	for _, seed := range []string{
		"mcp_servers:\n  a:\n    command: a # x\n  b: {command: b}\n", "mcp_servers: {a: {command: a},\n b: {command: b}}", "---\nmcp_servers:\n...\n",
		"mcp_servers: &x {a: &y {command: a, enabled: 'true'}}\nx-y: *y", "? mcp_servers\n: a:\n    command: |\n      # x\n", "{\"mcp_servers\": {\"a\": {}, // x\n}}",
		"mcp_servers:\r\n  a:\r\n    disabled: no\r\n", "mcp_servers: !!map\n  a: ~\n  <<: {b: {}}\n", "mcp_servers:\r  a:\r    x: 1\r",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := editOf("c.yaml", []byte(text))
		if err != nil {
			return
		}
		names := e.serverNames()
		if err := e.put(clients.Server{Command: "x", Args: []string{"-y"}}, serverBlocks[0], "added by the test"); err == nil && e.At(serverBlocks[0], "added by the test") == nil {
			t.Error("not added")
		}
		for _, name := range names {
			block := e.block(name)
			if block == "" {
				continue
			}
			_ = e.put(false, block, name, "enabled")
			if err := e.set(nil, block, name); err == nil && e.At(block, name) != nil {
				t.Errorf("%q was not removed", name)
			}
		}
	})
}
