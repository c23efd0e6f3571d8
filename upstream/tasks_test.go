package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// newTasked is a server that answers calls with the task that their tool is named
// after, and knows every task.
func newTasked(t testing.TB) *modernHTTP {
	m := newModernHTTP(t)
	m.answers(func(method string, params json.RawMessage) string {
		if method == "tools/call" {
			if !strings.Contains(string(params), `"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0}}`) {
				return `!{"code":-32021,"message":"no tasks"}`
			}
			return `{"resultType":"task","taskId":"t/` + rawjson.Text(jsonMember(params, "name")) + `","status":"working","x":1.0}`
		}
		return `{"resultType":"complete","taskId":` + string(jsonMember(params, "taskId")) + `,"method":"` + method + `","asked":` + string(jsonMember(params, "taskId")) + `}`
	})
	return m
}

// tasked is a call of a client that takes tasks.
func tasked(principal, name string) *tool.Call {
	client := &tool.Client{Key: "c", Modern: true, Capabilities: json.RawMessage(`{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0}}}`)}
	quoted, _ := json.Marshal(name)
	return &tool.Call{Client: client, Principal: principal, Name: name, Params: json.RawMessage(`{"taskId":` + string(quoted) + `}`)}
}

// makeTask makes the task of a tool and returns its name.
func makeTask(t testing.TB, p *Pool, server, principal, name string) string {
	t.Helper()
	created, err := p.Call(t.Context(), def(server, name), tasked(principal, ""))
	id := rawjson.Text(jsonMember(json.RawMessage(created), "taskId"))
	quoted, _ := json.Marshal(id)
	if want := `{"resultType":"task","taskId":` + string(quoted) + `,"status":"working","x":1.0}`; err != nil || id == "" || string(created) != want {
		t.Fatalf("created %s, %v; want %s", created, err, want)
	}
	return id
}

func TestATaskIsFoundAgainAtItsServer(t *testing.T) {
	m := newTasked(t)
	s := m.settings()
	s.Name = "my server"
	p := newPool(t, s)
	for _, principal := range []string{"", "ann"} {
		name := makeTask(t, p, "my server", principal, "of "+principal)
		if before, after, _ := strings.Cut(name, "/"); before != "my%20server" || after == "t/of "+principal {
			t.Errorf("%s: the name is %s", principal, name)
		}
		if again := makeTask(t, p, "my server", principal, "of "+principal); again != name {
			t.Errorf("%s: the task is called %s, and then %s", principal, name, again)
		}
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			got, err := p.Task(t.Context(), method, tasked(principal, name))
			if want := `{"resultType":"complete","taskId":"` + name + `","method":"` + method + `","asked":"t/of ` + principal + `"}`; err != nil || string(got) != want {
				t.Errorf("%s: %s, %v; want %s", method, got, err, want)
			}
			m.mu.Lock()
			header := m.headers[len(m.headers)-1]
			m.mu.Unlock()
			if header.Get("Mcp-Method") != method || header.Get("Mcp-Name") == "" || strings.Contains(header.Get("Mcp-Name"), "!") {
				t.Errorf("%s: headers %v", method, header)
			}
		}
	}
}

