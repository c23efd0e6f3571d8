package register

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/identity"
	"toolfinch/tool"
)

// loads is a client whose own tool search would hide what it is listed.
const loads = "loads 1"

// The best tool alone is registered, marked and with the server's bytes otherwise; one that was called in an earlier
// session is not marked before it is found.
func TestTheBestIsRegisteredAndMarked(t *testing.T) {
	live := newLive(t, setup{
		Relists: map[string]tool.Relists{loads: tool.RelistsNever}, // so that no answer waits
		Known:   map[tool.Caller][]tool.Called{{Client: loads}: {{Name: "srv_t009", Sessions: 1}}},
	})
	source := live.served(identity.Party{}).Source.(catalog)
	for name, more := range map[string]string{"srv_meta": `"_meta":{"a/b":1e400}`, "srv_long": `"description":"` + strings.Repeat("x", maxBest) + `"`} {
		def, err := tool.ParseDef("srv", json.RawMessage(`{"name":"`+strings.TrimPrefix(name, "srv_")+`","inputSchema":{"type":"object"},`+more+`}`))
		if err != nil {
			t.Fatal(err)
		}
		source[name] = &tool.Tool{Name: name, Def: def}
	}
	show(live, func(v *Served) {
		v.Recall = 5
		v.Register = func(string) When { return Best }
		v.Loads = func(client string) bool { return client == loads }
	})
	live.Sync()
	url := serveHTTP(t, live)
	p, other := connect(t, url, "loads"), connect(t, url, "other")
	const mark = `"anthropic/alwaysLoad":true`
	for _, step := range []struct {
		finds []string
		want  []string
		holds string
		marks int
	}{
		{nil, []string{"find", "srv_t009"}, "", 0},
		{[]string{"srv_t001", "srv_t002"}, []string{"find", "srv_t009", "srv_t001"}, `{"_meta":{` + mark + `},"name":"srv_t001","x-unknown":18446744073709551617,`, 1},
		{[]string{"srv_long", "srv_t002"}, []string{"find", "srv_t009", "srv_t001"}, "", 1},
		{[]string{"srv_meta"}, []string{"find", "srv_t009", "srv_t001", "srv_meta"}, `"_meta":{` + mark + `,"a/b":1e400}`, 2},
		{[]string{"srv_t009"}, []string{"find", "srv_t001", "srv_meta", "srv_t009"}, "", 3},
		{[]string{"srv_t009"}, []string{"find", "srv_t001", "srv_meta", "srv_t009"}, "", 3},
	} {
		for _, by := range []*peer{p, other} {
			if step.finds != nil {
				by.messages(find(1, step.finds...))
			}
		}
		got := p.messages(list)[0]
		if names := listed(t, got); !slices.Equal(names, step.want) || strings.Count(got, mark) != step.marks || !strings.Contains(got, step.holds) {
			t.Errorf("after %v is listed %v with %d marks, want %v with %d and %s: %s", step.finds, names, strings.Count(got, mark), step.want, step.marks, step.holds, got)
		}
	}
	if got := other.messages(list)[0]; strings.Contains(got, mark) {
		t.Errorf("a client that does not know the mark is listed %s", got)
	}
}

// server/discover names no version of the modern era to a client that is to have a session.
func TestDiscoverSendsAClientToTheLegacyEra(t *testing.T) {
	live := newLive(t, setup{})
	n := &newcomer{t: t, url: serveHTTP(t, live), capabilities: `{}`}
	for client, modern := range map[string]bool{"new 1": false, "other 1": true} {
		show(live, func(v *Served) { v.Legacy = func(name string) bool { return name == client } })
		if got := n.answer(1, "server/discover", ""); !strings.Contains(got, `"2025-11-25"`) || strings.Contains(got, `"2026-07-28"`) != modern {
			t.Errorf("new 1, where %s has a session, is answered %s", client, got)
		}
	}
}
