//go:build unix

package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/tool"
	"toolfinch/upstream"
)

// Servers of both TypeScript SDKs drop what they send outside of a call before their stream is open: in ten fresh
// sessions of ten the first call is asked and logged all the same.
func TestTheFirstCallOfASessionLosesNothing(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("../testdata/node/outside.mjs")
	if err != nil {
		t.Fatal(err)
	}
	for _, sdk := range []string{"v1", "v2"} {
		t.Run(sdk, func(t *testing.T) {
			server := exec.CommandContext(t.Context(), node(t), path, sdk)
			out, err := server.StdoutPipe()
			if err == nil {
				err = server.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Wait() })
			port, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			settings := upstream.Settings{Name: "s", URL: "http://127.0.0.1:" + strings.TrimSpace(port) + "/mcp", ConnectTimeout: await.Bound, CallTimeout: await.Bound, AskTimeout: await.Bound}
			for n := range 10 {
				p := upstream.NewPool([]upstream.Settings{settings}, upstream.Options{})
				logged := 0
				call := &tool.Call{Name: "ask", Arguments: json.RawMessage(`{}`),
					Notify: func(method string, _ json.RawMessage) {
						if method == "notifications/message" {
							logged++
						}
					},
					Client: &tool.Client{Key: "a", Capabilities: json.RawMessage(`{"elicitation":{}}`),
						Ask: func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
							return json.RawMessage(`{"action":"accept","content":{"name":"Ada"}}`), nil
						}}}
				result, err := p.Call(t.Context(), &tool.Def{ID: tool.ID{Server: "s", Kind: tool.KindTool, Name: "ask"}}, call)
				if err != nil || !strings.Contains(string(result), "Ada") || logged != 1 {
					t.Errorf("session %d: %s, %v, %d log lines", n, result, err, logged)
				}
				_ = p.Close(t.Context())
			}
		})
	}
}
