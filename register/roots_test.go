package register

import (
	"strings"
	"testing"
)

// However many servers ask, over however many calls.
func TestAClientThatTellsOfItsRootsIsAskedForThemOnce(t *testing.T) {
	const tells = `{"roots":{"listChanged":true}}`
	transports(t, tells, setup{}, func(t *testing.T, live *Live, c *conversation) {
		asker(t, live)
		messages := c.post(ask(1, "roots/list", `{}`))
		c.post(reply(idOf(await(t, messages, "roots/list")), `{"roots":[{"uri":"file:///one"}]}`))
		await(t, messages, `"id":1`)
		if got := await(t, c.post(ask(2, "roots/list", `{}`)), `"id":2`); !strings.Contains(got, "file:///one") {
			t.Errorf("the second answer is %s", got)
		}
		c.post(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		messages = c.post(ask(3, "roots/list", `{}`))
		c.post(reply(idOf(await(t, messages, "roots/list")), `{"roots":[{"uri":"file:///two"}]}`))
		if got := await(t, messages, `"id":3`); !strings.Contains(got, "file:///two") {
			t.Errorf("the answer after a change is %s", got)
		}
	})
}
