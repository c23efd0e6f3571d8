package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"toolfinch/internal/must"
)

// realDefinitions are the tools of real servers, a definition a line, packed
// into as few lists as there can be without a name twice in one.
func realDefinitions(t *testing.T) (lists [][]string) {
	t.Helper()
	const recorded = "../../shared/realtools"
	files, err := filepath.Glob(recorded + "/*.json")
	if err != nil || len(files) == 0 {
		t.Skip("the definitions of real servers are not beside the repository (shared/realtools)")
	}
	var taken []map[string]bool
	for _, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		var server struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(raw, &server); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, def := range server.Tools {
			name := partText(def, "name")
			i := slices.IndexFunc(taken, func(names map[string]bool) bool { return !names[name] })
			if i < 0 {
				i = len(taken)
				taken, lists = append(taken, map[string]bool{}), append(lists, nil)
			}
			taken[i][name] = true
			lists[i] = append(lists[i], compact(t, def))
		}
	}
	return lists
}

var notInName = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// cutName takes the name out of a definition and leaves every other byte.
func cutName(t *testing.T, def []byte) (name, rest string) {
	t.Helper()
	if after, first := bytes.CutPrefix(def, []byte(`{"name":"`)); first { // as in nearly all
		end := bytes.IndexByte(after, '"')
		return string(after[:end]), string(after[end:])
	}
	for _, m := range members(def) {
		if m.key == "name" {
			i := bytes.Index(def, []byte(`"name":`+m.value))
			return text([]byte(m.value)), string(def[:i]) + string(def[i+len(`"name":`+m.value):])
		}
	}
	t.Fatalf("there is no name in %.200s", def)
	return "", ""
}

// typeless reports whether the input schema, the last member, has no type.
func typeless(def string) bool {
	var in struct {
		InputSchema map[string]json.RawMessage `json:"inputSchema"`
	}
	return json.Unmarshal([]byte(def), &in) == nil && in.InputSchema["type"] == nil && strings.HasSuffix(def, "}}")
}

// Every tool definition of the recorded servers arrives byte for byte, its name
// aside, from a server of either era at a client of the other era. Nine of one server have
// input schemas without a type, which official clients refuse: these arrive with one. White space between
// tokens is that of one line here: a message of more lines cannot be sent on
// stdio, nor as an event.
func TestRealDefinitionsArriveAsTheyWere(t *testing.T) {
	lists := realDefinitions(t)
	var want []string
	names := map[string][]string{} // by the rest of the definition
	mended := 0
	for _, defs := range lists {
		for _, def := range defs {
			if typeless(def) {
				def = strings.TrimSuffix(def, "}}") + `,"type":"object"}}`
				mended++
			}
			name, rest := cutName(t, []byte(def))
			want = append(want, rest)
			names[rest] = append(names[rest], notInName.ReplaceAllString(name, "_"))
		}
	}
	slices.Sort(want)
	t.Logf("%d definitions in %d lists", len(want), len(lists))
	if mended != 9 {
		t.Errorf("%d definitions have no type, want 9", mended)
	}
	for server, client := range map[kind]kind{{stdio: true}: {modern: true}, {modern: true}: {stdio: true}} {
		t.Run(client.String()+" client, "+server.String()+" server", func(t *testing.T) {
			var scripts []*script
			for i, defs := range lists {
				s := newScript(t, fmt.Sprint("s", i), server.modern, server.stdio)
				s.page = 100
				s.list("tools", defs...)
				scripts = append(scripts, s)
			}
			p, url := openScripts(t, []string{"s*"}, scripts...)
			var listed struct{ Tools []json.RawMessage }
			must.Do(t, json.Unmarshal(newClient(t, p, url, client, `{}`, nil).ask("tools/list", `{}`).Result, &listed))
			var got []string
			for _, def := range listed.Tools {
				name, rest := cutName(t, def)
				if name == "retrieve_tools" || name == "call_tool" {
					continue
				}
				got = append(got, rest)
				_, own, _ := strings.Cut(name, "_")
				if !slices.ContainsFunc(names[rest], func(name string) bool { return strings.HasPrefix(own, name[:min(len(name), 40)]) }) {
					t.Errorf("%v is listed as %s", names[rest], name)
				}
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
			t.Errorf("%d definitions are listed, want %d", len(got), len(want))
			wrong := 0
			for _, def := range got {
				if _, ok := slices.BinarySearch(want, def); !ok {
					if wrong++; wrong <= 5 {
						t.Errorf("nobody has listed %.500s", strings.ToValidUTF8(def, "?"))
					}
				}
			}
		})
	}
}
