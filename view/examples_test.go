package view

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// example is a tool with the hook of an example around it.
func example(t *testing.T, name, function string, of *tool.Tool) tool.Handler {
	t.Helper()
	path := must.Get(filepath.Abs(filepath.Join("testdata", "examples", name+".star")))(t)
	hook := &Hook{Module: path, Function: function}
	hooks := Hooks{PreCall: hook}
	if function == postCall {
		hooks = Hooks{PostCall: hook}
	}
	env, _ := envOf(of)
	h, problems := newHooks(Settings{Name: "v", Hooks: hooks}, env)
	wantProblems(t, problems)
	return h.around(of)
}

func TestExampleInjectUser(t *testing.T) {
	handler := example(t, "inject_user", preCall, upstreamTool(t, "notes.list", `{}`, echo))
	got := mustCall(t, handler, &tool.Call{Principal: "ada", Arguments: json.RawMessage(`{"user_id":"eve","n":9007199254740993}`)})
	if want := `{"user_id":"ada","n":9007199254740993}`; string(got.Value()) != want {
		t.Errorf("%s, want %s", got.Value(), want)
	}
	if got := mustCall(t, handler, &tool.Call{}); said(got) != "refused: nobody is authenticated, so there is no user to act for" {
		t.Errorf("%s", got)
	}
}

func TestExampleRedact(t *testing.T) {
	const aws, github = "AKIAABCDEFGHIJKLMNOP", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
	image := strings.Repeat("QUJD", 1<<15)
	for _, test := range []struct{ name, came, want string }{
		{"a large result", `{"content":[{"type":"image","data":"` + image + `"},{"type":"text","text":"` + aws + `"}]}`,
			`{"content":[{"type":"image","data":"` + image + `"},{"type":"text","text":"[redacted]"}]}`},
		{"nothing to hide", `{"content":[{"type":"text","text":"token of thanks"}]}`, `{"content":[{"type":"text","text":"token of thanks"}]}`},
		{"keys in text", `{"content":[{"type":"text","text":"aws ` + aws + `, git ` + github + `."}]}`,
			`{"content":[{"type":"text","text":"aws [redacted], git [redacted]."}]}`},
		{"a field", `{"content":[],"structuredContent":{"user":"ada","password":"hunter2","n":9007199254740993}}`,
			`{"content":[],"structuredContent":{"user":"ada","password":"[redacted]","n":9007199254740993}}`},
		{"a field of JSON in text", `{"content":[{"type":"text","text":"{\"api_key\": \"a\\nb\", \"x\": 1}"}]}`,
			`{"content":[{"type":"text","text":"{\"api_key\": \"[redacted]\", \"x\": 1}"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			handler := example(t, "redact", postCall, upstreamTool(t, "files.read", `{}`, func(context.Context, *tool.Call) (tool.Result, error) {
				return tool.Result(test.came), nil
			}))
			if got := mustCall(t, handler, &tool.Call{}); string(got) != test.want {
				t.Errorf("\n got %.300s\nwant %.300s", got, test.want)
			}
		})
	}
}

func TestExampleRequireArgument(t *testing.T) {
	handler := example(t, "require_argument", preCall, upstreamTool(t, "issues.create_issue", `{}`, echo))
	for arguments, want := range map[string]string{
		`{"title":"x"}`:                  "refused: call issues_create_issue again with project and labels",
		`{"project":"p","labels":[]}`:    "refused: call issues_create_issue again with labels",
		`{"project":"p","labels":["a"]}`: "",
	} {
		got := mustCall(t, handler, &tool.Call{Name: "issues_create_issue", Arguments: json.RawMessage(arguments)})
		if said(got) != want {
			t.Errorf("%s: %s, want %q", arguments, got, want)
		}
	}
	other := example(t, "require_argument", preCall, upstreamTool(t, "issues.list_labels", `{}`, echo))
	if got := mustCall(t, other, &tool.Call{}); got.Failed() {
		t.Errorf("%s", got)
	}
}

func TestExampleRateLimit(t *testing.T) {
	handler := example(t, "rate_limit", preCall, upstreamTool(t, "web.search", `{}`, echo))
	for i := range 21 {
		got := mustCall(t, handler, &tool.Call{Name: "web_search", Principal: "ada"})
		if got.Failed() != (i == 20) {
			t.Errorf("call %d: %s", i+1, got)
		}
		if i == 20 && !strings.HasPrefix(said(got), "refused: more than 20 calls of web_search within 60 seconds") {
			t.Errorf("%s", got)
		}
	}
	if got := mustCall(t, handler, &tool.Call{Name: "web_search", Session: "s2"}); got.Failed() {
		t.Errorf("another user: %s", got)
	}
}

func TestExampleRequireAuth(t *testing.T) {
	for _, test := range []struct{ tool, principal, want string }{
		{"read_page", "", ""},
		{"edit_page", "", "refused: sign in to use wiki_edit_page"},
		{"edit_page", "bob", ""},
		{"delete_page", "bob", "refused: bob may not use wiki_delete_page"},
		{"delete_page", "ada", ""},
	} {
		handler := example(t, "require_auth", preCall, upstreamTool(t, "wiki."+test.tool, `{}`, echo))
		if got := said(mustCall(t, handler, &tool.Call{Name: "wiki_" + test.tool, Principal: test.principal})); got != test.want {
			t.Errorf("%s by %q: %q, want %q", test.tool, test.principal, got, test.want)
		}
	}
}
