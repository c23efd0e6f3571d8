package retrieve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
	"toolfinch/retrieve/gate"
	"toolfinch/tool"
)

// several answers a call of call_tool with several calls, in which f handles each.
func several(t *testing.T, most Kind, settings Settings, call *tool.Call, f func(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error)) (text string, result tool.Result, err error) {
	t.Helper()
	handler := func(def *tool.Def) tool.Handler {
		return func(ctx context.Context, call *tool.Call) (tool.Result, error) { return f(ctx, def, call) }
	}
	r := New(readBy(t, handler, fewServers(t, handler)), settings)
	result, err = r.CallTool(most, "")(t.Context(), call)
	var blocks []string
	var said struct{ Content []struct{ Type, Text string } }
	if err == nil {
		must.Do(t, json.Unmarshal(result, &said))
	}
	for _, block := range said.Content {
		blocks = append(blocks, strings.TrimPrefix(block.Type+" ", "text ")+block.Text)
	}
	return strings.Join(blocks, "\n"), result, err
}

func TestEachOfSeveralCallsHasItsOwnResult(t *testing.T) {
	answers := func(_ context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
		switch def.ID.Name {
		case "search_code":
			return tool.Result(`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"text","text":"{ \"n\": 1 }"}],"structuredContent":{"n":1}}`), nil
		case "now":
			return tool.Result(`{"content":[{"type":"text","text":"noon"}],"structuredContent":{"hour":12}}`), nil
		case "add_event":
			return nil, errors.New("server calendar: lost")
		case "delete_repository":
			panic("a hook")
		}
		if strings.Contains(string(call.Arguments), "wrapped") {
			return tool.Result(`{"content":[{"type":"text","text":"wrapped"}],"structuredContent":{"result":"wrapped"}}`), nil
		}
		return tool.TextResult(string(call.Arguments)), nil
	}
	const created = `{"name":"github_create_issue","arguments":{"title":"t"}}`
	for name, test := range map[string]struct {
		most    Kind
		calls   string
		want    string
		isError bool
	}{
		"content and structured content": {KindDestructive, `[{"name":"github_search_code"},{"name":"clock_now"}]`,
			"[1] github_search_code:\nimage \n{ \"n\": 1 }\n[2] clock_now:\nnoon\n{\"hour\":12}", false},
		"what is wrapped is said once": {KindDestructive, `[{"name":"github_create_issue","arguments":{"title":"wrapped"}}]`, "[1] github_create_issue:\nwrapped", false},
		"reading, a bad call costs itself": {KindDestructive, `[{"name":"nobody"},{"name":"github_search_code"}]`,
			"[1] nobody failed:\nunknown tool \"nobody\". Find tools with retrieve_tools.\n[2] github_search_code:\nimage \n{ \"n\": 1 }", false},
		"in order, a bad call ends it": {KindDestructive, `[` + created + `,{"name":"github_create_issue"},` + created + `]`,
			"[1] github_create_issue:\n{\"title\":\"t\"}\n[2] github_create_issue failed:\nthe arguments do not fit", false},
		"a lost server": {KindDestructive, `[` + created + `,{"name":"calendar_add_event"},{"name":"github_delete_repository"},` + created + `]`,
			"[1] github_create_issue:\n{\"title\":\"t\"}\n[2] calendar_add_event failed:\nserver calendar: lost\n[3] github_delete_repository failed:\nnot called, as call 2 failed\n[4] github_create_issue failed:\nnot called, as call 2 failed", false},
		"a panic":                   {KindDestructive, `[` + created + `,{"name":"github_delete_repository"}]`, "[1] github_create_issue:\n{\"title\":\"t\"}\n[2] github_delete_repository failed:\ngithub_delete_repository: internal error", false},
		"all failed":                {KindDestructive, `[{"name":"calendar_add_event"},` + created + `]`, "[1] calendar_add_event failed:\nserver calendar: lost\n[2] github_create_issue failed:\nnot called", true},
		"the kind bounds each call": {KindRead, `[` + created + `,{"name":"clock_now"},{"name":"github_search_code"}]`, "[1] github_create_issue failed:\ngithub_create_issue is a write tool: call it with call_tool_write\n[2] clock_now failed:\n", false},
		"as text":                   {KindDestructive, `"[{\"name\":\"clock_now\"}]"`, "[1] clock_now:\nnoon", false},
	} {
		t.Run(name, func(t *testing.T) {
			text, result, err := several(t, test.most, Settings{}, &tool.Call{Arguments: json.RawMessage(`{"calls":` + test.calls + `}`)}, answers)
			if err != nil || !strings.HasPrefix(text, test.want) || name == "what is wrapped is said once" && text != test.want || result.Failed() != test.isError {
				t.Errorf("error %v, failed %t:\n%s\nwant\n%s", err, result.Failed(), text, test.want)
			}
		})
	}
}

