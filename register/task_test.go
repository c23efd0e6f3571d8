package register

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"toolfinch/tool"
)

const withTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

func offersTasks(v *Served) { v.Declared.Tasks = true }

func TestTasksGoToWhoeverHasThem(t *testing.T) {
	settings := setup{
		Task: func(_ context.Context, method string, call *tool.Call) (tool.Result, error) {
			return tool.Result(`{"method":"` + method + `","task":"` + call.Name + `","params":` + string(call.Params[:len(`{"taskId":"up/1"`)]) + `}}`), nil
		},
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		newcomers(t, withTasks, settings, func(t *testing.T, live *Live, n *newcomer) {
			show(live, offersTasks)
			got := n.answer(1, method, `"taskId":"up/1"`)
			if want := `"method":"` + method + `","task":"up/1","params":{"taskId":"up/1"}`; !strings.Contains(got, want) {
				t.Errorf("%s: %s, want %s", method, got, want)
			}
			if found := n.answer(2, "server/discover", ""); !strings.Contains(found, `"extensions":{"io.modelcontextprotocol/tasks":{}}`) {
				t.Errorf("tasks are not declared: %s", found)
			}
		})
		newcomers(t, everything, settings, func(t *testing.T, live *Live, n *newcomer) {
			show(live, offersTasks)
			if got := n.answer(1, method, `"taskId":"up/1"`); !strings.Contains(got, `"code":-32021`) || !strings.Contains(got, `"requiredCapabilities":`+withTasks) {
				t.Errorf("%s of a client that knows no tasks: %s", method, got)
			}
		})
		newcomers(t, withTasks, settings, func(t *testing.T, _ *Live, n *newcomer) {
			if got := n.answer(1, method, `"taskId":"up/1"`); !strings.Contains(got, `"code":-32601`) {
				t.Errorf("%s where nobody has tasks: %s", method, got)
			}
			if found := n.answer(2, "server/discover", ""); strings.Contains(found, "tasks") {
				t.Errorf("tasks are declared: %s", found)
			}
		})
	}
}

func TestTasksAreOfOneEraAndNamedInTheHeader(t *testing.T) {
	live := newLive(t, setup{
		Task: func(context.Context, string, *tool.Call) (tool.Result, error) { return tool.Result(`{}`), nil },
	})
	show(live, offersTasks)
	url := serveHTTP(t, live)
	legacy := connect(t, url, "legacy")
	if got := legacy.messages(`{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"up/1"}}`)[0]; !strings.Contains(got, `"code":-32601`) {
		t.Errorf("a legacy client: %s", got)
	}
	n := &newcomer{t: t, url: url, capabilities: withTasks}
	for _, test := range []struct {
		header string
		status int
	}{{"up/1", http.StatusOK}, {"up/2", http.StatusBadRequest}, {"", http.StatusBadRequest}} {
		p := &peer{t: t, url: url}
		response := p.post(n.body(1, "tasks/get", `"taskId":"up/1"`), "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tasks/get", "Mcp-Name", test.header)
		response.Body.Close()
		if response.StatusCode != test.status {
			t.Errorf("Mcp-Name %q: %s, want %d", test.header, response.Status, test.status)
		}
	}
}
