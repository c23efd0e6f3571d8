package proxy_test

import (
	"strings"
	"sync"
	"testing"
)

// Nobody knows that a server asks before it has asked for the first time. On stdio
// nothing says whose question it is, and every client gets its own even then.
func TestTheFirstQuestionsOfASharedServer(t *testing.T) {
	for _, tools := range [][]string{{"form"}, {"form", "sample", "roots"}} {
		t.Run(strings.Join(tools, " "), func(t *testing.T) {
			s := everythingScript(t, kind{stdio: true})
			p, url := openScripts(t, nil, s)
			var clients []*rawClient
			for i := range 6 {
				clients = append(clients, newClient(t, p, url, kind{modern: i%2 == 0}, can, reply))
			}
			var calls sync.WaitGroup
			for i, c := range clients {
				calls.Go(func() {
					got := c.call("tools/call", `{"name":"one_`+tools[i%len(tools)]+`"}`)
					if got.Result == nil || strings.Contains(got.raw, "cannot tell") || !strings.Contains(got.raw, `"answers":[{`) {
						t.Errorf("client %d: %.300s", i, got.raw)
					}
				})
			}
			calls.Wait()
		})
	}
}
