package register

import (
	"slices"
	"strings"
	"sync/atomic"
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
		name, capabilities string
		modern             bool
	}{
		{"legacy", withGroups, false}, {"legacy, not declared", `{}`, false},
		{"2026-07-28", withGroups, true}, {"2026-07-28, not declared", `{"extensions":{"other":{}}}`, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live := newLive(t, setup{})
				source := live.served(identity.Party{}).Source.(catalog)
				of := func(names ...string) (tools []*tool.Tool) {
					for _, name := range names {
						tools = append(tools, source[name])
					}
					return tools
				}
				var groups atomic.Pointer[[]Group]
				groups.Store(&[]Group{
					{Name: "srv", Title: "Srv", Description: "Does <much>.", Instructions: "Be kind.", Tools: of("srv_t001", "srv_t002", "srv_t003")},
					{Name: "b-2", Description: "Progress.", Tools: of("srv_progress")},
				})
				offers := func(v *Served) {
					v.Source = pinning{source, of("srv_t000")}
					v.Direct = func(bool) bool { return true }
					v.Group(v.Source, func() []Group { return *groups.Load() })
				}
				show(live, offers)
				url := serveHTTP(t, live)
				n := &newcomer{t: t, url: url, capabilities: test.capabilities}
				ask, begins := n.answer, n.answer(1, "server/discover", "")
				var told <-chan string
				if test.modern {
					told = n.request(9, "subscriptions/listen", `"notifications":{"groupsListChanged":true,"toolsListChanged":true}`)
					if got := await(t, told, "acknowledged"); strings.Contains(got, `"groupsListChanged":true`) != (test.capabilities == withGroups) {
						t.Errorf("acknowledged: %s", got)
					}
				} else {
					begins = await(t, (&peer{t: t, url: url}).stream(hello(test.capabilities)), `"id":"i"`)
					c := overHTTP(t, url, test.capabilities)
					told = c.listen()
					ask = func(id int, method, members string) string {
						return await(t, c.post(request(id, method, "{"+members+"}")), `"id":`+string(rune('0'+id))+`,`)
					}
				}
				if test.capabilities != withGroups {
					if got := len(listed(t, ask(2, "tools/list", ""))); got < 300 {
						t.Errorf("%d tools are listed, want all", got)
					}
					for _, method := range []string{"groups/list", "groups/get"} {
						if got := ask(3, method, `"name":"srv"`); !strings.Contains(got, `"error":{"code":-32601,`) {
							t.Errorf("%s: %s", method, got)
						}
					}
					if strings.Contains(begins, "/groups") {
						t.Errorf("declared: %s", begins)
					}
					return
				}
				if !strings.Contains(begins, `"io.modelcontextprotocol/groups":{"listChanged":true}`) {
					t.Errorf("not declared: %s", begins)
				}
				if got := listed(t, ask(2, "tools/list", "")); !slices.Equal(got, []string{"find", "srv_t000"}) {
					t.Errorf("listed are %q", got)
				}
				result := rawjson.Member([]byte(ask(3, "groups/list", "")), "result")
				if got, want := string(rawjson.Member(result, "groups")), `[{"name":"srv","title":"Srv","description":"Does <much>."},{"name":"b-2","description":"Progress."}]`; got != want {
					t.Errorf("groups are %s, want %s", got, want)
				}
				hints := `"complete" 5000 "private"`
				if got := strings.TrimSpace(strings.Join([]string{string(rawjson.Member(result, "resultType")), string(rawjson.Member(result, "ttlMs")), string(rawjson.Member(result, "cacheScope"))}, " ")); test.modern && got != hints || !test.modern && got != "" {
					t.Errorf("cache hints: %s", got)
				}
				in := func(name string) string {
					contents := rawjson.Member(rawjson.Member([]byte(ask(4, "groups/get", `"name":"`+name+`"`)), "result"), "contents")
					return strings.Join(listed(t, `{"result":`+string(contents)+`}`), " ")
				}
				want := "srv_t001 srv_t002 srv_t003"
				if got := in("srv"); got != want {
					t.Errorf("srv has %s", got)
				}
				if got := ask(5, "groups/get", `"name":"srv"`); !strings.Contains(got, `"instructions":"Be kind."`) || !strings.Contains(got, `"x-unknown":18446744073709551617`) {
					t.Errorf("srv is %s", got)
				}
				if got := ask(6, "groups/get", `"name":"Srv"`); !strings.Contains(got, `"error":{"code":-32002,"message":"unknown group \"Srv\""`) {
					t.Errorf("unknown: %s", got)
				}
				if got := ask(7, "tools/call", `"name":"srv_t003"`); !strings.Contains(got, "hologram") {
					t.Errorf("call: %s", got)
				}
				if !test.modern { // a registered tool leaves its group
					ask(8, "tools/call", `"name":"find","arguments":{"Tools":["srv_t002"]}`)
					want = "srv_t001 srv_t003"
				}
				if got := in("srv"); got != want {
					t.Errorf("then srv has %s, want %s", got, want)
				}
				groups.Store(&[]Group{{Name: "srv", Description: "Other.", Tools: of("srv_t001")}})
				show(live, offers)
				live.Sync()
				await(t, told, `"notifications/groups/list_changed"`)
				show(live, func(v *Served) { v.Grouped = nil }) // the owner turns groups off
				live.Sync()
				await(t, told, `"notifications/tools/list_changed"`)
				if got := ask(3, "groups/list", ""); !strings.Contains(got, `"code":-32601`) {
					t.Errorf("groups are off: %s", got)
				}
			})
		})
	}
}
