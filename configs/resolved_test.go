package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"toolfinch/internal/document"
	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
)

// What Resolved prints reads as the configuration it came from, where nothing is
// secret.
func TestResolvedReadsAsTheSame(t *testing.T) {
	const more = `
  web:
    url: https://mcp.example.com/mcp/
    description: "with $${NOTHING}, \"quotes\", a\nbreak and: a colon"
    prefix: ""
    isolate: never
  program: {command: run, args: ["", "-", "yes", "#x", "{a}", "[b]", "7", " x ", "a: b", "é", "~", "null", "\t", "*"], cwd: sub}
routing_type: DYNAMIC
list_changed_exec: ""
query_embed_timeout: 1500ms
log_level: debug
pinned: ["git_*", "no"]
allowed_origins: [https://app.example.com]
`
	tests := map[string]string{
		"defaults": minimal,
		"example":  Example(),
		"all":      strings.Replace(everyViewKey, "~/tools.star", "hooks/b.star", 1) + more,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			first := must.Get(loadWith(t, strings.Replace(text, "NODE_ENV: ", "# ", 1), []string{"hooks/a.star", "hooks/b.star", "bin/hook"}, "WHO=me and my ${dog}"))(t)
			resolved := first.Resolved()
			must.Do(t, os.WriteFile(first.Path, []byte(resolved), 0o600))
			second, err := loadAll(Options{Path: first.Path, Env: environ()})
			if err != nil {
				t.Fatalf("%v\n%s", err, resolved)
			}
			for _, c := range []*Config{first, second} {
				c.Disabled, c.Warnings, c.fingerprint, c.read, c.Found = nil, nil, "", nil, false
				nowhere(reflect.ValueOf(c.Tools))
				nowhere(reflect.ValueOf(c.Views))
			}
			if !reflect.DeepEqual(first, second) {
				t.Errorf("got\n%+v\nwant\n%+v\nfrom\n%s", second, first, resolved)
			}
			if again := second.Resolved(); !strings.HasSuffix(again, strings.SplitN(resolved, "\nmcp_servers", 2)[1]) {
				t.Errorf("then\n%s\nfirst\n%s", again, resolved)
			}
		})
	}
}