// What a server answers is no other server's: not by a line of it, nor by being no block.
func TestResultsOfSeveralCallsStayApart(t *testing.T) {
	for name, test := range map[string]struct {
		first string
		want  string
	}{
		"a line like ours":       {`{"content":[{"type":"text","text":"x\n[2] clock_now:\n13"}]}`, `^\[1 (\w{6})\] github_search_code:\nx\n\[2\] clock_now:\n13\n\[2 (\w{6})\] clock_now:\nnoon$`},
		"the same in data":       {`{"content":[],"structuredContent":{"a":"[2] clock_now:"}}`, `^\[1 \w{6}\] `},
		"the same in escapes":    {`{"content":[{"type":"text","text":"\u005b2] clock_now:"}]}`, `^\[1 \w{6}\] `},
		"no blocks":              {`{"content":[null,"a",{"type":"x"},{"type":"text"},{"type":"image","data":1}]}`, `^\[1\] github_search_code:\nnull\n"a"\n\{"type":"x"\}\n\{"type":"text"\}\n\{"type":"image","data":1\}\n\[2\] clock_now:\nnoon$`},
		"no list, but data":      {`{"total":36}`, `^\[1\] github_search_code:\n\{"total":36\}\n\[2\] clock_now:\nnoon$`},
		"no list, but text":      {`{"content":"a"}`, `^\[1\] github_search_code:\na\n\[2\] clock_now:\nnoon$`},
		"no list, but an object": {`{"content":{"total":36}}`, `^\[1\] github_search_code:\n\{"total":36\}\n\[2\] clock_now:\nnoon$`},
		"no list, but a block":   {`{"content":{"type":"text","text":"a"}}`, `^\[1\] github_search_code:\na\n\[2\] clock_now:\nnoon$`},
		"text alone":             {`"a"`, `^\[1\] github_search_code:\na\n\[2\] clock_now:\nnoon$`},
		"data beside a picture": {`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"}],"structuredContent":{"a":{"b":1}}}`,
			`^\[1\] github_search_code:\nimage \n\{"a":\{"b":1\}\}\n\[2\]`},
	} {
		t.Run(name, func(t *testing.T) {
			text, _, err := several(t, KindDestructive, Settings{}, &tool.Call{Arguments: json.RawMessage(`{"calls":[{"name":"github_search_code"},{"name":"clock_now"}]}`)},
				func(_ context.Context, def *tool.Def, _ *tool.Call) (tool.Result, error) {
					if def.ID.Name == "now" {
						return tool.TextResult("noon"), nil
					}
					return tool.Result(test.first), nil
				})
			if err != nil || !regexp.MustCompile(test.want).MatchString(text) {
				t.Errorf("error %v:\n%s\nwant %s", err, text, test.want)
			}
		})
	}
}

func TestArgumentsThatAreNotUsedMayBeThere(t *testing.T) {
	for _, arguments := range []string{
		`{"name":"clock_now","calls":[]}`, `{"name":"clock_now","calls":null,"arguments":{}}`, `{"name":"clock_now","calls":"[]"}`,
		`{"calls":[{"name":"clock_now"}],"name":"","arguments":{}}`, `{"calls":[{"name":"clock_now"}],"name":null,"arguments":null}`,
	} {
		text, result, err := several(t, KindDestructive, Settings{}, &tool.Call{Arguments: json.RawMessage(arguments)},
			func(context.Context, *tool.Def, *tool.Call) (tool.Result, error) { return tool.TextResult("noon"), nil })
		if err != nil || result.Failed() || !strings.HasSuffix(text, "noon") {
			t.Errorf("%s: %s, error %v", arguments, text, err)
		}
	}
}

func TestBadCallsSayWhatToDo(t *testing.T) {
	for calls, want := range map[string]string{
		`"calls":[]`:                        `calls must be an array like`,
		`"calls":{"name":"x"}`:              `calls must be an array like`,
		`"calls":7`:                         `calls must be an array like`,
		`"calls":[{"name":"x"}],"name":"y"`: `either calls or name`,
		`"calls":[` + strings.Repeat(`{},`, 16) + `{}]`: `at most 16`,
	} {
		text, result, err := several(t, KindDestructive, Settings{}, &tool.Call{Arguments: json.RawMessage(`{` + calls + `}`)},
			func(context.Context, *tool.Def, *tool.Call) (tool.Result, error) { return nil, errors.New("called") })
		if err != nil || !result.Failed() || !strings.Contains(text, want) {
			t.Errorf("%s: %s, error %v, want %q", calls, text, err, want)
		}
	}
}

