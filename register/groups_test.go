package register

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"toolfinch/internal/identity"
	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// pinning is a catalog with pinned tools.
type pinning struct {
	catalog
	pinned []*tool.Tool
}

func (p pinning) Pinned() []*tool.Tool { return p.pinned }

const withGroups = `{"extensions":{"io.modelcontextprotocol/groups":{}}}`

// Who declares groups is listed what is always listed, and reads the rest in groups; nobody else sees a difference.
func TestGroups(t *testing.T) {
	for _, test := range []struct {
		capabilities string
		modern       bool
	}{{withGroups, false}, {`{}`, false}, {withGroups, true}, {`{"extensions":{"other":{}}}`, true}} {
		t.Run(fmt.Sprintf("%s %t", test.capabilities, test.modern), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := newLive(t, setup{})
				source := live.served(identity.Party{}).Source.(catalog)
				groups := []Group{
					{Name: "srv", Title: "Srv", Description: "Does <much>.", Instructions: "Be kind.", Tools: []*tool.Tool{source["srv_t001"], source["srv_t002"], source["srv_t003"]}},
					{Name: "b-2", Description: "Progress.", Tools: []*tool.Tool{source["srv_progress"]}},
				}
				serves := func(groups []Group) {
					show(live, func(v *Served) {
						v.Source, v.Direct = pinning{source, []*tool.Tool{source["srv_t000"]}}, func(bool) bool { return true }
						v.Group(v.Source, func() []Group { return groups })
					})
					live.Sync()
				}
				serves(groups)
				url := serveHTTP(t, live)
				n := &newcomer{t: t, url: url, capabilities: test.capabilities}
				ask, begins := n.answer, n.answer(1, "server/discover", "")
				var told <-chan string
				if test.modern {
					told = n.request(9, "subscriptions/listen", `"notifications":{"groupsListChanged":true,"toolsListChanged":true}`)
					await(t, told, "acknowledged")
				} else {
					begins = await(t, (&peer{t: t, url: url}).stream(hello(test.capabilities)), `"id":"i"`)
					c := overHTTP(t, url, test.capabilities)
					told = c.listen()
					ask = func(id int, method, members string) string {
						return await(t, c.post(request(id, method, "{"+members+"}")), fmt.Sprintf(`"id":%d,`, id))
					}
				}
				says := func(id int, method, members, want string) {
					t.Helper()
					if got := ask(id, method, members); !strings.Contains(got, want) {
						t.Errorf("%s: %s, want %s", method, got, want)
					}
				}
				declares := strings.Contains(begins, `"io.modelcontextprotocol/groups":{"listChanged":true}`)
				if test.capabilities != withGroups {
					says(3, "groups/list", "", `"error":{"code":-32601,`)
					says(3, "groups/get", `"name":"srv"`, `"error":{"code":-32601,`)
					if got := len(listed(t, ask(2, "tools/list", ""))); got < 300 || declares {
						t.Errorf("%d tools are listed, want all; declared: %s", got, begins)
					}
					return
				}
				if got := listed(t, ask(2, "tools/list", "")); !slices.Equal(got, []string{"find", "srv_t000"}) || !declares {
					t.Errorf("listed are %q; declared: %s", got, begins)
				}
				hints := ""
				if test.modern {
					hints = `"resultType":"complete","cacheScope":"private","ttlMs":5000,`
				}
				says(3, "groups/list", "", `{`+hints+`"groups":[{"name":"srv","title":"Srv","description":"Does <much>."},{"name":"b-2","description":"Progress."}]}`)
				says(4, "groups/get", `"name":"Srv"`, `"error":{"code":-32002,"message":"unknown group \"Srv\""`)
				says(5, "groups/get", `"name":"srv"`, `{`+hints+`"instructions":"Be kind.","contents":{"tools":[{"name":"srv_t001","x-unknown":18446744073709551617,`)
				says(6, "tools/call", `"name":"srv_t003"`, "hologram")
				has := func(want ...string) {
					t.Helper()
					contents := rawjson.Member(rawjson.Member([]byte(ask(7, "groups/get", `"name":"srv"`)), "result"), "contents")
					if got := listed(t, `{"result":`+string(contents)+`}`); !slices.Equal(got, want) {
						t.Errorf("srv has %q, want %q", got, want)
					}
				}
				has("srv_t001", "srv_t002", "srv_t003")
				if !test.modern { // a registered tool leaves its group
					ask(8, "tools/call", `"name":"find","arguments":{"Tools":["srv_t002"]}`)
					has("srv_t001", "srv_t003")
				}
				serves(groups[1:])
				await(t, told, `"notifications/groups/list_changed"`)
				show(live, func(v *Served) { v.Grouped = nil }) // the owner turns groups off
				live.Sync()
				await(t, told, `"notifications/tools/list_changed"`)
				says(3, "groups/list", "", `"code":-32601`)
			})
		})
	}
}