// A task of a principal is nobody else's: neither by its name nor by the server's
// ID of it, nor by a name made up from both. The server does not hear of it.
func TestATaskOfAPrincipalIsNobodyElses(t *testing.T) {
	m, other := newTasked(t), newTasked(t)
	s, o := m.settings(), other.settings()
	s.Name, o.Name = "s", "o"
	p := newPool(t, s, o)
	anns := makeTask(t, p, "s", "ann", "1")
	bobs := makeTask(t, p, "s", "bob", "2")
	nobodys := makeTask(t, p, "s", "", "3")
	at := func(name, id string) string { // the proof of a name, with another ID
		return name[:strings.LastIndex(name, "!")+1] + id
	}
	for _, test := range []struct{ name, principal, task string }{
		{"another's, by its name", "bob", anns},
		{"another's, by its ID", "bob", "s/t/1"},
		{"another's, by its name without a proof", "bob", "s/!!t/1"},
		{"another's, with one's own proof", "bob", at(bobs, "t/1")},
		{"another's, at another server", "bob", "o" + strings.TrimPrefix(anns, "s")},
		{"one's own, with another's proof", "bob", at(anns, "t/2")},
		{"one's own, at another server", "bob", "o" + strings.TrimPrefix(bobs, "s")},
		{"one's own, by its ID", "ann", "s/t/1"},
		{"one's own, with a proof cut short", "ann", strings.Replace(anns, "!", "!x", 1)},
		{"nobody's, to a principal", "ann", nobodys},
		{"nobody's, by its ID, to a client that was not told its name", "", "s/t/3"},
		{"nobody's, with the proof of another", "", at(bobs, "t/3")},
		{"a principal's, to nobody", "", anns},
		{"a principal's, to nobody, by its ID", "", "s/t/1"},
		{"no name", "", ""},
		{"no server", "", "t/1"},
		{"an unknown server", "", "other/t/1"},
		{"an unknown server, of a principal", "ann", "other" + strings.TrimPrefix(anns, "s")},
		{"no escaped name", "", "%zz/t"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
				_, err := p.Task(t.Context(), method, tasked(test.principal, test.task))
				var rpc *tool.RPCError
				if !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams || rpc.Message != "there is no such task" {
					t.Errorf("%s of %q: %v", method, test.task, err)
				}
				if m.count(method) > 0 || other.count(method) > 0 {
					t.Errorf("%s of %q has reached a server", method, test.task)
				}
			}
		})
	}
	for name, principal := range map[string]string{anns: "ann", bobs: "bob", nobodys: ""} {
		if _, err := p.Task(t.Context(), "tasks/get", tasked(principal, name)); err != nil {
			t.Errorf("%s of %q: %v", name, principal, err)
		}
	}
	if _, err := newPool(t, s).Task(t.Context(), "tasks/get", tasked("ann", anns)); err == nil {
		t.Error("a proof of one pool is good for another")
	}
}

// An ID that a server gives a second time is the last one's, whom it gave it to.
func TestATaskThatAServerGivesAgain(t *testing.T) {
	s := newTasked(t).settings()
	p := newPool(t, s)
	makeTask(t, p, s.Name, "ann", "1")
	name := makeTask(t, p, s.Name, "", "1")
	if _, err := p.Task(t.Context(), "tasks/get", tasked("", name)); err != nil {
		t.Errorf("it is not the last one's: %v", err)
	}
}

// What is remembered of tasks is bounded.
func TestTasksAreForgotten(t *testing.T) {
	names := newTasks([32]byte{1})
	for i := range maxTasks + 2 {
		names.made("s", fmt.Sprint(i), "ann")
	}
	if len(names.owners) != maxTasks || len(names.order) != maxTasks {
		t.Errorf("%d and %d are remembered, want %d", len(names.owners), len(names.order), maxTasks)
	}
	if names.isOfAnother("s", "1", "bob") || !names.isOfAnother("s", "2", "bob") || names.isOfAnother("s", "2", "ann") {
		t.Error("not the oldest are forgotten")
	}
}

// What a server says of a task goes to the call that it says it with, under the
// name that its caller knows, unless the task is another principal's.
func TestNotificationsAboutTasks(t *testing.T) {
	m := newTasked(t)
	s := m.settings()
	p := newPool(t, s)
	anns, bobs := makeTask(t, p, s.Name, "ann", "1"), makeTask(t, p, s.Name, "bob", "2")
	var mu sync.Mutex
	var told []string
	call := tasked("ann", anns)
	call.Notify = func(method string, params json.RawMessage) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, method+string(params))
	}
	f := begin(t.Context(), call, &limits{call: s.CallTimeout})
	one := p.enter(s.Name)
	defer one.uses.exit()
	c := must.Get(one.main.connect(t.Context()))(t)
	id := c.Expect().ID
	c.calls.add(id, f)
	for _, said := range []struct {
		stream int64
		task   string
	}{{0, "t/1"}, {id, "t/2"}, {id, "t/1"}, {id + 1, "t/1"}, {id, "t/new"}} {
		c.Notified(said.stream, "notifications/tasks", json.RawMessage(`{"taskId":"`+said.task+`","status":"completed"}`))
	}
	c.calls.remove(id)
	f.end()
	want := []string{
		`notifications/tasks{"taskId":"` + anns + `","status":"completed"}`,
		`notifications/tasks{"taskId":"` + p.env.tasks.name(s.Name, "t/new", "ann") + `","status":"completed"}`,
	}
	if !slices.Equal(told, want) {
		t.Errorf("ann was told %q, want %q; bob's is %s", told, want, bobs)
	}
}
