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
type grouping struct {
	changed atomic.Bool
}

const calendarGroup = `{"name":"calendar","description":"All calendar operations"}`

func (g *grouping) answer(method string, params json.RawMessage) string {
	if declared := string(jsonMember(jsonMember(params, "_meta"), "io.modelcontextprotocol/clientCapabilities")); declared != "" && !strings.Contains(declared, tool.ExtensionGroups) {
		return `!{"code":-32601,"message":"groups are not declared"}`
	}
	var name string
	_ = json.Unmarshal(jsonMember(params, "name"), &name)
	switch {
	case method == "tools/list":
		return `{"tools":[{"name":"ask"},{"name":"change"}]}`
	case method == "prompts/list", method == "resources/list", method == "resources/templates/list":
		return `{"` + map[string]string{"prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}[method] + `":[]}`
	case method == "groups/list" && jsonMember(params, "cursor") == nil:
		return `{"groups":[` + calendarGroup + `,{"name":"broken","description":"?"}],"nextCursor":"2"}`
	case method == "groups/list":
		return `{"groups":[{"name":"late","description":""},{"no":"name"}],"nextCursor":"2"}`
	case name == "calendar":
		more := ""
		if g.changed.Load() {
			more = `,{"name":"delete_event"}`
		}
		return `{"contents":{"tools":[{"name":"create_event","x":1.0},{"name":"ask"},7` + more + `],"prompts":[{"name":"plan"}],"resources":[{"uri":"memo://c","name":"C"}],"groups":[` + calendarGroup + `,{"name":"rooms","description":"Meeting rooms"}]}}`
	case name == "rooms":
		return `{"instructions":"Be early.","contents":{"tools":[{"name":"create_event","x":1.0},{"name":"book_room"}],"groups":[` + calendarGroup + `]}}`
	case name == "late":
		return `{"instructions":"Only words."}`
	}
	return `!{"code":-32002,"message":"no such group"}`
}

// play is the server in the legacy era. Its tools/call changes a group.
func (g *grouping) play(p *peer) {
	hello := p.read()
	if strings.Contains(string(hello.Params), tool.ExtensionGroups) {
		p.put("declared", "")
	}
	p.answer(hello, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{},"extensions":{"io.modelcontextprotocol/groups":{"listChanged":true}}},"serverInfo":{"name":"s","version":"1"}}`)
	p.read()
	for m := p.read(); m.Method != ""; m = p.read() {
		if m.Method == "tools/call" {
			g.changed.Store(true)
			p.say(`{"jsonrpc":"2.0","method":"notifications/groups/list_changed"}`)
			p.answer(m, `{"content":[]}`)
			continue
		}
		result := g.answer(m.Method, m.Params)
		if failure, ok := strings.CutPrefix(result, "!"); ok {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, failure)
		} else {
			p.answer(m, result)
		}
	}
}

// groupedDefs are the definitions of a change, each with its groups.
func groupedDefs(change Change) string {
	var all []string
	for _, def := range change.Defs {
		if def.ID.Name == "greet" || strings.HasPrefix(def.ID.Name, "memo://a") || strings.HasPrefix(def.ID.Name, "memo://b") || def.ID.Name == "change" {
			continue // of the server of 2026-07-28, or of the other, alone
		}
		all = append(all, strings.ReplaceAll(strings.TrimSpace(def.ID.Name+" "+def.Group), "\n", " | "))
	}
	return strings.Join(all, ", ")
}

func TestDefinitionsInGroupsAreListed(t *testing.T) {
	const some = "ask, create_event calendar: All calendar operations | rooms: Meeting rooms, "
	const rest = "book_room rooms: Meeting rooms, plan calendar: All calendar operations, memo://c calendar: All calendar operations"
	for _, on := range []bool{true, false} {
		for _, era := range []string{"legacy", "2026-07-28"} {
			t.Run(fmt.Sprint(era, " ", on), func(t *testing.T) {
				g := &grouping{}
				s := played(t, "s", &stage{script: g.play})
				s.Protocol = ProtocolLegacy
				change := func(p *Pool) {
					if _, err := p.Call(t.Context(), def("s", "change"), &tool.Call{Name: "change"}); err != nil {
						t.Error(err)
					}
				}
				if era != "legacy" {
					m := newModernHTTP(t)
					m.more = `,"extensions":{"io.modelcontextprotocol/groups":{"listChanged":true}}`
					m.answers(g.answer)
					s = m.settings()
					change = func(*Pool) {
						g.changed.Store(true)
						m.say("notifications/groups/list_changed", "")
					}
				}
				s.Groups = on
				p := newPool(t, s)
				if !on {
					if got := groupedDefs(p.Refresh(t.Context(), "s")); got != "ask" {
						t.Errorf("without groups: %s", got)
					}
					if era == "legacy" && stageOf(s).has("declared") {
						t.Error("groups were declared")
					}
					return
				}
				changes, _ := watched(t, p)
				first := <-changes
				if got := groupedDefs(first); got != some+rest {
					t.Errorf("got  %s\nwant %s", got, some+rest)
				}
				if got, want := fmt.Sprint(first.Faults.Described), "{group broken false it cannot be read: no such group"; !strings.Contains(got, want) || first.Faults.LeftOut != 2 { // and 7 is no tool
					t.Errorf("faults = %s", got)
				}
				if raw := string(first.Defs[2].Raw); era == "legacy" && raw != `{"name":"create_event","x":1.0,"inputSchema":{"type":"object"}}` {
					t.Errorf("raw = %s", raw)
				}
				change(p)
				const added = "delete_event calendar: All calendar operations, "
				for got := ""; got != some+added+rest; {
					got = groupedDefs(<-changes)
				}
			})
		}
	}
}

func TestGroupsAreBounded(t *testing.T) {
	for what, test := range map[string]struct {
		answer func(name string, n int) string // of the nth request
		tools  int
		fault  string
	}{
		"deep": {func(name string, n int) string {
			return fmt.Sprintf(`{"contents":{"tools":[{"name":"t%d"}],"groups":[{"name":"g%d"}]}}`, n, n)
		}, maxGroupDepth, "deeper"},
		"many": {func(name string, n int) string {
			if name != "g0" {
				return `{"contents":{"tools":[{"name":"t"}]}}`
			}
			var all []string
			for i := range maxGroups + 1 {
				all = append(all, fmt.Sprintf(`{"name":"h%d"}`, i))
			}
			return `{"contents":{"groups":[` + strings.Join(all, ",") + `]}}`
		}, 1, "more than 1000 groups"},
	} {
		t.Run(what, func(t *testing.T) {
			s := played(t, "s", &stage{script: func(p *peer) {
				p.answer(p.read(), `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/groups":{}}},"serverInfo":{"name":"s","version":"1"}}`)
				p.read()
				n := 0
				for m := p.read(); m.Method != ""; m = p.read() {
					switch m.Method {
					case "tools/list":
						p.answer(m, `{"tools":[]}`)
					case "groups/list":
						p.answer(m, `{"groups":[{"name":"g0"}]}`)
					default:
						n++
						p.answer(m, test.answer(strings.Trim(string(jsonMember(m.Params, "name")), `"`), n))
					}
				}
			}})
			s.Protocol, s.Groups = ProtocolLegacy, true
			change := newPool(t, s).Refresh(t.Context(), "s")
			if change.Err != nil || len(change.Defs) != test.tools || !strings.Contains(fmt.Sprint(change.Faults.Described), test.fault) {
				t.Errorf("%d tools, %+v, %v", len(change.Defs), change.Faults, change.Err)
			}
		})
	}
}
