package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/upstream"
)

// A server that was never reached may offer anything; what the others offer it
// does not take away.
func TestWhatIsOfferedWhileAServerWasNeverReached(t *testing.T) {
	const tasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	up := newScript(t, "one", true, false)
	up.capabilities = `{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	up.list("tools", `{"name":"work","inputSchema":{"type":"object"}}`)
	up.on("tools/call", func(r *request) { r.result(`{"resultType":"task","taskId":"1","status":"working"}`) })
	up.on("tasks/get", func(r *request) { r.result(`{"resultType":"complete","taskId":"1","status":"working"}`) })
	gone := &script{settings: upstream.Settings{Name: "gone", Command: "toolfinch-test-no-such-program"}}
	p, url := openScripts(t, nil, up, gone)
	c := newClient(t, p, url, kind{modern: true, stdio: true}, tasks, reply)
	eventually(t, func() bool {
		return strings.Contains(string(part(part(c.ask("server/discover", `{}`).Result, "capabilities"), "extensions")), "tasks")
	})
	declared := part(c.ask("server/discover", `{}`).Result, "capabilities")
	for _, capability := range []string{"prompts", "resources", "completions", "logging"} {
		if part(declared, capability) == nil {
			t.Errorf("%s is not declared: %s", capability, declared)
		}
	}
	made := partText(c.ask("tools/call", `{"name":"one_work","arguments":{}}`).Result, "taskId")
	if got := c.ask("tasks/get", `{"taskId":"`+made+`"}`); made == "" || partText(got.Result, "taskId") != made {
		t.Errorf("tasks/get of %q: %s", made, got.raw)
	}
}
