package retrieve

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toolfinch/internal/rawjson"
	"toolfinch/tool"
)

// related tools are written "name(required, optional?): description".
func relatedDefs(t *testing.T, lines ...string) (defs []*tool.Def) {
	t.Helper()
	for _, line := range lines {
		head, about, _ := strings.Cut(line, ": ")
		name, list, _ := strings.Cut(strings.TrimSuffix(head, ")"), "(")
		properties, required := map[string]any{}, []string{}
		for _, p := range strings.FieldsFunc(list, func(c rune) bool { return c == ',' || c == ' ' }) {
			p, of, _ := strings.Cut(p, "=")
			bare := strings.TrimSuffix(p, "?")
			properties[bare] = map[string]any{"type": "string", "description": strings.ReplaceAll(of, "_from_", " from ")}
			if bare == p {
				required = append(required, p)
			}
		}
		raw := rawjson.Of(map[string]any{"name": name, "description": about,
			"inputSchema": map[string]any{"type": "object", "properties": properties, "required": required}})
		def, err := tool.ParseDef("s", raw)
		if err != nil {
			t.Fatal(err)
		}
		defs = append(defs, def)
	}
	return defs
}

func TestProducersAmongTheToolsOfAServer(t *testing.T) {
	for name, test := range map[string]struct {
		tools []string
		want  string // producers of the first tool: "parameter<name"
	}{
		"list of the noun":               {[]string{"delete_project(project_id)", "list_projects", "get_project(project_id)", "create_project(name)"}, "project_id<list_projects"},
		"bare id":                        {[]string{"project-get(id)", "project-list"}, "id<project-list"},
		"never what destroys":            {[]string{"get_item(item_id)", "delete_items"}, ""},
		"never what requires the same":   {[]string{"get_item(item_id)", "search_items(item_id)"}, ""},
		"named by the parameter":         {[]string{"send(account=an_ID_from_list-accounts)", "list-accounts", "send-all(x)"}, "account<list-accounts"},
		"named by the tool":              {[]string{"docs(libraryID): Reads docs. Call resolve_library first to get it.", "resolve_library(q)"}, "libraryID<resolve_library"},
		"named, but as another way":      {[]string{"docs(libraryID): Use resolve_thing instead.", "resolve_thing(q)"}, ""},
		"coordinates":                    {[]string{"nearby(latitude, longitude)", "geocode(address)", "reverse_geocode(latitude, longitude)"}, "latitude<geocode longitude<geocode"},
		"the wrong way":                  {[]string{"reverse_geocode(latitude)", "geocode(address)"}, ""},
		"role of the noun":               {[]string{"merge(source_branch_name)", "list_branches"}, "source_branch_name<list_branches"},
		"another part of the server":     {[]string{"kv_get(namespace_id)", "kv_set(x)", "r2_list_namespaces", "r2_get(x)"}, ""},
		"its part of the server":         {[]string{"r2_get(bucket)", "r2_list_buckets", "kv_list_buckets", "kv_get(x)"}, "bucket<r2_list_buckets"},
		"a creator chooses":              {[]string{"create_bucket(bucket_name)", "list_buckets"}, ""},
		"a value that everybody has":     {[]string{"plan(date)", "list_dates"}, ""},
		"what is open, by default":       {[]string{"save_presentation(path, presentation_id?)", "create_presentation(id?)"}, "presentation_id<create_presentation"},
		"a session is begun":             {[]string{"end_run(sessionId)", "start_session(options?)"}, "sessionId<start_session"},
		"what it says that it returns":   {[]string{"tempo(path_of_series)", "load(url): Returns the path of the series."}, "path_of_series<load"},
		"what another part of a list is": {[]string{"firewall-remove-hosts(ID)", "firewall-list", "hosts-list", "x", "y", "z"}, "ID<firewall-list"},
	} {
		defs := relatedDefs(t, test.tools...)
		var got []string
		for _, p := range producersAmong(defs)[defs[0].ID] {
			got = append(got, p.parameter+"<"+p.id.Name)
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestAnswersNameProducersOnce(t *testing.T) {
	var tools []*tool.Tool
	for _, def := range relatedDefs(t, "delete_project(project_id): Delete a project.", "list_projects(): List projects.") {
		tools = append(tools, &tool.Tool{Def: def})
	}
	catalog, err := NewCatalog(nil).With(t.Context(), Contents{Servers: []Server{{Name: "s", Tools: tools}}})
	if err != nil {
		t.Fatal(err)
	}
	defer catalog.Close()
	only := catalog.Only(Allowed{
		Use:    func(def *tool.Def, _ string) bool { return def.ID.Name != "list_projects" },
		Find:   func(*tool.Def, string) bool { return true },
		Server: func(string) bool { return true },
	})
	for i, test := range []struct {
		catalog         *Catalog
		session, detail string
		want            bool
	}{
		{only, "", "summary", false}, // what the caller may not find is not named
		{catalog, "a", "summary", true},
		{catalog, "a", "summary", false}, // the session was shown it
		{catalog, "b", "full", true},
		{catalog, "", "name", true},
		{catalog, "", "summary", true},
	} {
		result, err := New(test.catalog, Settings{}).Retrieve(t.Context(), &tool.Call{Session: test.session,
			Arguments: json.RawMessage(fmt.Sprintf(`{"query":"delete_project","limit":1,"detail":%q}`, test.detail))})
		if err != nil {
			t.Fatal(err)
		}
		want := "needs: s_list_projects"
		switch test.detail {
		case "summary":
			want += "() for project_id: List projects."
		case "full":
			want = `\"producers\":[{\"name\":\"s_list_projects\",\"for\":[\"project_id\"]`
		}
		if strings.Contains(string(result), want) != test.want || !test.want && strings.Contains(string(result), "list_projects") {
			t.Errorf("%d: %s, want %q: %v", i, result, want, test.want)
		}
	}
	needs, _ := catalog.Related(catalog.Tools()[0])
	_, producesFor := catalog.Related(catalog.Tools()[1])
	if len(needs) != 1 || len(producesFor) != 1 {
		t.Errorf("related: %v, %v", needs, producesFor)
	}
}

// Of recorded servers no producer destroys or needs what it produces, and many tools have one.
func TestProducersOfRecordedServers(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "shared", "realtools", "*.json"))
	if len(files) == 0 {
		t.Skip("no recorded servers beside the repository")
	}
	n := 0
	for _, file := range files {
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var defs []*tool.Def
		byID := map[tool.ID]*tool.Def{}
		for raw := range rawjson.Elements(rawjson.Member(recorded, "tools")) {
			if def, err := tool.ParseDef(filepath.Base(file), raw); err == nil {
				defs = append(defs, def)
				byID[def.ID] = def
			}
		}
		for id, all := range producersAmong(defs) {
			n++
			for _, p := range all {
				if of := byID[p.id]; strings.Contains(of.ID.Name, "delete") || strings.Contains(string(rawjson.Member(of.InputSchema, "required")), `"`+p.parameter+`"`) {
					t.Errorf("%s: %s produces %s", id, p.id, p.parameter)
				}
			}
		}
	}
	if n < 400 {
		t.Errorf("only %d tools have a producer", n)
	}
}

// A server chooses how many tools it has under one word, and how many parameters a tool has: their product is bounded.
func TestProducersAreBounded(t *testing.T) {
	var properties, required []string
	for i := range 2 * maxNeeds {
		properties = append(properties, fmt.Sprintf(`"k%d_thing_id":{"type":"string"}`, i))
		required = append(required, fmt.Sprintf(`"k%d_thing_id"`, i))
	}
	var defs []*tool.Def
	for i := range maxKin + 100 {
		defs = append(defs, def(t, "s", fmt.Sprintf(`{"name":"list_x%d_thing","inputSchema":{"type":"object"}}`, i)),
			def(t, "s", fmt.Sprintf(`{"name":"delete_x%d_thing","inputSchema":{"type":"object","properties":{%s},"required":[%s]}}`, i, strings.Join(properties, ","), strings.Join(required, ","))))
	}
	k := newKin(defs[:maxKin])
	if n := len(k.byNoun["thing"]); n != maxSiblings {
		t.Errorf("%d tools are compared with each parameter, want %d", n, maxSiblings)
	}
	if n := len(k.all[1].needs); n != maxNeeds {
		t.Errorf("a tool needs %d things, want %d", n, maxNeeds)
	}
	if n := len(producersAmong(defs)); n > maxKin {
		t.Errorf("%d tools have producers, want at most %d", n, maxKin)
	}
}
