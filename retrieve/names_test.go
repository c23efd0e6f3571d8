package retrieve

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
	"toolfinch/tool"
)

func TestNames(t *testing.T) {
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	long := strings.Repeat("very_long_", 12)
	ids := []tool.ID{
		{Server: "github", Name: "search_code"},
		{Server: "my server", Name: "do.it/now"},
		{Server: "a", Name: "b_c"}, {Server: "a_b", Name: "c"}, // collide
		{Server: "retrieve", Name: "tools"}, // reserved
		{Server: "x", Name: long + "1"}, {Server: "x", Name: long + "2"},
		{Server: "日本", Name: "検索"}, {Server: "日本", Name: "天気"},
	}
	names := namesFor(ids, []string{"retrieve_tools"}, nil)
	seen := map[string]tool.ID{}
	for _, id := range ids {
		name := names[id]
		if !valid.MatchString(name) {
			t.Errorf("%v: %q does not match %s", id, name, valid)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%v and %v share the name %q", id, other, name)
		}
		seen[name] = id
	}
	if got := names[ids[0]]; got != "github_search_code" {
		t.Errorf("plain name = %q", got)
	}
	if got := names[ids[1]]; got != "my_server_do_it_now" {
		t.Errorf("cleaned name = %q", got)
	}
	for _, i := range []int{2, 3} {
		if !strings.HasPrefix(names[ids[i]], "a_b_c_") {
			t.Errorf("colliding name = %q, want a hash after a_b_c", names[ids[i]])
		}
	}
	slices.Reverse(ids)
	again := namesFor(ids, []string{"retrieve_tools"}, nil)
	for id, name := range names {
		if again[id] != name {
			t.Errorf("%v is %q in one order and %q in another", id, name, again[id])
		}
	}
}

func TestNamesBeginWithThePrefixOfTheirServer(t *testing.T) {
	prefix := map[string]string{"github": "gh", "clock": "", "calendar": ""}
	for _, test := range []struct {
		server, name, want string
	}{
		{"github", "search_code", "gh_search_code"},
		{"clock", "now", "now"},
		{"clock", "do.it/now", "do_it_now"},
		{"files", "read", "files_read"},
		{"clock", "call_tool", "call_tool_*"}, // reserved
		{"clock", "add", "add_*"},             // both have it
		{"calendar", "add", "add_*"},
		{"gh", "search_code", "gh_search_code"}, // alone
	} {
		id := tool.ID{Server: test.server, Name: test.name}
		ids := []tool.ID{id, {Server: "other", Name: "x"}}
		if test.want == "add_*" {
			ids = []tool.ID{{Server: "clock", Name: "add"}, {Server: "calendar", Name: "add"}}
		}
		got := namesFor(ids, []string{"call_tool"}, prefix)[id]
		if ok, _ := path.Match(test.want, got); !ok {
			t.Errorf("%v is %q, want %q", id, got, test.want)
		}
	}
}

// A server that lists a tool by the name which another's was given, with its
// hash, does not get that name.
func TestANameWithAHashIsNotTakenOver(t *testing.T) {
	// Both would be fs_secure_read.
	ids := []tool.ID{{Server: "fs_secure", Name: "read"}, {Server: "fs", Name: "secure_read"}}
	before := namesFor(ids, nil, nil)
	victim := ids[0]
	for range 3 { // the next lists what the one before was given
		ids = append(ids, tool.ID{Server: "fs", Name: strings.TrimPrefix(namesFor(ids, nil, nil)[victim], "fs_")})
		victim = ids[len(ids)-1]
	}
	for range 2 {
		names := namesFor(ids, nil, nil)
		has := map[string]tool.ID{}
		for _, id := range ids {
			if other, taken := has[names[id]]; taken {
				t.Errorf("%v and %v are both %q", other, id, names[id])
			}
			has[names[id]] = id
		}
		for id, name := range before {
			if names[id] != name {
				t.Errorf("%v was %q and is now %q", id, name, names[id])
			}
		}
		slices.Reverse(ids)
	}
}

// A tool is found by its exposed name, server.tool and server:tool, also where names of
// servers have dots and colons; and never by a name of a tool that is not there.
func TestEveryNameOfATool(t *testing.T) {
	catalog := newCatalog(t, []Server{
		{Name: "a", Tools: []*tool.Tool{parsed(t, "a", "b"), parsed(t, "a", "b:c")}},
		{Name: "a:b", Tools: []*tool.Tool{parsed(t, "a:b", "c"), parsed(t, "a:b", "d")}},
		{Name: "x.y", Tools: []*tool.Tool{{Name: "given", Def: parsed(t, "x.y", "z").Def}}},
	})
	for name, want := range map[string]string{
		"a_b": "a.b", "a.b": "a.b", "a:b": "a.b",
		"a:b.c": "a:b.c", "a:b:c": "a:b.c", "a.b:c": "a.b:c", "a:b:d": "a:b.d",
		"given": "x.y.z", "x.y.z": "x.y.z", "x.y:z": "x.y.z",
		"x_y_z": "", "x:y:z": "", "a.c": "", "a:": "", ":b": "", ".": "", ":": "", "": "", "a:B": "",
		strings.Repeat("a:", 1<<20): "",
	} {
		found, err := catalog.Find(name)
		if got := idOf(found); got != want || (err == nil) != (want != "") {
			t.Errorf("%.20q is %q (%v), want %q", name, got, err, want)
		}
	}
}

func parsed(t *testing.T, server, name string) *tool.Tool {
	t.Helper()
	def := must.Get(tool.ParseDef(server, []byte(`{"name":"`+name+`","inputSchema":{"type":"object"}}`)))(t)
	return &tool.Tool{Def: def}
}

func idOf(t *tool.Tool) string {
	if t == nil {
		return ""
	}
	return t.Def.ID.String()
}
