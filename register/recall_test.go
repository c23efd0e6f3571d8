package register

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// A conversation that is gone on with has a new session: its agent lets its model call
// only what the first list has.
func TestANewSessionIsListedWhatItsClientCalledLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		kept := map[tool.Caller][]tool.Called{}
		live := newLive(t, setup{
			Known: map[tool.Caller][]tool.Called{{Principal: "ann", Client: "agent 1"}: {{Name: "srv_t000", Sessions: 1}, {Name: "srv_gone", Sessions: 1}}},
			Called: func(by tool.Caller, called []tool.Called) {
				mu.Lock()
				defer mu.Unlock()
				kept[by] = called
			},
		})
		show(live, func(v *Served) {
			v.Recall = 2
			v.Register = func(client string) When {
				if strings.HasPrefix(client, "still") {
					return Never
				}
				return AtOnce
			}
		})
		url := serveHTTP(t, live)
		lists := func(client, principal string, want ...string) {
			t.Helper()
			p := connect(t, url, client, "X-User", principal)
			for range 2 { // each list of the session has them
				if got := listed(t, p.messages(list)[0]); !slices.Equal(got, append([]string{"find"}, want...)) {
					t.Errorf("a new session of %s for %q is listed %v, want %v besides find", client, principal, got, want)
				}
			}
		}
		calls := func(client string, tools ...int) {
			p := connect(t, url, client)
			for _, i := range tools {
				p.messages(call(1, fmt.Sprintf("srv_t%03d", i), `{}`))
			}
		}

		lists("agent", "ann", "srv_t000") // as the store knows
		lists("agent", "")
		calls("agent", 2, 3, 2, 1)
		lists("agent", "", "srv_t001", "srv_t002")
		searched := connect(t, url, "agent")
		searched.messages(find(1, "srv_t005"))
		if got, want := listed(t, searched.messages(list)[0]), []string{"find", "srv_t005", "srv_t001", "srv_t002"}; !slices.Equal(got, want) {
			t.Errorf("a client that searched before its first list is listed %v, want %v", got, want)
		}
		lists("agent", "ann", "srv_t000")
		lists("agent", "bob")
		lists("other", "")
		mu.Lock()
		if want := (map[tool.Caller][]tool.Called{{Client: "agent 1"}: {{Name: "srv_t001", Sessions: 1}, {Name: "srv_t002", Sessions: 1}, {Name: "srv_t003", Sessions: 1}}}); !maps.EqualFunc(kept, want, slices.Equal) {
			t.Errorf("%v is remembered, want %v", kept, want)
		}
		mu.Unlock()

		calls("still", 4)
		lists("still", "")
		show(live, func(v *Served) { v.Learn = true })
		calls("still", 4)
		lists("still", "", "srv_t004")

		show(live, func(v *Served) { v.Register = nil })
		lists("agent", "")
	})
}