// One of each thing that Resolved masks, as its owner sees it.
func TestResolvedLooksLikeThis(t *testing.T) {
	c := must.Get(loadWith(t, secretsEverywhere, []string{"hooks/a.star"}, secretEnv...))(t)
	got := strings.ReplaceAll(c.Resolved(), filepath.Dir(c.Path), "/home/finch/configs")
	got = strings.ReplaceAll(got, `\\`, "/")
	if *update {
		must.Do(t, os.WriteFile("testdata/resolved.golden", []byte(got), 0o644))
	}
	if want := must.Read(t, "testdata/resolved.golden"); got != strings.ReplaceAll(want, "\r\n", "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// JSON is the same tree: read as a configuration it is the same one, too.
func TestResolvedAsJSONSaysTheSame(t *testing.T) {
	c := must.Get(loadWith(t, secretsEverywhere, []string{"hooks/a.star"}, secretEnv...))(t)
	read := func(name, text string) *document.Node {
		root, _, problems := document.Parse(name, []byte(text))
		if len(problems) > 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		return root
	}
	yaml, json := string(read("x.yaml", c.Resolved()).JSON()), string(read("x.json", string(c.ResolvedJSON())).JSON())
	if !strings.Contains(json, "mcp_servers") || strings.Contains(json, "hush") {
		t.Errorf("JSON has secrets, or nothing:\n%s", json)
	}
	if yaml != json {
		t.Errorf("YAML\n%s\nJSON\n%s", yaml, json)
	}
}

// Every secret in it begins with hush.
const secretsEverywhere = `
mcp_servers:
  program:
    command: npx
    args:
      - --token
      - hush-a1
      - --api-key=hush-a2
      - -password
      - hush-a3
      - "DB_PASSWORD=hush-a4"
      - postgres://me:hush-a5@db.example.com:5432/x?sslmode=hush-a6
      - "--header"
      - "X-Api-Key: hush-a7"
      - "Authorization: Bearer hush-a8"
      - "-e"
      - "ANYTHING=hush-a9"
      - "{\"apiKey\": \"hush-b1\", \"max_tokens\": 100, \"nested\": {\"secret\": [\"hush-b2\"]}}"
      - me:hush-b3@tcp(db:3306)/x
      - ${PLAIN_TOKEN}
      - pre-${PLAIN_TOKEN}-post
      - ${UNSET_SECRET:-hush-b5}
      - --port
      - "8080"
      - --author
      - me
      - sk-hush0123456789abcdef
      - https://hush-b6@example.com/
      - https://hooks.example.com/hush0123456789abcdefghi/mcp
      - postgres://me:hush/b7@db.example.com/x
    env: {API_KEY: hush-c1, PLAIN: hush-c2, EMPTY: ""}
    cwd: ${PLAIN_TOKEN}
    description: ask https://me:hush-c3@example.com with Bearer hush-c4
    tools:
      x:
        description: "{original} ${PLAIN_TOKEN}"
        parameters:
          api_key: {value: hush-d1}
          token: {hidden: true, default: {a: hush-d2, b: 98765432101}}
          max_tokens: {default: 100}
          text: {value: {deep: {password: hush-d3}, plain: seen, var: "${PLAIN_TOKEN}"}}
  web:
    url: https://me:hush-e1@mcp.example.com/mcp?key=hush-e2&x=hush-e3#hush-e4
    headers:
      Authorization: Bearer hush-e5
      X-Other: hush-e6
      Cookie: a=hush-e7
openai_base_url: https://me:hush-f1@example.com/v1
openai_api_key: hush-f2
list_changed_exec: "TOKEN=hush-f3 curl -H 'Authorization: Bearer hush-f4' --password hush-f5 https://me:hush-f6@example.com?a=hush-f7 | tee ${PLAIN_TOKEN}"
data_dir: data/${PLAIN_TOKEN}
tool_views:
  v:
    description: "${PLAIN_TOKEN} Bearer hush-g1"
    include_all: true
    hooks:
      pre_call: {command: [python3, hook.py, --token, hush-g2, "KEY=hush-g3"]}
      post_call: hooks/a.star:post_call
    composite_tools:
      c:
        inputs:
          password: {type: string, default: hush-h1, examples: [hush-h2], description: What opens it}
          query: {type: object, properties: {token: {type: string, const: hush-h3}, max: {type: integer, default: 5}}}
        parallel:
          s: {tool: web.x, args: {q: "{inputs.query}", auth: {user: hush-h4}, pin: 1234, url: "https://x.example.com?sig=hush-h5"}}
`

var secretEnv = []string{"PLAIN_TOKEN=hush-variable"}

func TestNoSecretIsPrinted(t *testing.T) {
	c := must.Get(loadWith(t, secretsEverywhere, []string{"hooks/a.star"}, secretEnv...))(t)
	resolved := c.Resolved()
	for line := range strings.Lines(resolved) {
		if strings.Contains(line, "hush") || strings.Contains(line, "98765432101") {
			t.Errorf("a secret is out: %s", line)
		}
	}
	// What is none stays, or nobody can use it.
	for _, want := range []string{
		"8080", "--author", `"--api-key=***"`, "me:***@db.example.com:5432/x?sslmode=***", `"Bearer ***"`, "pre-***-post",
		`\"max_tokens\":100`, "default: 100", "plain: seen", "openai_api_key: \"***\"", "What opens it",
	} {
		if !strings.Contains(resolved, want) {
			t.Errorf("%s is not shown", want)
		}
	}
	if t.Failed() {
		t.Log(resolved)
	}
}

func TestMaskURL(t *testing.T) {
	tests := map[string]string{
		"https://example.com/mcp":                      "https://example.com/mcp",
		"https://example.com:8443/mcp/":                "https://example.com:8443/mcp/",
		"http://[::1]:80/x":                            "http://[::1]:80/x",
		"https://u:p@example.com":                      "https://u:***@example.com",
		"https://:p@example.com":                       "https://***@example.com",
		"https://t@example.com/x":                      "https://***@example.com/x",
		"https://example.com/@scope/pkg":               "https://example.com/@scope/pkg",
		"https://example.com?a=b&c&d=#f":               "https://example.com?a=***&***&d=#***",
		"https://e.com/s/0123456789abcdef0123/mcp":     "https://e.com/s/***/mcp",
		"https://e.com/model-context-protocol-servers": "https://e.com/model-context-protocol-servers",
		"postgres://u:a/b@h/x":                         "postgres://u:***@h/x",
		"postgres://u:a@b@h/x":                         "postgres://u:***@h/x",
	}
	for in, want := range tests {
		if got := maskURL(in); got != want {
			t.Errorf("maskURL(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestSecretNames(t *testing.T) {
	tests := map[bool][]string{
		true:  {"TOKEN", "GITHUB_TOKEN", "api-key", "apiKey", "APIKEY", "OPENAI_API_KEY", "dbPassword", "X-Auth", "clientSecret", "-p-pat", "PGPASSWORD", "SSH_PRIVATE_KEY", "AWS_SECRET_ACCESS_KEY", "credentials"},
		false: {"PWD", "HOME", "author", "monkey", "keyboard", "PATH", "path", "compass", "query", ""},
	}
	for want, names := range tests {
		for _, name := range names {
			if isSecretName(name) != want {
				t.Errorf("isSecretName(%q) = %v", name, !want)
			}
		}
	}
}

// Whatever a text is, YAML reads it as that text again.
func FuzzQuotedText(f *testing.F) {
	for _, s := range []string{"", "a", "yes", "1", "a: b", "- x", "#", "a #b", "${X}", "$${X}", "\u2028\u0085", "\x7f", "é", "~", "'", `"`, `\`, "a\nb", "<<", "=", "0x1", ".inf", "2001-01-01", "a/b c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ToValidUTF8(s, "") != s || strings.ContainsRune(s, 0) || strings.ContainsRune(s, '\ufffd') {
			t.Skip()
		}
		var object rawjson.Object
		object.Add("k", rawjson.Quote(strings.ReplaceAll(s, "${", "$${")))
		object.Add("x"+s, json.RawMessage("1"))
		root, _, problems := document.Parse("c.yaml", []byte(document.YAML(object.JSON())))
		if len(problems) > 0 {
			t.Fatalf("%q: %v", s, problems)
		}
		got, err := expand(root.Pairs[0].Value.Text, environ())
		if err != nil || got != s || root.Pairs[0].Value.Kind != document.Text {
			t.Fatalf("%q is read as %q (%v)", s, got, err)
		}
		if key := root.Pairs[1].Key.Text; key != "x"+s {
			t.Fatalf("key %q is read as %q", "x"+s, key)
		}
	})
}

func BenchmarkResolved(b *testing.B) {
	c := must.Get(loadWith(b, secretsEverywhere, []string{"hooks/a.star"}, secretEnv...))(b)
	for b.Loop() {
		c.Resolved()
	}
}

// Replicas have all in common but what is each machine's own.
func TestFingerprint(t *testing.T) {
	common := func(text string) string {
		t.Helper()
		c := must.Get(loadWith(t, text, nil))(t)
		return c.Fingerprint()
	}
	const one = "mcp_servers: {a: {command: run}}\ntop_k: 7\n"
	own := "# of this machine\nlisten: 127.0.0.1:7\n" + one + "data_dir: x\n"
	if got, want := common(own), common(one); got != want || want == "" {
		t.Errorf("a machine of its own has %s, another %s", got, want)
	}
	c := must.Get(loadWith(t, one, nil))(t)
	must.Do(t, os.WriteFile(c.Path, []byte("top_k: 8\n"), 0o600))
	if got := c.Fingerprint(); got != common(one) {
		t.Errorf("after another edit it is %s: it must stay as it was read", got)
	}
	if common(one) == common(strings.Replace(one, "7", "8", 1)) {
		t.Error("another top_k makes no difference")
	}
	policy := filepath.Join(t.TempDir(), "team.cedar")
	with := one + "policies: [" + policy + "]\n"
	must.Do(t, os.WriteFile(policy, []byte("permit (principal, action, resource);"), 0o600))
	before := common(with)
	must.Do(t, os.WriteFile(policy, []byte("permit (principal, action, resource); "), 0o600))
	if before == common(with) || before == common(one) {
		t.Error("another policy makes no difference")
	}
}
