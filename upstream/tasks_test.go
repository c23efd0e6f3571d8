//go:build unix

package upstream

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"toolfinch/tool"
)

func TestATaskIsFoundAgainAtItsServer(t *testing.T) {
	m := newModernHTTP(t)
	m.answers(func(method string, params json.RawMessage) string {
		if method == "tools/call" {
			if !strings.Contains(string(params), `"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0}}`) {
				return `!{"code":-32021,"message":"no tasks"}`
			}
			return `{"resultType":"task","taskId":"t/1","status":"working","x":1.0}`
		}
		return `{"resultType":"complete","taskId":"t/1","method":"` + method + `","asked":` + string(member(params, "taskId")) + `}`
	})
	s := m.settings()
	s.Name = "my server"
	p := newPool(t, s)
	client := &tool.Client{Key: "c", Modern: true, Capabilities: json.RawMessage(`{"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{"x":1.0}}}`)}
	created, err := p.Call(t.Context(), def("my server", "ask"), &tool.Call{Client: client})
	if want := `{"resultType":"task","taskId":"my%20server/t/1","status":"working","x":1.0}`; err != nil || string(created) != want {
		t.Fatalf("created %s, %v; want %s", created, err, want)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		got, err := p.Task(t.Context(), method, &tool.Call{Name: "my%20server/t/1", Params: json.RawMessage(`{"taskId":"my%20server/t/1"}`), Client: client})
		if want := `{"resultType":"complete","taskId":"my%20server/t/1","method":"` + method + `","asked":"t/1"}`; err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", method, got, err, want)
		}
		m.mu.Lock()
		header := m.headers[len(m.headers)-1]
		m.mu.Unlock()
		if header.Get("Mcp-Method") != method || header.Get("Mcp-Name") != "t/1" {
			t.Errorf("%s: headers %v", method, header)
		}
	}
	for _, id := range []string{"", "t/1", "other/t/1", "%zz/t"} {
		_, err := p.Task(t.Context(), "tasks/get", &tool.Call{Name: id, Client: client})
		var rpc *tool.RPCError
		if !errors.As(err, &rpc) || rpc.Code != tool.CodeInvalidParams {
			t.Errorf("task %q: %v, want an error about the parameters", id, err)
		}
	}
}
