package proxy_test

import (
	"strings"
	"testing"

	"toolfinch/view"
)

// What is cut off a description is not listed, but found and answered in full.
func TestTrimmedDescriptionsAreSearchedWhole(t *testing.T) {
	s := newScript(t, "shop", false, false)
	s.list("tools", append(goods("hat", "coat", "scarf", "shoe", "belt"),
		`{"name":"open","description":"Opens it. Works with umbrellas, too.","inputSchema":{"type":"object"}}`)...)
	retrieved, searched := everything("retrieved", view.ExposureRetrieve), everything("searched", view.ExposureSearch)
	retrieved.Trim, searched.Trim = 12, 12
	retrieved.ProxyTool = "door"
	whole := everything("whole", view.ExposureDirect)
	p, url := openViews(t, "", configOf(t, []*script{s}, retrieved, searched, whole))

	has := func(client, answer, text string, want bool) {
		t.Helper()
		if strings.Contains(answer, text) != want {
			t.Errorf("%s: %q is there: %t, want %t: %.600s", client, text, !want, want, answer)
		}
	}
	const cut = "Works with umbrellas"
	c := viewClient(t, p, url, "retrieved", false)
	c.listed()
	has("retrieve_tools", c.ask("tools/call", toolCall("retrieve_tools", `{"query":"umbrellas"}`)).raw, "shop_open", true)
	listed := string(c.ask("tools/list", `{}`).Result)
	has("the list", listed, "Opens it.", true)
	has("the list", listed, cut, false)
	has("detail: full", string(c.does(t, "retrieve_tools", `{"query":"umbrellas","detail":"full"}`)), cut, true)
	has("info", string(c.ask("tools/call", toolCall("door", `{"action":"info","type":"tool","path":"shop_open"}`)).Result), cut, true)
	has("list", string(c.ask("tools/call", toolCall("door", `{"action":"list","type":"tool"}`)).Result), cut, false)

	c = viewClient(t, p, url, "searched", false)
	has("searched_search_tools", string(c.does(t, "searched_search_tools", `{"query":"umbrellas"}`)), "shop_open", true)
	has("searched_describe_tool", string(c.does(t, "searched_describe_tool", `{"name":"shop_open"}`)), cut, true)
	has("a view that cuts nothing", string(viewClient(t, p, url, "whole", false).ask("tools/list", `{}`).Result), cut, true)
}
