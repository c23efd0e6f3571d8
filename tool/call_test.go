package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

// Permissions, budgets and kept results go by the owner.
func TestTheOwnerOfACall(t *testing.T) {
	for _, test := range []struct {
		call    tool.Call
		owner   string
		session string // "" where the owner is none
	}{
		{tool.Call{Principal: "alice", Session: "s"}, "principal alice", ""},
		{tool.Call{Session: "s"}, "session s", "s"},
		{tool.Call{}, tool.Anonymous, ""},
		{tool.Call{Principal: "session s"}, "principal session s", ""},
	} {
		session, is := tool.SessionOf(test.call.Owner())
		if got := test.call.Owner(); got != test.owner || session != test.session || is != (test.session != "") {
			t.Errorf("%+v: %q, session %q %v", test.call, got, session, is)
		}
	}
}

// A call within a call is for the same client, and takes nothing of the outer one but its _meta.
func TestInnerCalls(t *testing.T) {
	outer := tool.Call{
		Kind: tool.KindPrompt, Name: "outer", Arguments: json.RawMessage(`{"a":1}`), Params: json.RawMessage(`{"name":"outer","requestState":"x","_meta":{"progressToken":7}}`),
		Session: "s", Principal: "alice", Client: &tool.Client{Key: "k", Modern: true}, Depth: tool.MaxDepth - 1, Local: true,
	}
	inner := must.Get(outer.Inner("inner", json.RawMessage(`{"b":2}`)))(t)
	if inner.Kind != tool.KindTool || inner.Name != "inner" || string(inner.Arguments) != `{"b":2}` || string(inner.Params) != `{"_meta":{"progressToken":7}}` ||
		inner.Session != "s" || inner.Principal != "alice" || inner.Client.Key != "k" || inner.Client.Modern || !outer.Client.Modern || !inner.Local {
		t.Errorf("%+v of %+v", inner, inner.Client)
	}
	if _, err := inner.Inner("deeper", nil); !errors.Is(err, tool.ErrTooDeep) {
		t.Errorf("deeper than %d: %v", tool.MaxDepth, err)
	}
	if inner, err := (&tool.Call{}).Inner("a", nil); err != nil || inner.Params != nil || inner.Client != nil || inner.Depth != 1 {
		t.Errorf("%+v, %v", inner, err)
	}
}

func TestWhatAClientCan(t *testing.T) {
	with := func(capabilities string) *tool.Client {
		return &tool.Client{Capabilities: json.RawMessage(capabilities)}
	}
	for _, test := range []struct {
		client            *tool.Client
		answers, elicited bool
	}{
		{nil, false, false}, {with(``), false, false}, {with(`{"tools":{}}`), false, false}, {with(`{"roots":{}}`), true, false}, {with(`{"sampling":{}}`), true, false},
		{with(`{"elicitation":{}}`), true, true},
	} {
		if test.client.Answers() != test.answers || test.client.Can(tool.CapabilityElicitation) != test.elicited {
			t.Errorf("%+v: answers %v, can %v", test.client, test.client.Answers(), test.client.Can(tool.CapabilityElicitation))
		}
	}
	tasks := with(`{ "roots":{},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{"c":1}}}`)
	if got := string(tasks.WithoutTasks().Capabilities); got != `{ "roots":{},"extensions":{"a/b":{"c":1}}}` || !strings.Contains(string(tasks.Capabilities), "tasks") {
		t.Errorf("without tasks: %s", got)
	}
	if other := with(`{"roots":{}}`); other.WithoutTasks() != other || (*tool.Client)(nil).WithoutTasks() != nil {
		t.Error("who knows no tasks is another client")
	}
}

func TestValuesOfResults(t *testing.T) {
	for result, want := range map[string]string{
		`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1.0}}`:                       `{"a":1.0}`,
		`{"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}],"structuredContent":null}`: `"x\ny"`,
		`{"content":[{"type":"text","text":"x"},{"type":"image", "data":""}]}`:                         `[{"type":"text","text":"x"},{"type":"image", "data":""}]`,
		`{"content":[]}`: `""`,
	} {
		if got := string(tool.Result(result).Value()); got != want {
			t.Errorf("%s: %s, want %s", result, got, want)
		}
	}
	for result, want := range map[string]string{string(tool.TextResult("a\"b")): `{"content":[{"type":"text","text":"a\"b"}]}`, string(tool.ErrorResult("a")): `{"content":[{"type":"text","text":"a"}],"isError":true}`} {
		if result != want || tool.Result(result).Failed() != strings.Contains(want, "isError") {
			t.Errorf("%s, want %s", result, want)
		}
	}
}

func TestArgumentsOfPromptsAreTexts(t *testing.T) {
	if got := string(tool.TextArguments(json.RawMessage(`{"a":"x\u0020","b":5.0,"c":null,"d":{"e":[true]}}`))); got != `{"a":"x\u0020","b":"5.0","d":"{\"e\":[true]}"}` {
		t.Error(got)
	}
}

func TestErrorsOfServersKeepTheirBytes(t *testing.T) {
	for want, e := range map[string]tool.RPCError{
		`{"code":1.0, "x":2}`:                    {Code: 1, Message: "m", Raw: json.RawMessage(`{"code":1.0, "x":2}`)},
		`{"code":-32602,"message":"m","data":1}`: {Code: tool.CodeInvalidParams, Message: "m", Data: json.RawMessage(`1`)},
		`{"code":1,"message":"m"}`:               {Code: 1, Message: "m", Data: json.RawMessage(`{`)},
	} {
		if got := string(e.JSON()); got != want || e.Error() != "m (code "+strings.Trim(strings.SplitN(strings.TrimPrefix(want, `{"code":`), ",", 2)[0], ".0")+")" {
			t.Errorf("%s, %s; want %s", got, e.Error(), want)
		}
	}
}

