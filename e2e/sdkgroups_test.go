//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// The TypeScript SDK's client declares groups and reads those of real servers, in both eras.
func TestSDKGroups(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		for _, http := range []bool{false, true} {
			t.Run(fmt.Sprintf("2026-07-28 %t, HTTP %t", modern, http), func(t *testing.T) {
				h := newHouse(t, upstreams(t, "everything", "memory"), map[string]any{"groups": "on", "direct_below": 1_000_000, "pinned": []string{"everything_get-sum"}})
				must.Get(h.output(t, "reindex"))(t)
				target := map[string]any{"modern": modern}
				if http {
					target["url"], _ = h.serveHTTP(t)
				} else {
					maps.Copy(target, h.stdio(t))
				}
				client := exec.CommandContext(t.Context(), node(t), must.Get(filepath.Abs("../testdata/node/groups.mjs"))(t), string(must.Get(json.Marshal(target))(t)))
				client.Env, client.Stderr = h.env, newLog(t, "the client")
				var seen struct {
					Declared map[string]any
					Listed   []string
					Groups   map[string]struct {
						Description string
						Tools       []string
					}
					Unknown int
					Said    string
				}
				must.Do(t, json.Unmarshal(must.Get(client.Output())(t), &seen))
				everything, memory := seen.Groups["everything"].Tools, seen.Groups["memory"]
				if len(seen.Groups) != 2 || seen.Declared["io.modelcontextprotocol/groups"] == nil || seen.Unknown != -32002 || seen.Said != "Echo: hello" ||
					!slices.Equal(seen.Listed, []string{"retrieve_tools", "call_tool", "everything_get-sum"}) ||
					!slices.Contains(everything, "everything_echo") || slices.Contains(everything, "everything_get-sum") ||
					!slices.Contains(memory.Tools, "memory_read_graph") || !strings.Contains(memory.Description, "graph") {
					t.Errorf("the client saw %+v", seen)
				}
			})
		}
	}
}
