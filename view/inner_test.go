package view

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/internal/nearest"
	"toolfinch/tool"
	"toolfinch/view/script"
)

// upstreamTool is a tool of an upstream with the handler of the test.
func upstreamTool(t testing.TB, id, annotations string, handler tool.Handler) *tool.Tool {
	t.Helper()
	server, name, _ := strings.Cut(id, ".")
	def := must.Get(tool.ParseDef(server, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"},"annotations":%s}`, name, annotations)))(t)
	return &tool.Tool{Def: def, Handler: handler}
}

func failing(_ context.Context, _ *tool.Call) (tool.Result, error) {
	return tool.ErrorResult("no such repository"), nil
}

// envOf is an Env with these upstream tools in it, and what is logged there.
func envOf(tools ...*tool.Tool) (Env, *await.Log) {
	log := &await.Log{}
	var ids []string
	for _, t := range tools {
		ids = append(ids, t.Def.ID.String())
	}
	return Env{
		Log:     slog.New(slog.NewTextHandler(log, nil)),
		Program: func(path string) (*script.Program, error) { return script.Load(path, nil, nil) },
		Find: func(id string) (*tool.Tool, bool) {
			if i := slices.Index(ids, id); i >= 0 {
				return tools[i], true
			}
			return nil, false
		},
		Nearest: func(id string, n int) []string { return nearest.Names(id, ids, n, nearest.Close) },
		Pending: func(id string) bool { return strings.HasPrefix(id, "absent.") },
		Retrieve: func(_ context.Context, query string, limit int) (json.RawMessage, error) {
			return fmt.Appendf(nil, `[{"name":%q,"limit":%d}]`, query, limit), nil
		},
		Search: func(_ context.Context, query string, limit int) (json.RawMessage, error) {
			return fmt.Appendf(nil, `[{"name":"within %s"}]`, query), nil
		},
	}, log
}

// moduleOf writes a Starlark module and returns its path.
func moduleOf(t testing.TB, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "module.star")
	must.Do(t, os.WriteFile(path, []byte(source), 0o600))
	return path
}

// wantProblems checks the lines of problems, each by a part of it.
func wantProblems(t *testing.T, got []Problem, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("problems %q, want %q", got, want)
	}
	for i := range want {
		if !strings.Contains(got[i].Error(), want[i]) {
			t.Errorf("problem %q, want %q in it", got[i], want[i])
		}
	}
}

// said is what the model reads of a result.
func said(result tool.Result) string {
	var r struct{ Content []struct{ Text string } }
	_ = json.Unmarshal(result, &r)
	var texts []string
	for _, block := range r.Content {
		texts = append(texts, block.Text)
	}
	return strings.Join(texts, "\n")
}

func mustCall(t testing.TB, handler tool.Handler, call *tool.Call) tool.Result {
	t.Helper()
	return must.Get(handler(t.Context(), call))(t)
}

func TestAnnotationsFollowTheToolsThatAreCalled(t *testing.T) {
	for _, test := range []struct {
		name string
		of   []string // annotations; "" for a tool that is not known
		want string
	}{
		{"all only read", []string{`{"readOnlyHint":true,"openWorldHint":false}`, `{"readOnlyHint":true,"openWorldHint":false}`},
			`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		{"one is of the open world", []string{`{"readOnlyHint":true,"openWorldHint":false}`, `{"readOnlyHint":true}`},
			`{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":true}`},
		{"one writes", []string{`{"readOnlyHint":true}`, `{"destructiveHint":false}`},
			`{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false,"openWorldHint":true}`},
		{"a write that may be repeated", []string{`{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
			`{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
		{"one says nothing", []string{`{"readOnlyHint":true}`, `{}`},
			`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`},
		{"one is not known", []string{`{"readOnlyHint":true}`, ""},
			`{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`},
		{"none is called", nil, `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var defs []*tool.Def
			for _, annotations := range test.of {
				var def *tool.Def
				if annotations != "" {
					def = upstreamTool(t, "s.t", annotations, nil).Def
				}
				defs = append(defs, def)
			}
			if got := string(hints(floor(defs))); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