// Lists have the server's own bytes under the exposed name.
func TestADefinitionIsListedUnderItsExposedName(t *testing.T) {
	def := &tool.Def{ID: tool.ID{Server: "s", Name: "add"}, Raw: json.RawMessage(`{ "x":1.0,"name":"add" }`), Legacy: json.RawMessage(`{"name":"add"}`)}
	renamed, same := tool.Tool{Name: "s_add", Def: def}, tool.Tool{Name: "add", Def: def}
	plain := tool.Tool{Name: "add", Def: &tool.Def{ID: def.ID, Raw: def.Raw}}
	for got, want := range map[string]string{
		string(renamed.Listed()): `{ "x":1.0,"name":"s_add" }`, string(renamed.ListedTo(false)): `{"name":"s_add"}`, string(same.Listed()): string(def.Raw), string(same.ListedTo(false)): string(def.Legacy),
		string(plain.ListedTo(false)): string(def.Raw),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	cut := &tool.Def{Raw: def.Raw, Whole: def, Sent: json.RawMessage(`{"sent":1}`)}
	if cut.Full() != def || def.Full() != def || string(cut.AsSent()) != `{"sent":1}` || string(def.AsSent()) != string(def.Raw) {
		t.Error("the whole definition, or what was sent, is another")
	}
	all := tool.Of([]*tool.Def{def, cut}, func(*tool.Def) tool.Handler { return nil })
	if len(all) != 2 || all[1].Def != cut || !tool.Same(all, all) || tool.Same(all, all[:1]) || tool.Same(all, slices.Clone(all)) || tool.Same(nil, nil) {
		t.Errorf("%v", all)
	}
	if id := (tool.ID{Server: "s", Name: "http://u:p@h/?key=x", Kind: tool.KindResource}); strings.Contains(id.Shown(), "u:p") || strings.Contains(id.Shown(), "key=x") || !strings.HasPrefix(id.Shown(), "s.http://") {
		t.Errorf("shown: %s", id.Shown())
	}
	if def.ID.Shown() != "s.add" || tool.KindTool.String() != "tool" || tool.KindTemplate.String() != "template" {
		t.Errorf("%s, %s", def.ID.Shown(), tool.KindTool)
	}
	for a, want := range map[tool.Annotations]bool{{}: false, {ReadOnly: true}: true, {Idempotent: true}: true, {Destructive: true}: false} {
		if a.Repeatable() != want {
			t.Errorf("%+v is repeatable: %v", a, !want)
		}
	}
}

func TestTheTimeOfAToolEnds(t *testing.T) {
	now := time.Now()
	for until, over := range map[time.Time]bool{{}: false, now.Add(1): false, now: true, now.Add(-1): true} {
		if got := (tool.Provisioned{Until: until}).Over(now); got != over {
			t.Errorf("until %v at %v: over %v", until, now, got)
		}
	}
}

// Calls within a call count as one progress, which never falls.
func TestProgressOfSeveralCalls(t *testing.T) {
	var told []string
	call := &tool.Call{Params: json.RawMessage(`{"_meta":{"progressToken":"t"}}`), Notify: func(method string, params json.RawMessage) { told = append(told, method+" "+string(params)) }}
	p := tool.NewProgress(call, 2)
	one, other := p.Part("one"), p.Part("other")
	notify := one.Notify(call.Notify)
	notify("notifications/progress", json.RawMessage(`{"progress":1,"total":4,"message":"begun"}`))
	notify("notifications/progress", json.RawMessage(`{"progress":1,"total":5}`)) // it falls
	notify("notifications/progress", json.RawMessage(`{"progress":3}`))           // of nobody knows how much
	notify("notifications/progress", json.RawMessage(`{"progress":9,"total":4}`)) // the rest is the answer
	notify("notifications/message", json.RawMessage(`{"x":1.0}`))
	other.Finish(errors.New("x"))
	one.Finish(nil)
	one.Finish(nil)
	want := []string{
		`notifications/progress {"progressToken":"t","progress":0.25,"total":2,"message":"one: begun"}`, `notifications/progress {"progressToken":"t","progress":0.99,"total":2,"message":"one"}`,
		`notifications/message {"x":1.0}`, `notifications/progress {"progressToken":"t","progress":1.99,"total":2,"message":"other: failed"}`,
		`notifications/progress {"progressToken":"t","progress":2,"total":2,"message":"one: done"}`,
	}
	if !slices.Equal(told, want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	if tool.NewProgress(&tool.Call{Params: call.Params}, 1) != nil || tool.NewProgress(&tool.Call{Notify: call.Notify}, 1) != nil || one.Notify(nil) != nil {
		t.Error("who asked for no progress is told some")
	}
	(*tool.Progress)(nil).Part("x").Finish(nil)
}

func TestAPanicIsAnError(t *testing.T) {
	call := &tool.Call{Name: "a"}
	if _, err := tool.Safely(t.Context(), func(context.Context, *tool.Call) (tool.Result, error) { panic("secret") }, call); err == nil || err.Error() != "a: internal error" {
		t.Error(err)
	}
	if result, err := tool.Safely(t.Context(), func(_ context.Context, c *tool.Call) (tool.Result, error) { return tool.TextResult(c.Name), nil }, call); err != nil || !strings.Contains(string(result), `"a"`) {
		t.Errorf("%s, %v", result, err)
	}
}