// On stdio a 2026-07-28 client has the process to itself, so what it called before can
// be listed from the start; the list does not change with its calls.
func TestAProcessBeginsWithWhatItsClientCalls(t *testing.T) {
	for learn, want := range map[bool][]string{true: {"find", "srv_t007"}, false: {"find"}} {
		kept := make(chan []tool.Called, 10)
		live := newLive(t, setup{
			Known:  map[tool.Caller][]tool.Called{{Client: "new 1"}: {{Name: "srv_t007", Sessions: 0b110}}},
			Called: func(_ tool.Caller, called []tool.Called) { kept <- called },
		})
		show(live, func(v *Served) {
			v.Recall, v.Learn = 5, learn
			v.Register = func(string) When { return Never }
		})
		c := serveStdio(t, t.Context(), live)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"new","version":"1"}}`
		ask := func(id int, method, params string) string {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, id, method, params, meta))
			return c.until(fmt.Sprintf(`"id":%d,`, id))
		}
		for i := range 3 {
			if got := listed(t, ask(2*i, "tools/list", "")); !slices.Equal(got, want) {
				t.Errorf("learn %t: listed %v, want %v", learn, got, want)
			}
			ask(2*i+1, "tools/call", `"name":"srv_t001","arguments":{},`)
		}
		if learn {
			if got := receive(t, kept, "what was called"); !slices.Equal(got, []tool.Called{{Name: "srv_t001", Sessions: 1}, {Name: "srv_t007", Sessions: 0b1100}}) {
				t.Errorf("%v is remembered", got)
			}
		}
		if len(kept) > 0 {
			t.Errorf("learn %t: remembered %v", learn, <-kept)
		}
	}
}

// Sessions that are replayed: what a client does in most of them is listed to each from the
// second on, and does not come and go with what it does once.
func TestTheFirstListSettles(t *testing.T) {
	r := newRecentCalls(nil, func(tool.Caller, []tool.Called) {})
	by := tool.Caller{Client: "agent 1"}
	var lists [][]string
	saved := 0
	for session := range 20 {
		first := r.of(by, 5)
		lists = append(lists, first)
		called := []string{"read", "search", fmt.Sprint("once", session)}
		if session%2 == 0 {
			called = append(called, "write")
		}
		for i, name := range called {
			if slices.Contains(first, name) {
				saved++
			}
			r.note(by, name, i == 0)
		}
	}
	for session, first := range lists[2:] {
		for _, usual := range []string{"read", "search", "write"} {
			if !slices.Contains(first, usual) {
				t.Errorf("session %d begins with %v, without %s", session+2, first, usual)
			}
		}
		if len(first) > 5 {
			t.Errorf("session %d begins with %v", session+2, first)
		}
	}
	t.Logf("%d of 70 calls needed no search", saved)
	if calls := 70; saved < calls*2/3-3 { // 50 of the 70 calls are usual ones
		t.Errorf("%d of %d calls needed no search", saved, calls)
	}
	for range 8 {
		r.note(by, "other", true)
	}
	if got := r.of(by, 5); !slices.Equal(got, []string{"other"}) {
		t.Errorf("after eight other sessions: %v", got)
	}
}

// What was used through call_tool is listed with the next change that there is anyway,
// and costs none of its own.
func TestWhatWasUsedIsRegisteredWhenTheListChangesAnyway(t *testing.T) {
	live := newLive(t, setup{})
	source := live.served(identity.Party{}).Source.(catalog)
	show(live, func(v *Served) {
		v.Recall = 5
		v.Register = func(string) When { return WhenUsed }
		v.Meta = append(v.Meta, newTool(t, "call_tool", func(ctx context.Context, call *tool.Call) (tool.Result, error) {
			var in struct{ Name string }
			_ = json.Unmarshal(call.Arguments, &in)
			live.Used(call, source[in.Name])
			return source[in.Name].Handler(ctx, call)
		}))
	})
	live.Sync()
	p := connect(t, serveHTTP(t, live), "thrifty")
	changes, stop := p.listen()
	defer stop()
	is := func(want ...string) {
		t.Helper()
		if got := listed(t, p.messages(list)[0]); !slices.Equal(got, want) {
			t.Errorf("listed %v, want %v", got, want)
		}
	}
	is("find", "call_tool")
	if got := p.messages(find(1, "srv_t001", "srv_t002")); len(got) != 1 || !strings.Contains(got[0], "0 registered, listed again: true") {
		t.Errorf("answer = %s", got)
	}
	p.messages(call(2, "call_tool", `{"Name":"srv_t001"}`))
	used, _ := live.State(p.session)
	live.Restore(p.session, State{})
	live.Restore(p.session, used) // as another process does that takes the session over
	live.Sync()
	is("find", "call_tool")
	show(live, func(v *Served) { v.Meta = append(slices.Clone(v.Meta), newTool(t, "more", nil)) })
	live.Sync()
	await(t, changes, "tools/list_changed")
	is("find", "call_tool", "more", "srv_t001")
	p = connect(t, p.url, "thrifty")
	is("find", "call_tool", "more", "srv_t001")
	select {
	case got := <-changes:
		t.Errorf("told again: %s", got)
	default:
	}
}

// What the last two sessions called comes, and what most of the known ones did; where that is too much, the most usual.
func TestTheMostUsualToolsAreRecalled(t *testing.T) {
	by := tool.Caller{Client: "agent 1"}
	r := &recentCalls{called: map[tool.Caller][]tool.Called{by: {
		{Name: "last", Sessions: 0b1}, {Name: "before", Sessions: 0b10}, {Name: "once", Sessions: 0b100}, {Name: "half", Sessions: 0b1010100}, {Name: "usual", Sessions: 0b11110100},
	}}}
	for most, want := range [][]string{nil, {"usual"}, {"last", "usual"}, {"before", "last", "usual"}, {"before", "last", "usual"}} {
		if got := r.of(by, most); !slices.Equal(got, want) {
			t.Errorf("of %d: %v, want %v", most, got, want)
		}
	}
	r.called[by] = r.called[by][3:4] // three of the seven that are known
	if got := r.of(by, 1); len(got) > 0 {
		t.Errorf("%v is recalled", got)
	}
}

// Callers and clients choose their names: whoever makes up many does not cost the others what is known of them.
func TestMadeUpNamesDisplaceEachOther(t *testing.T) {
	usual, called := tool.Caller{Client: "usual 1"}, []tool.Called{{Name: "a", Sessions: 0b11}}
	r := newRecentCalls(map[tool.Caller][]tool.Called{usual: called}, func(tool.Caller, []tool.Called) {})
	c := newRelists(nil, func(string, tool.Relists) {})
	for i := range maxClients + 10 {
		by := tool.Caller{Client: fmt.Sprint("made up ", i)}
		if i < 2*maxCallers+2 {
			r.note(by, "b", true)
			if got := r.of(by, 1); !slices.Equal(got, []string{"b"}) {
				t.Fatalf("caller %d is recalled %v", i, got)
			}
		}
		if c.missed(by.Client); !c.never(by.Client) {
			t.Fatalf("client %d is waited for again", i)
		}
	}
	if got := r.of(usual, 1); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the usual caller is recalled %v", got)
	}
	newest := tool.Caller{Client: fmt.Sprint("made up ", 2*maxCallers+1)}
	if _, kept := r.called[newest]; !kept || len(r.called) > maxCallers || len(r.last) > maxCallers || len(c.relists) > maxClients {
		t.Errorf("of the newest it is known: %t; %d and %d callers, %d clients", kept, len(r.called), len(r.last), len(c.relists))
	}
}

// A session is named in a request by whoever opened it, and only where requests come one by one.
func TestASessionIsNamedByWhoOpenedIt(t *testing.T) {
	all := &sessions{byID: map[string]*session{}}
	all.Open("http", "ann", false, nil, nil)
	all.Open("piped", "ann", true, nil, nil)
	all.Open("nobody's", "", false, nil, nil)
	for _, test := range []struct {
		id, principal string
		want          bool
	}{
		{"http", "ann", true}, {"nobody's", "", true},
		{"http", "bob", false}, {"http", "", false}, {"piped", "ann", false}, {"nobody's", "ann", false}, {"none", "ann", false},
	} {
		if got := all.KnowsHTTP(test.id, test.principal); got != test.want {
			t.Errorf("%q by %q: %v, want %v", test.id, test.principal, got, test.want)
		}
	}
}