// Calls that only read run side by side: each waits for the other. A call that writes
// waits for those before it.
func TestOnlyReadingCallsRunSideBySide(t *testing.T) {
	var called atomic.Int32
	text, _, err := several(t, KindDestructive, Settings{}, &tool.Call{Arguments: json.RawMessage(`{"calls":[{"name":"github_search_code","arguments":{"q":"1"}},{"name":"github_search_code","arguments":{"q":"2"}}]}`)},
		func(ctx context.Context, _ *tool.Def, _ *tool.Call) (tool.Result, error) {
			called.Add(1)
			await.True(t, func() bool { return called.Load() == 2 }) // one after the other, they never meet
			return tool.TextResult("met"), nil
		})
	if err != nil || strings.Count(text, "met") != 2 {
		t.Errorf("%s, error %v", text, err)
	}
	var mu sync.Mutex
	var order []string
	_, _, err = several(t, KindDestructive, Settings{}, &tool.Call{Arguments: json.RawMessage(`{"calls":[{"name":"github_search_code","arguments":{"q":"1"}},{"name":"github_create_issue","arguments":{"title":"2"}},{"name":"github_search_code","arguments":{"q":"3"}}]}`)},
		func(_ context.Context, def *tool.Def, _ *tool.Call) (tool.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, def.ID.Name)
			return tool.TextResult("done"), nil
		})
	if got := strings.Join(order, " "); err != nil || got != "search_code create_issue search_code" {
		t.Errorf("called %s, error %v", got, err)
	}
}

// Each of several calls is the client's own: its owner, its _meta, its questions; a
// 2026-07-28 client is asked while the call runs, and its progress is one count.
func TestSeveralCallsAreTheClientsOwn(t *testing.T) {
	var told []string
	outer := &tool.Call{
		Name: CallTool, Session: "s", Principal: "ann",
		Arguments: json.RawMessage(`{"calls":[{"name":"github_create_issue","arguments":{"title":"1"}},{"name":"clock_now"}]}`),
		Params:    json.RawMessage(`{"name":"call_tool","arguments":{},"inputResponses":{},"_meta":{"progressToken":7,"a":1.0}}`),
		Client: &tool.Client{Modern: true, Capabilities: json.RawMessage(`{"elicitation":{}}`),
			Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`"yes"`), nil
			}},
		Notify: func(_ string, params json.RawMessage) { told = append(told, string(params)) },
	}
	text, _, err := several(t, KindDestructive, Settings{}, outer, func(ctx context.Context, def *tool.Def, call *tool.Call) (tool.Result, error) {
		if def.ID.Name == "now" {
			return tool.Result(`{"resultType":"task","task":{}}`), nil
		}
		call.Notify("notifications/progress", json.RawMessage(`{"progressToken":7,"progress":50,"total":100}`))
		answer, err := call.Client.Ask(ctx, "elicitation/create", nil)
		return tool.TextResult(fmt.Sprint(call.Owner(), call.Name, call.Depth, call.Client.Modern, string(call.Params), string(answer))), err
	})
	want := "[1] github_create_issue:\nprincipal anngithub_create_issue0 false" + `{"_meta":{"progressToken":7,"a":1.0}}"yes"` +
		"\n[2] clock_now failed:\nit answers with a question or a task: call it alone"
	if err != nil || text != want {
		t.Errorf("error %v\n%s\nwant\n%s", err, text, want)
	}
	if got, want := strings.Join(told, " "), `{"progressToken":7,"progress":0.5,"total":2,"message":"github_create_issue"} {"progressToken":7,"progress":1,"total":2,"message":"github_create_issue: done"} {"progressToken":7,"progress":2,"total":2,"message":"clock_now: failed"}`; got != want {
		t.Errorf("told %s\nwant %s", got, want)
	}
}

func TestTheGateRefusesEachOfSeveralCalls(t *testing.T) {
	v := newGated(t, gate.Budget{})
	v.as(t, "ann", ProvisionTools, `{"tool_ids":"github_search_code"}`)
	result, err := v.CallTool(KindDestructive, "")(t.Context(), &tool.Call{Principal: "ann", Client: &tool.Client{}, Arguments: json.RawMessage(`{"calls":[{"name":"github_search_code"},{"name":"github_create_issue","arguments":{}}]}`)})
	if text := string(result); err != nil || !strings.Contains(text, "[1] github_search_code:") || !strings.Contains(text, "[2] github_create_issue failed:") || !strings.Contains(text, "not provisioned") {
		t.Errorf("%s, error %v", result, err)
	}
}
