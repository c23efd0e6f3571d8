package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/configs"
	"toolfinch/internal/await"
	"toolfinch/view"
)

// What a provider keeps of a conversation begins with the list of tools: it only grows at
// its end, by one change a search, and is the same in the next session.
func TestAListOnlyGrowsAtItsEnd(t *testing.T) {
	up := shop(t, "shop", "hat", "coat", "shoe")
	slow, listing := slowly(t, "slow")
	config := configOf(t, []*script{up, slow}, everything(view.Default, view.ExposureRetrieve))
	config.Pinned = []string{"shop_shoe"}
	p, url := startViews(t, "", config)
	eventually(t, func() bool { return len(toolsOf(t, p, view.Default)) == 3 })
	c := newClient(t, p, url, kind{}, `{}`, reply)
	const changed = "notifications/tools/list_changed"
	lists := func(c *rawClient) string {
		t.Helper()
		return strings.TrimSuffix(string(c.ask("tools/list", `{}`).Result), "]}")
	}
	first := lists(c)
	before := first
	grows := func(query, by string) {
		t.Helper()
		heard := len(c.got(changed))
		asked := c.begin("tools/call", toolCall("retrieve_tools", `{"query":"`+query+`","limit":1}`))
		eventually(t, func() bool { return len(c.got(changed)) > heard })
		now := lists(c)
		if added, is := strings.CutPrefix(now, before); !is || strings.Count(added, `"name"`) != 1 || !strings.Contains(added, `"`+by+`"`) {
			t.Errorf("after a search for %q the list is %s\nbefore it was %s", query, now, before)
		}
		before = now
		await.Value(t, asked.answer)
	}

	close(listing) // of a server that was not known
	await.Value(t, p.Ready())
	if now := lists(c); now != first {
		t.Errorf("once all servers have started the list is %s\nbefore it was %s", now, first)
	}
	grows("sells a hat", "shop_hat")
	grows("write text to a file", "slow_write_file")
	up.changes(t, p, goods("shoe", "coat", "hat")...) // nothing but the order
	up.changes(t, p, goods("hat", "coat", "shoe", "belt")...)
	if now := lists(c); now != before {
		t.Errorf("the list is %s\nbefore a server listed anew it was %s", now, before)
	}
	grows("sells a coat", "shop_coat")
	if got := c.got(changed); len(got) != 3 {
		t.Errorf("the client was told of %d changes, want one for each search", len(got))
	}
	if got := lists(newClient(t, p, url, kind{}, `{}`, reply)); got != first {
		t.Errorf("another session begins with %s\nthe first with %s", got, first)
	}
}

// Which clients' lists change with a search: none that was measured, unless its owner
// says so.
func TestAutoRegistersWhereItPays(t *testing.T) {
	for _, test := range []struct {
		routing configs.Routing
		client  string
		clients []configs.Client
		want    bool
	}{
		{configs.RoutingAuto, "somebody", nil, true},
		{configs.RoutingAuto, "opencode", nil, false},
		{configs.RoutingAuto, "codex-mcp-client", nil, false},
		{configs.RoutingAuto, "claude-code", nil, true},
		{configs.RoutingDynamic, "codex-mcp-client", nil, true},
		{configs.RoutingCallTool, "somebody", nil, false},
		{configs.RoutingAuto, "opencode", []configs.Client{{Name: "opencode", Register: configs.RegisterAtOnce}}, true},
		{configs.RoutingAuto, "codex-mcp-client", []configs.Client{{Name: "codex", Register: configs.RegisterAtOnce}}, true},
		{configs.RoutingAuto, "somebody", []configs.Client{{Name: "some*", Register: configs.RegisterNever}, {Name: "*", Register: configs.RegisterAtOnce}}, false},
	} {
		config := configOf(t, []*script{shop(t, "shop", "hat")})
		config.Routing, config.Clients = test.routing, test.clients
		p, url := openViews(t, "", config)
		c := newClient(t, p, url, kind{name: test.client}, `{}`, reply)
		c.listed()
		asked := c.begin("tools/call", toolCall("retrieve_tools", `{"query":"sells a hat"}`))
		if test.want {
			c.hears("notifications/tools/list_changed", nil)
			c.listed()
		}
		got := string(await.Value(t, asked.answer).Result)
		if is := strings.Contains(got, "(listed;"); is != test.want || (len(c.got("notifications/tools/list_changed")) > 0) != test.want {
			t.Errorf("%s, %s, %v: registered %t, want %t: %s", test.routing, test.client, test.clients, is, test.want, got)
		}
	}
}
