//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// What docs/gating.md shows of a session is what a client gets: each block has the
// arguments of a call and its answer. A member that is not shown may be there.
func TestTheDocumentedSession(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile("../docs/gating.md"))(t)
	text := strings.ReplaceAll(string(page), "\r\n", "\n")
	config := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(text)
	calls := regexp.MustCompile("(?ms)^```json ([a-z_]+)\n(.*?)^```$").FindAllStringSubmatch(text, -1)
	if config == nil || len(calls) < 9 {
		t.Fatalf("only %d calls were found: the test reads past them", len(calls))
	}
	home := t.TempDir()
	yaml := config[1] + "mcp_servers:\n  clock: {command: toolfinch, args: [demo-server, clock, demo]}\n  math: {command: toolfinch, args: [demo-server, math, demo]}\n"
	must.Do(t, os.WriteFile(filepath.Join(home, "toolfinch.yaml"), []byte(yaml), 0o600))
	env := append(os.Environ(), "HOME="+home, "MCPPROXY_CONFIG=toolfinch.yaml", "MCPPROXY_DATA_DIR="+filepath.Join(home, "data"), "MCPPROXY_MODELS_DIR="+filepath.Join(home, "models"))
	run := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(await.Context(t), program(t), args...)
		cmd.Dir, cmd.Env = home, env
		return cmd
	}
	if out, err := run("reindex").CombinedOutput(); err != nil {
		t.Fatalf("reindex: %v\n%s", err, out)
	}
	serve := run("serve")
	c := speakWith(t, serve)
	defer func() {
		_ = c.in.Close()
		if err := serve.Wait(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(method string, params any) (answer called) {
		t.Helper()
		given, err := json.Marshal(params)
		if err == nil {
			err = json.Unmarshal(c.ask(t, method, string(given)), &answer)
		}
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		return answer
	}
	ask("initialize", map[string]any{"protocolVersion": "2025-11-25", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "reader", "version": "1"}})
	for _, call := range calls {
		var arguments, want, got any
		shown := json.NewDecoder(strings.NewReader(call[2]))
		if err := errors.Join(shown.Decode(&arguments), shown.Decode(&want)); err != nil {
			t.Errorf("%s: %v", call[0], err)
			continue
		}
		answer := ask("tools/call", map[string]any{"name": call[1], "arguments": arguments})
		got = answer.text()
		if strings.HasPrefix(answer.text(), "{") {
			if err := json.Unmarshal([]byte(answer.text()), &got); err != nil {
				t.Error(err)
			}
		}
		if different := difference(got, want); different != "" {
			t.Errorf("%s %v answers %s\n%s", call[1], arguments, answer.text(), different)
		}
	}
}

// difference says where got has not all that want has, "" for nowhere. Times and
// scores only have to be there.
func difference(got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		object, _ := got.(map[string]any)
		for key, value := range want {
			own, there := object[key]
			switch {
			case !there:
				return key + " is missing"
			case key == "expires_at" || key == "score":
			default:
				if different := difference(own, value); different != "" {
					return key + ": " + different
				}
			}
		}
		return ""
	case []any:
		array, _ := got.([]any)
		if len(array) != len(want) {
			return fmt.Sprintf("there are %d, want %d", len(array), len(want))
		}
		for i := range want {
			if different := difference(array[i], want[i]); different != "" {
				return different
			}
		}
		return ""
	}
	if got != want {
		return fmt.Sprintf("%v, want %v", got, want)
	}
	return ""
}
