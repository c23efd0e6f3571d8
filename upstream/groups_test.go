package upstream

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"toolfinch/tool"
)

// grouping is what a server with groups answers: one nests another and itself, one is broken, one is on a second page.
type grouping struct{ changed atomic.Bool }

func (g *grouping) answer(method string, params json.RawMessage) string {
	const calendar, rooms = `{"name":"calendar","description":"All calendar operations"}`, `{"name":"rooms","description":"Meeting rooms"}`
	if list := strings.TrimSuffix(method, "/list"); method != "groups/list" && list != method {
		return map[string]string{"tools": `{"tools":[{"name":"ask"}]}`}[list]
	}
	more := ""
	if g.changed.Load() {
		more = `,{"name":"delete_event"}`
	}
	name := string(jsonMember(params, "name")) + string(jsonMember(params, "cursor"))
	return map[string]string{
		"":           `{"groups":[` + calendar + `,{"name":"broken"}],"nextCursor":"2"}`,
		`"2"`:        `{"groups":[{"name":"late","description":""},{"no":"name"}],"nextCursor":"2"}`,
		`"calendar"`: `{"contents":{"tools":[{"name":"create_event","x":1.0},{"name":"ask"},7` + more + `],"prompts":[{"name":"plan"}],"resources":[{"uri":"memo://c","name":"C"}],"groups":[` + calendar + `,` + rooms + `]}}`,
		`"rooms"`:    `{"instructions":"Be early.","contents":{"tools":[{"name":"create_event","x":1.0},{"name":"book_room"}],"groups":[` + calendar + `]}}`,
		`"late"`:     `{"instructions":"Only words."}`,
		`"broken"`:   `!{"code":-32002,"message":"no such group"}`,
	}[name]
}

// grouper is a legacy server with groups that answers; its tools/call changes them. It leaves what the client declares.
func grouper(t *testing.T, answer func(method string, params json.RawMessage) string) Settings {
	s := played(t, "s", &stage{script: func(p *peer) {
		hello := p.read()
		p.put("hello", string(hello.Params))
		p.answer(hello, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/groups":{"listChanged":true}}},"serverInfo":{"name":"s","version":"1"}}`)
		p.read()
		for m := p.read(); m.Method != ""; m = p.read() {
			result := answer(m.Method, m.Params)
			if failure, failed := strings.CutPrefix(result, "!"); failed {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, failure)
				continue
			}
			if m.Method == "tools/call" {
				p.say(`{"jsonrpc":"2.0","method":"notifications/groups/list_changed"}`)
			}
			p.answer(m, result)
		}
	}})
	s.Protocol, s.Groups = ProtocolLegacy, true
	return s
}

func TestDefinitionsInGroupsAreListed(t *testing.T) {
	const before = "ask, create_event calendar: All calendar operations | rooms: Meeting rooms, "
	const after = "book_room rooms: Meeting rooms, plan calendar: All calendar operations, memo://c calendar: All calendar operations"
	for _, on := range []bool{true, false} {
		for _, era := range []Era{EraLegacy, EraModern} {
			t.Run(fmt.Sprint(era, " ", on), func(t *testing.T) {
				g := &grouping{}
				s := grouper(t, func(method string, params json.RawMessage) string {
					if method == "tools/call" {
						g.changed.Store(true)
						return `{"content":[]}`
					}
					return g.answer(method, params)
				})
				change := func(p *Pool) { _, _ = p.Call(t.Context(), def("s", "ask"), &tool.Call{Name: "ask"}) }
				if era == EraModern {
					m := newModernHTTP(t)
					m.more = `,"extensions":{"io.modelcontextprotocol/groups":{"listChanged":true}}`
					m.answers(func(method string, params json.RawMessage) string {
						if !strings.Contains(string(params), tool.ExtensionGroups) {
							return `!{"code":-32601,"message":"groups are not declared"}`
						}
						return g.answer(method, params)
					})
					s = m.settings()
					change = func(*Pool) {
						g.changed.Store(true)
						m.say("notifications/groups/list_changed", "")
					}
				}
				s.Groups = on
				p := newPool(t, s)
				changes, _ := watched(t, p)
				first := <-changes
				listed := func(change Change) string {
					var all []string
					for _, def := range change.Defs {
						if name := def.ID.Name; name != "greet" && name != "memo://a" && name != "memo://b" { // these are in no group
							all = append(all, strings.ReplaceAll(strings.TrimSpace(name+" "+def.Group), "\n", " | "))
						}
					}
					return strings.Join(all, ", ")
				}
				want := before + after
				if !on {
					want = "ask"
				}
				if got := listed(first); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				if era == EraLegacy && strings.Contains(stageOf(s).left["hello"], tool.ExtensionGroups) != on {
					t.Errorf("declared: %s", stageOf(s).left["hello"])
				}
				if !on {
					return
				}
				if got := fmt.Sprint(first.Faults.Described); !strings.Contains(got, "{group broken false it cannot be read: no such group") || first.Faults.LeftOut != 2 { // and 7 is no tool
					t.Errorf("faults = %s", got)
				}
				change(p)
				for got := ""; got != before+"delete_event calendar: All calendar operations, "+after; {
					got = listed(<-changes)
				}
			})
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	for what, test := range map[string]struct{ each, most int }{"deep": {1, maxGroupDepth}, "many": {200, maxGroups}} {
		t.Run(what, func(t *testing.T) {
			n := 0
			change := newPool(t, grouper(t, func(string, json.RawMessage) string {
				n++
				groups := ""
				for i := 0; i < test.each && n < 20; i++ {
					groups += fmt.Sprintf(`{"name":"g%d-%d"},`, n, i)
				}
				return fmt.Sprintf(`{"tools":[],"groups":[%s{}],"contents":{"tools":[{"name":"t%d"}],"groups":[%[1]s{}]}}`, groups, n)
			})).Refresh(t.Context(), "s")
			if len(change.Defs) != test.most || change.Err != nil || !strings.Contains(fmt.Sprint(change.Faults.Described), "like further ones") {
				t.Errorf("%d tools, %+v, %v", len(change.Defs), change.Faults, change.Err)
			}
		})
	}
}
