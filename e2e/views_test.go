//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"toolfinch/e2e/agents"
	"toolfinch/internal/await"
	"toolfinch/internal/fetch"
	"toolfinch/internal/must"
	"toolfinch/tool"
)

// newViewsHouse has the configuration of testdata/views, as it stands.
func newViewsHouse(t *testing.T) house {
	t.Helper()
	for _, name := range []string{"files", "memory", "everything", "notion"} {
		module(t, realServers[name].file)
	}
	h := newHouse(t, nil)
	must.Do(t, os.CopyFS(h.home, os.DirFS("../testdata/views")))
	h.config = filepath.Join(h.home, "toolfinch.yaml")
	h.env = append(h.env, "NODE="+node(t), "MODULES="+modules(t), "FOLDER="+h.files)
	return h
}

// file writes a file that the filesystem server may touch and returns its path.
func (h house) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(h.files, name)
	must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// edit replaces what must be there in a file of the configuration, in place, as
// many editors save.
func (h house) edit(t *testing.T, file, from, to string) {
	t.Helper()
	path := filepath.Join(h.home, file)
	text := must.Get(os.ReadFile(path))(t)
	if !bytes.Contains(text, []byte(from)) {
		t.Fatalf("%s has no %q", file, from)
	}
	must.Do(t, os.WriteFile(path, bytes.Replace(text, []byte(from), []byte(to), 1), 0o644))
}

// viewClient is a client of one view.
type viewClient struct {
	*sdkClient
	house   house
	connect map[string]any // how it is connected
}

// Each view of the example is used by the SDK's client as agents use it.
func TestViewsOfTheExample(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	tests := []struct {
		view string
		use  func(viewClient, *testing.T)
	}{
		{"knowledge-expert", viewClient.expert},
		{"notion", viewClient.search},
		{"all-tools", viewClient.all},
		{"unified-search", viewClient.composite},
		{"smart-search", viewClient.custom},
		{"workshop", viewClient.workshop},
		{"guarded", viewClient.guarded},
		{"by-server", viewClient.byServer},
		{"small", viewClient.small},
	}
	h := newViewsHouse(t)
	url, _ := h.serveHTTP(t)
	waitServers(t, url, 4)
	c := viewClient{newSDKClient(t, h.env), h, nil}
	for _, tt := range tests {
		t.Run(tt.view, func(t *testing.T) {
			c.connect = map[string]any{"url": url + "/" + tt.view}
			c.do(t, "connect", c.connect, nil)
			tt.use(c, t)
		})
	}
	t.Run("no view", func(t *testing.T) {
		if got := postTo(t, url+"/smal"); got != http.StatusNotFound {
			t.Errorf("status %d, want 404", got)
		}
	})
	t.Run("the principal of a 2026-07-28 client", func(t *testing.T) { principals(t, h, url) })
	t.Run("stdio", func(t *testing.T) {
		if out, err := h.output(t, "validate"); err != nil || strings.Contains(string(out), "✗") {
			t.Errorf("%v\n%s", err, out)
		}
		if _, said, code := h.run(t, "", "serve", "--view", "smal"); code != 2 {
			t.Errorf("serve of no view ended with %d, want 2: %s", code, said)
		}
		c.connect = h.stdio(t)
		c.connect["args"] = append(c.connect["args"].([]string), "--view", "small")
		c.do(t, "connect", c.connect, nil)
		c.small(t)
	})
}

// postTo posts nothing to speak of and returns the status.
func postTo(t *testing.T, url string) int {
	t.Helper()
	response := must.Get(http.Post(url, "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)))(t)
	response.Body.Close()
	return response.StatusCode
}

// listedAs fails the test unless the client sees these tools in this order, and
// returns them by name.
func (c viewClient) listedAs(t *testing.T, want ...string) map[string]listed {
	t.Helper()
	tools := c.list(t)
	if got := names(tools); !slices.Equal(got, want) {
		t.Fatalf("listed are %q, want %q", got, want)
	}
	byName := map[string]listed{}
	for _, l := range tools {
		byName[l.Name] = l
	}
	return byName
}

// definition is a tool as the test looks at it.
type definition struct {
	Title, Description string
	InputSchema        struct {
		Properties map[string]struct {
			Type, Description string
			Default           any
		}
		Required []string
	}
	Annotations struct{ ReadOnlyHint, DestructiveHint *bool }
}

func (l listed) definition(t *testing.T) definition {
	t.Helper()
	var d definition
	must.Do(t, json.Unmarshal(l.Rest, &d))
	return d
}

// refuses fails the test unless a call fails, and the answer has the text.
func (c *sdkClient) refuses(t *testing.T, name string, arguments any, want string) {
	t.Helper()
	got := c.try(t, name, arguments)
	said := got.text()
	if got.Error != nil {
		said = got.Error.Message
	}
	if got.Error == nil && !got.Result.IsError || !strings.Contains(said, want) {
		t.Errorf("%s %v answered %q, want a refusal with %q", name, arguments, said, want)
	}
}

// outside fails the test when a tool that is not in the view can be called.
func (c viewClient) outside(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		c.refuses(t, name, map[string]any{"path": c.house.files, "query": "x", "message": "x", "entityNames": []string{}}, name)
	}
}

func (c viewClient) expert(t *testing.T) {
	tools := c.listedAs(t, "memory_create_entities", "search_knowledge")
	search := tools["search_knowledge"].definition(t)
	if !strings.HasPrefix(search.Description, "Search the knowledge base.\nSearch for nodes") {
		t.Errorf("the description is %q", search.Description)
	}

	const name = "Ada"
	entity := func(observations ...string) map[string]any {
		return map[string]any{"entities": []any{map[string]any{"name": name, "entityType": "person", "observations": observations}}}
	}
	c.refuses(t, "memory_create_entities", entity([]string{}...), "say what is known of "+name)
	c.call(t, "memory_create_entities", entity("her key is sk-abcdefgh1234"))
	got := c.call(t, "search_knowledge", map[string]any{"query": name})
	var found struct {
		Entities []struct {
			Name         string
			Observations []string
		}
	}
	if err := json.Unmarshal(got.Result.StructuredContent, &found); err != nil || len(found.Entities) != 1 {
		t.Fatalf("found %s, %v", got.Result.StructuredContent, err)
	}
	if want := []string{"her key is [redacted]", "noted by nobody"}; !slices.Equal(found.Entities[0].Observations, want) {
		t.Errorf("observations are %q, want %q", found.Entities[0].Observations, want)
	}
	if strings.Contains(got.text(), "sk-") || !strings.Contains(got.text(), "[redacted]") {
		t.Errorf("the text is %s", got.text())
	}
	want := `{"asked":{"view":"knowledge-expert","tool":"search_knowledge","upstream":"memory"}}`
	if !sameJSON(t, got.Result.Meta, want) {
		t.Errorf("_meta is %s, want %s", got.Result.Meta, want)
	}
	c.outside(t, "memory_delete_entities", "memory.delete_entities", "delete_entities", "memory_read_graph", "files_list_directory", "everything_echo", "call_tool", "retrieve_tools", "run_script")
}

func sameJSON(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	var a, b any
	must.Do(t, json.Unmarshal([]byte(want), &b))
	if err := json.Unmarshal(got, &a); err != nil {
		t.Errorf("%v in %q", err, got)
	}
	left, _ := json.Marshal(a)
	right, _ := json.Marshal(b)
	return bytes.Equal(left, right)
}

// hits are the names that a search tool finds.
func (c viewClient) hits(t *testing.T, tool string, arguments any) (names []string) {
	t.Helper()
	got := c.call(t, tool, arguments)
	var found struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal([]byte(got.text()), &found); err != nil {
		t.Fatalf("%s: %v in %s", tool, err, got.text())
	}
	for _, hit := range found.Tools {
		names = append(names, hit.Name)
	}
	return names
}

func (c viewClient) search(t *testing.T) {
	c.listedAs(t, "notion_search_tools", "notion_describe_tool", "notion_call_tool", "retrieve_tools")
	pages := c.hits(t, "notion_search_tools", map[string]any{})
	for _, name := range []string{"search_notion", "notion_API-post-page", "notion_API-retrieve-a-page"} {
		if !slices.Contains(pages, name) {
			t.Errorf("%s is not in the list %q", name, pages)
		}
	}
	for _, name := range pages {
		if name != "search_notion" && !strings.Contains(name, "page") || strings.Contains(name, "move") {
			t.Errorf("%s is in the list", name)
		}
	}
	if got := c.hits(t, "notion_search_tools", map[string]any{"query": "search by title", "limit": 1}); !slices.Equal(got, []string{"search_notion"}) {
		t.Errorf("a search finds %q", got)
	}
	described := c.call(t, "notion_describe_tool", map[string]any{"name": "notion_API-post-page"}).text()
	if !strings.Contains(described, `"name":"notion_API-post-page"`) || !strings.Contains(described, `"inputSchema"`) {
		t.Errorf("it is described as %s", described)
	}
	// The call goes all the way to the server, which reaches nobody.
	through := func(name string, arguments any) map[string]any {
		return map[string]any{"name": name, "arguments": arguments}
	}
	c.refuses(t, "notion_call_tool", through("search_notion", map[string]any{"query": "x"}), "ECONNREFUSED")
	c.refuses(t, "notion_call_tool", through("notion_API-retrieve-a-page", map[string]any{"page_id": []int{7}}), "do not fit")
	for _, name := range []string{"notion_API-move-page", "notion.API-move-page", "notion_API-delete-a-block", "files_list_directory", "memory_read_graph", "retrieve_tools"} {
		c.refuses(t, "notion_call_tool", through(name, map[string]any{}), "unknown tool")
		c.refuses(t, "notion_describe_tool", map[string]any{"name": name}, "unknown tool")
	}
	c.outside(t, "notion_API-move-page", "notion_API-delete-a-block", "files_list_directory", "retrieve_tools")
}

func (c viewClient) all(t *testing.T) {
	c.listedAs(t, "retrieve_tools", "call_tool")
	f := c.retrieve(t, map[string]any{"query": "write text to a file", "limit": 2})
	if !slices.Contains(f.names(), "files_write_file") {
		t.Errorf("found are %q", f.names())
	}
	if f.Index.Tools < 50 {
		t.Errorf("%d tools are indexed", f.Index.Tools)
	}
	var tools []listed
	c.do(t, "relisted", nil, &tools)
	if !slices.Contains(names(tools), "files_write_file") {
		t.Errorf("listed are now %q", names(tools))
	}
	path := filepath.Join(c.house.files, "written.txt")
	c.call(t, "files_write_file", map[string]any{"path": path, "content": "from afar"})
	got := c.call(t, "call_tool", map[string]any{"name": "files_read_text_file", "arguments": map[string]any{"path": path}})
	if got.text() != "from afar" {
		t.Errorf("read back: %q", got.text())
	}
	for _, name := range c.retrieve(t, map[string]any{"query": "delete entities, relations and observations", "limit": 20}).names() {
		if strings.HasPrefix(name, "memory_delete") || name == "files_read_file" {
			t.Errorf("%s was found", name)
		}
	}
	c.outside(t, "memory_delete_entities", "memory.delete_entities", "files_read_file")
	c.refuses(t, "call_tool", map[string]any{"name": "memory.delete_entities", "arguments": map[string]any{"entityNames": []string{}}}, "unknown tool")
}

func (c viewClient) composite(t *testing.T) {
	search := c.listedAs(t, "retrieve_tools", "search_everywhere")["search_everywhere"].definition(t)
	if got := search.InputSchema.Required; search.Title != "Search everywhere" || !slices.Equal(got, []string{"query", "folder"}) || search.InputSchema.Properties["query"].Description != "A word" {
		t.Errorf("it is listed as %+v", search)
	}
	if readOnly := search.Annotations.ReadOnlyHint; readOnly == nil || !*readOnly {
		t.Errorf("its steps only read, but it says %+v", search.Annotations)
	}
	const word = "finches"
	path := c.house.file(t, "birds/about "+word+".txt", "x")
	c.house.remember(t, word, "are small", "sing")

	ask := func(folder string) map[string]json.RawMessage {
		got := c.call(t, "search_everywhere", map[string]any{"query": word, "folder": folder})
		var byKey map[string]json.RawMessage
		if err := json.Unmarshal(got.Result.StructuredContent, &byKey); err != nil || len(byKey) != 2 {
			t.Fatalf("%v in %s", err, got.Result.StructuredContent)
		}
		if !sameJSON(t, got.Result.StructuredContent, got.text()) {
			t.Errorf("the text is another answer: %s", got.text())
		}
		if !strings.Contains(string(byKey["knowledge"]), `"observations":["are small","sing"]`) {
			t.Errorf("knowledge is %s", byKey["knowledge"])
		}
		return byKey
	}
	if got := ask(c.house.files)["files"]; !strings.Contains(string(got), path) {
		t.Errorf("files are %s, want %s", got, path)
	}
	// One step fails, the other one answers.
	if got := ask("/etc")["files"]; !strings.HasPrefix(string(got), `{"error":"Access denied`) {
		t.Errorf("files outside are %s", got)
	}
	c.refuses(t, "search_everywhere", map[string]any{"query": "x"}, "folder")
	c.outside(t, "memory_search_nodes", "memory.search_nodes", "files_search_files")
}

// remember puts an entity into the file of the memory server.
func (h house) remember(t *testing.T, name string, observations ...string) {
	t.Helper()
	line := must.Get(json.Marshal(map[string]any{"type": "entity", "name": name, "entityType": "thing", "observations": append([]string{}, observations...)}))(t)
	path := filepath.Join(h.home, "memory.jsonl")
	before, _ := os.ReadFile(path)
	if len(before) > 0 {
		before = append(before, '\n')
	}
	must.Do(t, os.WriteFile(path, append(before, line...), 0o600))
}

func (c viewClient) custom(t *testing.T) {
	search := c.listedAs(t, "retrieve_tools", "contextual_search")["contextual_search"].definition(t)
	if limit := search.InputSchema.Properties["limit"]; search.Title != "Contextual search" || limit.Type != "integer" || limit.Default != 3.0 ||
		!slices.Equal(search.InputSchema.Required, []string{"topic", "folder"}) {
		t.Errorf("it is listed as %+v", search)
	}
	if readOnly := search.Annotations.ReadOnlyHint; readOnly == nil || !*readOnly {
		t.Errorf("it says %+v", search.Annotations)
	}
	const topic = "harbour"
	for _, name := range []string{"one", "two", "three"} {
		c.house.file(t, "places/"+topic+" "+name+".txt", "this is "+name+"\nand more")
	}
	c.house.remember(t, topic)
	got := c.call(t, "contextual_search", map[string]any{"topic": topic, "folder": c.house.files})
	var answer struct {
		Known []string
		Lines map[string]string `json:"first_lines"`
		Tools []string
	}
	if err := json.Unmarshal(got.Result.StructuredContent, &answer); err != nil {
		t.Fatalf("%v in %s", err, got.Result.StructuredContent)
	}
	if !slices.Equal(answer.Known, []string{topic}) || len(answer.Lines) != 3 || answer.Lines[topic+" two.txt"] != "this is two" || len(answer.Tools) != 2 {
		t.Errorf("it answered %s", got.Result.StructuredContent)
	}
	got = c.call(t, "contextual_search", map[string]any{"topic": topic, "folder": c.house.files, "limit": 1})
	if n := strings.Count(got.text(), "this is"); n != 1 {
		t.Errorf("with limit 1 it answered %s", got.text())
	}
	c.refuses(t, "contextual_search", map[string]any{"topic": topic, "folder": c.house.files, "limit": 11}, "limit")
	c.refuses(t, "contextual_search", map[string]any{"topic": topic}, "folder")
	c.outside(t, "files_read_text_file", "files.read_text_file", "memory_search_nodes")
}

func (c viewClient) workshop(t *testing.T) {
	tools := c.listedAs(t, "run_script", "read_output", "add_two", "files_list_directory", "leave_note", "read")
	read := tools["read"].definition(t)
	if !slices.Equal(read.InputSchema.Required, []string{"file"}) || len(read.InputSchema.Properties) != 2 ||
		read.InputSchema.Properties["file"].Description != "The file, with its folder" || read.InputSchema.Properties["head"].Default != 2000.0 ||
		!strings.HasSuffix(read.InputSchema.Properties["head"].Description, "lines of the file. Leave it out for 2000") || read.Title != "Read Text File, from the start" {
		t.Errorf("read is listed as %+v", read)
	}
	if note := tools["leave_note"].definition(t).InputSchema; len(note.Properties) != 1 || !slices.Equal(note.Required, []string{"content"}) {
		t.Errorf("leave_note takes %+v", note)
	}
	if list := tools["files_list_directory"].definition(t).InputSchema; len(list.Required) != 0 || list.Properties["path"].Default != c.house.files {
		t.Errorf("files_list_directory takes %+v", list)
	}

	if got := c.call(t, "add_two", map[string]any{"a": 40}).text(); !strings.Contains(got, "42") {
		t.Errorf("add_two answered %s", got)
	}
	c.call(t, "leave_note", map[string]any{"content": "I was here"})
	if got, err := os.ReadFile(filepath.Join(c.house.files, "note.txt")); err != nil || string(got) != "I was here" {
		t.Errorf("the note is %q, %v", got, err)
	}
	// What is bound cannot be overruled.
	elsewhere := filepath.Join(c.house.files, "elsewhere.txt")
	c.try(t, "leave_note", map[string]any{"content": "mine", "path": elsewhere})
	if _, err := os.Stat(elsewhere); err == nil {
		t.Error("the note was left elsewhere")
	}
	if got := c.call(t, "files_list_directory", map[string]any{}).text(); !strings.Contains(got, "note.txt") {
		t.Errorf("without a folder the list is %s", got)
	}

	var text strings.Builder
	for line := range 3000 {
		fmt.Fprintf(&text, "line %d of a long text: %d\n", line+1, line*line)
	}
	path := c.house.file(t, "long.txt", text.String())
	lines := text.String()[:strings.Index(text.String(), "line 2001 ")] // what head leaves
	got := c.call(t, "read", map[string]any{"file": path})
	if !strings.HasPrefix(got.text(), "line 1 of") || len(got.text()) > 1000 || got.Result.StructuredContent != nil {
		t.Errorf("a long file is answered with %d bytes and structured content %.50s: %s", len(got.text()), got.Result.StructuredContent, got.text())
	}
	token := regexp.MustCompile(`token "(\w+)"`).FindStringSubmatch(got.text())
	if token == nil {
		t.Fatalf("there is no token in %s", got.text())
	}
	piece := c.call(t, "read_output", map[string]any{"token": token[1], "lines": "1999-2000"})
	if got := piece.Result.Content[0].Text; strings.TrimSpace(got) != "line 1999 of a long text: 3992004\nline 2000 of a long text: 3996001" {
		t.Errorf("lines 1999 and 2000 are %q", got)
	}
	whole := ""
	for len(whole) < len(lines)-1 {
		piece := c.call(t, "read_output", map[string]any{"token": token[1], "offset": len(whole)}).Result.Content[0].Text
		if piece == "" {
			break
		}
		whole += piece
	}
	if strings.TrimSpace(whole) != strings.TrimSpace(lines) {
		t.Errorf("read in pieces it has %d bytes, want %d", len(whole), len(lines))
	}
	c.refuses(t, "read_output", map[string]any{"token": token[1][1:]}, "no such output")

	// A script of the model gets the whole of what its calls answer.
	script := `
def total(numbers):
    all = 0
    for n in numbers:
        all += int(n)
    return all

whole = call_tool("read", file = "` + path + `")["content"]
sums = parallel([{"tool": "add_two", "args": {"a": n}} for n in range(3)])
result = {"squares": total(re.findall(r": (\d+)", whole)), "sums": [s["result"] for s in sums], "lines": len(whole.strip().split("\n"))}
`
	got = c.call(t, "run_script", map[string]any{"script": script})
	if want := `{"squares":2664667000,"sums":["The sum of 0 and 2 is 2.","The sum of 1 and 2 is 3.","The sum of 2 and 2 is 4."],"lines":2000}`; !sameJSON(t, got.Result.StructuredContent, want) {
		t.Errorf("the script answered %s, want %s", got.Result.StructuredContent, want)
	}
	for _, name := range []string{"files_move_file", "files.move_file", "memory.read_graph", "run_script"} {
		c.refuses(t, "run_script", map[string]any{"script": `result = call_tool("` + name + `")`}, name)
	}
	c.refuses(t, "run_script", map[string]any{"script": "result = 1 +"}, "1:")
	c.outside(t, "files_move_file", "everything_echo", "memory_read_graph", "retrieve_tools", "call_tool")

	// What this client was answered is no other client's to read.
	other := newSDKClient(t, c.house.env)
	other.do(t, "connect", c.connect, nil)
	other.refuses(t, "read_output", map[string]any{"token": token[1]}, "no such output")
	if own := c.call(t, "read_output", map[string]any{"token": token[1], "lines": "1"}); !strings.HasPrefix(own.text(), "line 1 of") {
		t.Errorf("its own client reads %s", own.text())
	}
}

func (c viewClient) guarded(t *testing.T) {
	c.listedAs(t, "files_list_allowed_directories", "files_read_text_file")
	path := c.house.file(t, "short.txt", "one\ntwo")
	if got := c.call(t, "files_read_text_file", map[string]any{"path": path}).text(); got != "2 lines\none\ntwo" {
		t.Errorf("it is read as %q", got)
	}
	c.refuses(t, "files_read_text_file", map[string]any{"path": c.house.file(t, "my.key", "secret")}, "files_read_text_file does not read keys")
	c.refuses(t, "files_read_text_file", map[string]any{"path": "/etc/hostname"}, "Access denied")
	if got := c.call(t, "files_list_allowed_directories", map[string]any{}).text(); !strings.HasSuffix(got, c.house.files) {
		t.Errorf("the other tool answered %q", got)
	}
	c.outside(t, "files_list_directory", "files.list_directory", "memory_read_graph")
}

func (c viewClient) byServer(t *testing.T) {
	c.listedAs(t, "files_search_tools", "files_describe_tool", "files_call_tool", "memory_search_tools", "memory_describe_tool", "memory_call_tool", "retrieve_tools")
	if got := c.hits(t, "memory_search_tools", map[string]any{"query": "read the whole graph", "limit": 1}); !slices.Equal(got, []string{"memory_read_graph"}) {
		t.Errorf("memory has %q", got)
	}
	for _, name := range c.hits(t, "files_search_tools", map[string]any{}) {
		if !strings.HasPrefix(name, "files_") || strings.Contains(name, "directory_tree") || name == "files_read_file" {
			t.Errorf("files has %s", name)
		}
	}
	path := c.house.file(t, "by server.txt", "here")
	got := c.call(t, "files_call_tool", map[string]any{"name": "files_read_text_file", "arguments": map[string]any{"path": path}})
	if got.text() != "here" {
		t.Errorf("it is read as %q", got.text())
	}
	c.refuses(t, "files_call_tool", map[string]any{"name": "memory_read_graph", "arguments": map[string]any{}}, "unknown tool")
	c.refuses(t, "files_describe_tool", map[string]any{"name": "memory_read_graph"}, "unknown tool")
	c.refuses(t, "files_call_tool", map[string]any{"name": "files_directory_tree", "arguments": map[string]any{"path": path}}, "unknown tool")
	c.outside(t, "everything_echo", "files_directory_tree", "call_tool", "everything_search_tools")
}

func (c viewClient) small(t *testing.T) {
	c.listedAs(t, "retrieve_tools", "everything_echo", "everything_get-sum")
	if got := c.call(t, "everything_echo", map[string]any{"message": "small"}).text(); got != "Echo: small" {
		t.Errorf("it answered %q", got)
	}
	c.outside(t, "everything_get-env", "files_list_directory")
}

// ask2026 calls a tool as a 2026-07-28 client does, in one request without a
// session.
func ask2026(t *testing.T, url string, header map[string]string, name string, arguments any) called {
	t.Helper()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "test", "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
		"name": name, "arguments": arguments,
	}})
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"Accept: application/json, text/event-stream", "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: " + name}
	for key, value := range header {
		lines = append(lines, key+": "+value)
	}
	text := fetch.Send(t, http.MethodPost, url, string(body), lines...).Body
	if _, data, isStream := strings.Cut(text, "data: "); isStream {
		text, _, _ = strings.Cut(data, "\n")
	}
	var answer called
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatalf("%s: %v in %s", name, err, text)
	}
	return answer
}

// principals are two users behind a reverse proxy that says who they are, and one
// that it does not know.
func principals(t *testing.T, h house, url string) {
	ada, bob := map[string]string{"X-Forwarded-User": "ada", "X-Team": "finches"}, map[string]string{"X-Forwarded-User": "bob"}

	entities := []any{map[string]any{"name": "principal", "entityType": "test", "observations": []string{"is known"}}}
	if got := ask2026(t, url+"/knowledge-expert", ada, "memory_create_entities", map[string]any{"entities": entities}); !strings.Contains(got.text(), "noted by finches") {
		t.Errorf("the hook has not seen the header: %+v", got)
	}

	path := h.file(t, "principal.txt", strings.Repeat("a line of ada's\n", 1000))
	got := ask2026(t, url+"/workshop", ada, "read", map[string]any{"file": path})
	token := regexp.MustCompile(`token "(\w+)"`).FindStringSubmatch(got.text())
	if token == nil {
		t.Fatalf("there is no token in %+v", got)
	}
	read := map[string]any{"token": token[1], "lines": "1000"}
	if got := ask2026(t, url+"/workshop", ada, "read_output", read); !strings.HasPrefix(got.text(), "a line of ada's") {
		t.Errorf("ada reads %+v", got)
	}
	for who, header := range map[string]map[string]string{"bob": bob, "nobody": nil} {
		if got := ask2026(t, url+"/workshop", header, "read_output", read); !got.Result.IsError || !strings.Contains(got.text(), "no such output") {
			t.Errorf("%s reads %+v", who, got)
		}
	}
	if got := ask2026(t, url+"/workshop", nil, "read", map[string]any{"file": path}); len(got.text()) < 15_000 {
		t.Errorf("nobody, who could not read on, is answered %d bytes: %s", len(got.text()), got.text())
	}
}

// runningBelow are the processes below pid whose command line has the text.
func runningBelow(pid int, text string) []process {
	return slices.DeleteFunc(descendants(pid), func(p process) bool { return !strings.Contains(p.command, text) })
}

const (
	reloaded = `"msg":"configuration reloaded"`
	refused  = "the edited configuration is refused"
)

// A user edits the configuration and its hooks while clients are connected.
func TestEditsAreTakenWhileServing(t *testing.T) {
	t.Parallel() // most of the time somebody waits
	h := newViewsHouse(t)
	life := h.start(t)
	url, pid, log := life.url, life.pid, life.log
	waitServers(t, url, 4)
	expert := newSDKClient(t, h.env)
	expert.do(t, "connect", map[string]any{"url": url + "/knowledge-expert"}, nil)
	expert.list(t)
	note := func(name string) string {
		t.Helper()
		return expert.call(t, "memory_create_entities", map[string]any{"entities": []any{
			map[string]any{"name": name, "entityType": "edit", "observations": []string{"there"}},
		}}).text()
	}
	if got := note("first"); !strings.Contains(got, "noted by nobody") {
		t.Fatalf("before any edit: %s", got)
	}
	// before are the processes of the servers; none where the system does not show them.
	before := map[string][]process{}
	all := []string{"server-filesystem", "server-memory", "server-everything", "notion"}
	for _, server := range all {
		before[server] = runningBelow(pid, server)
	}
	// stay fails the test unless those servers are the processes they were.
	stay := func(t *testing.T, servers ...string) {
		t.Helper()
		for _, server := range servers {
			if got := runningBelow(pid, server); !slices.Equal(got, before[server]) {
				t.Errorf("%s was %v and is now %v", server, before[server], got)
			}
		}
	}
	seen := 0 // bytes of the log
	// notes waits until a note says that an edit is taken: one edit may be read, and logged, twice.
	notes := func(t *testing.T, name, want string) {
		t.Helper()
		await.Nil(t, func() error {
			if got := note(name); !strings.Contains(got, want) {
				return fmt.Errorf("%s is answered %s", name, got)
			}
			return nil
		})
	}

	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a new view is served", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "  small:\n", "  fresh:\n    tools: {everything: {echo: {name: say}}}\n  small:\n")
			seen = log.wait(t, seen, reloaded)
			await.True(t, func() bool { return postTo(t, url+"/fresh") != http.StatusNotFound })
			if got := ask2026(t, url+"/fresh", nil, "say", map[string]any{"message": "fresh"}).text(); got != "Echo: fresh" {
				t.Errorf("the new view answers %q", got)
			}
			stay(t, all...)
		}},
		{"a renamed tool is told to its clients", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "name: search_knowledge", "name: look_up")
			seen = log.wait(t, seen, reloaded)
			var tools []listed
			expert.do(t, "relisted", nil, &tools)
			if got := names(tools); !slices.Contains(got, "look_up") || slices.Contains(got, "search_knowledge") {
				t.Errorf("listed are now %q", got)
			}
			if got := expert.call(t, "look_up", map[string]any{"query": "first"}).text(); !strings.Contains(got, "first") {
				t.Errorf("it finds %s", got)
			}
			stay(t, all...)
		}},
		{"a mistake in the file is refused", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "exposure_mode: direct", "exposure_mode: dierct")
			seen = log.wait(t, seen, refused, "toolfinch.yaml:", `direct`, "did you mean")
			note("with a mistake in the file")
			h.edit(t, "toolfinch.yaml", "exposure_mode: dierct", "exposure_mode: direct")
			seen = log.wait(t, seen, reloaded)
			stay(t, all...)
		}},
		{"a tool that is not there is refused", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "        search_nodes: {", "        search_noodles: {")
			seen = log.wait(t, seen, refused, "toolfinch.yaml:", "search_noodles", "search_nodes")
			if got := names(expert.list(t)); !slices.Contains(got, "look_up") {
				t.Errorf("listed are now %q", got)
			}
			h.edit(t, "toolfinch.yaml", "        search_noodles: {", "        search_nodes: {")
			seen = log.wait(t, seen, reloaded)
		}},
		{"an edited hook is used", func(t *testing.T) {
			h.edit(t, "hooks/knowledge.star", `"noted by "`, `"heard from "`)
			seen = log.wait(t, seen, reloaded)
			notes(t, "with the hook edited", "heard from nobody")
			stay(t, all...)
		}},
		{"a mistake in a hook is refused", func(t *testing.T) {
			h.edit(t, "hooks/knowledge.star", "def pre_call(ctx, args):", "def pre_call(ctx, args)")
			seen = log.wait(t, seen, refused, "toolfinch.yaml:", "knowledge.star:")
			if got := note("with a mistake in the hook"); !strings.Contains(got, "heard from nobody") {
				t.Errorf("the hook makes it %s", got)
			}
			h.edit(t, "hooks/knowledge.star", "def pre_call(ctx, args)", "def pre_call(ctx, args):")
			seen = log.wait(t, seen, reloaded)
		}},
		{"a changed server is started anew, and no other", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "/../memory.jsonl", "/../other.jsonl")
			seen = log.wait(t, seen, reloaded)
			await.Nil(t, func() error {
				notes(t, "in the other memory", "in the other memory")
				if text, err := os.ReadFile(filepath.Join(h.home, "other.jsonl")); err != nil || !strings.Contains(string(text), "in the other memory") {
					return fmt.Errorf("the other memory has %q, %w", text, err)
				}
				return nil
			})
			stay(t, "server-filesystem", "server-everything", "notion")
			noneLeft(t, before["server-memory"])
			if now := runningBelow(pid, "server-memory"); len(now) != len(before["server-memory"]) {
				t.Errorf("the memory was %v and is now %v", before["server-memory"], now)
			}
		}},
		{"SIGHUP reads the file again", func(t *testing.T) {
			must.Do(t, syscall.Kill(pid, syscall.SIGHUP))
			seen = log.wait(t, seen, reloaded)
			note("after SIGHUP")
			stay(t, "server-filesystem", "server-everything", "notion")
		}},
		{"a server that is no more is stopped", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "    env: {NOTION_TOKEN: none", "    enabled: false\n    env: {NOTION_TOKEN: none")
			seen = log.wait(t, seen, reloaded)
			waitServers(t, url, 3)
			noneLeft(t, before["notion"])
			if now := runningBelow(pid, "notion"); len(now) != 0 {
				t.Errorf("notion is still %v", now)
			}
			stay(t, "server-filesystem", "server-everything")
		}},
		{"a view that is no more is not served", func(t *testing.T) {
			h.edit(t, "toolfinch.yaml", "  fresh:\n    tools: {everything: {echo: {name: say}}}\n", "")
			seen = log.wait(t, seen, reloaded)
			await.True(t, func() bool { return postTo(t, url+"/fresh") == http.StatusNotFound })
			note("at the end")
		}},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
}

// The same task, done by calls one by one and by a script: find the largest of
// thirty invoices and the sum of all. Counted is what the model reads and writes,
// each once: the definitions, the calls, and the text of the results.
func TestScriptSavesTokens(t *testing.T) {
	if !long {
		t.Skip("a measurement")
	}
	t.Parallel()
	h := newViewsHouse(t)
	h.edit(t, "toolfinch.yaml", "tool_views:\n", `tool_views:
  by-calls:
    exposure_mode: direct
    tools: {files: {list_directory: {}, read_text_file: {}, read_multiple_files: {}}}
  by-script:
    exposure_mode: direct
    tools: {files: {list_directory: {}, read_text_file: {}, read_multiple_files: {}}}
    run_script: true
`)
	const invoices = 30
	sum, largest := 0, ""
	most := 0
	for i := range invoices {
		name, text, total := invoice(i)
		h.file(t, "invoices/"+name, text)
		sum += total
		if total > most {
			most, largest = total, name
		}
	}
	url, _ := h.serveHTTP(t)
	waitServers(t, url, 4)
	folder := filepath.Join(h.files, "invoices")
	connect := func(view string) *counting {
		c := &counting{sdkClient: newSDKClient(t, h.env)}
		c.do(t, "connect", map[string]any{"url": url + "/" + view}, nil)
		for _, l := range c.list(t) {
			c.count(t, map[string]any{"name": l.Name, "definition": l.Rest})
		}
		c.definitions, c.tokens = c.tokens, 0
		return c
	}
	fileNames := func(c *counting) (names []string) {
		for line := range strings.Lines(c.uses(t, "files_list_directory", map[string]any{"path": folder})) {
			names = append(names, strings.TrimSpace(strings.TrimPrefix(line, "[FILE] ")))
		}
		if len(names) != invoices {
			t.Fatalf("the folder has %q", names)
		}
		return names
	}

	oneByOne := connect("by-calls")
	found := 0
	for _, name := range fileNames(oneByOne) {
		if strings.Contains(oneByOne.uses(t, "files_read_text_file", map[string]any{"path": filepath.Join(folder, name)}), "Total due: ") {
			found++
		}
	}
	if found != invoices {
		t.Errorf("%d invoices have a total", found)
	}

	atOnce := connect("by-calls")
	var paths []string
	for _, name := range fileNames(atOnce) {
		paths = append(paths, filepath.Join(folder, name))
	}
	if got := strings.Count(atOnce.uses(t, "files_read_multiple_files", map[string]any{"paths": paths}), "Total due: "); got != invoices {
		t.Errorf("%d invoices have a total", got)
	}

	scripted := connect("by-script")
	answer := scripted.uses(t, "run_script", map[string]any{"script": `folder = "` + folder + `/"
names = [line.removeprefix("[FILE] ") for line in call_tool("files_list_directory", path = folder)["content"].split("\n")]
texts = parallel([{"tool": "files_read_text_file", "args": {"path": folder + name}} for name in names])
totals = {}
for name, text in zip(names, texts):
    totals[name] = int(re.search(r"Total due: (\d+)", text["result"]["content"]).group(1))
sum = 0
for total in totals.values():
    sum += total
result = {"largest": max(totals, key = totals.get), "sum": sum}`})
	if want := fmt.Sprintf(`{"largest":%q,"sum":%d}`, largest, sum); !sameJSON(t, json.RawMessage(answer), want) {
		t.Errorf("the script answered %s, want %s", answer, want)
	}

	t.Log("tokens              calls  definitions  calls and results  together")
	for _, way := range []struct {
		name string
		c    *counting
	}{{"one file a call", oneByOne}, {"all files in a call", atOnce}, {"one script", scripted}} {
		t.Logf("%-19s %5d %12d %18d %9d", way.name, way.c.calls, way.c.definitions, way.c.tokens, way.c.definitions+way.c.tokens)
	}
	for _, calls := range []*counting{oneByOne, atOnce} {
		if script, all := scripted.definitions+scripted.tokens, calls.definitions+calls.tokens; script >= all/2 {
			t.Errorf("the script costs %d tokens, %d calls %d: want less than half", script, calls.calls, all)
		}
	}
}

// invoice is the n-th invoice as a file: a page of text with a total in it.
func invoice(n int) (name, text string, total int) {
	var lines strings.Builder
	for i := range 12 {
		price := (n*7919+i*104729)%4000 + 100
		total += price
		fmt.Fprintf(&lines, "%2d  %-28s  %3d hours at %3d  %6d\n", i+1, []string{"Survey of the site", "Drawings, second revision", "Visit and minutes", "Correspondence"}[(n+i)%4], price/20, 20, price)
	}
	text = fmt.Sprintf("Invoice 2025-%03d\nTo: Customer %d, Harbour Street %d\nFor work in the month before. Payable within 30 days.\n\n%s\nTotal due: %d\n", n+1, n%9, n+3, lines.String(), total)
	return fmt.Sprintf("invoice-%03d.txt", n+1), text, total
}

// counting is a client that counts the tokens of what its model would read and
// write.
type counting struct {
	*sdkClient
	calls, definitions, tokens int
}

func (c *counting) count(t *testing.T, value any) {
	t.Helper()
	text := must.Get(json.Marshal(value))(t)
	c.tokens += tool.CountTokens(text)
}

// uses calls a tool and returns its text.
func (c *counting) uses(t *testing.T, name string, arguments any) string {
	t.Helper()
	c.calls++
	c.count(t, map[string]any{"name": name, "arguments": arguments})
	text := c.call(t, name, arguments).text()
	c.tokens += tool.CountTokens([]byte(text))
	return text
}

// Real agents are given a view, and use a tool of it that is bound to one file.
func TestAgentsWithAView(t *testing.T) {
	t.Parallel()
	if !long {
		t.Skip("the agents run in TestAgents")
	}
	for _, a := range agents.All[:2] {
		t.Run(a.Name, func(t *testing.T) {
			h := newViewsHouse(t)
			h.said(t, "reindex")
			m := &model{direct: "leave_note", path: filepath.Join(h.files, "note.txt"), content: "Left by " + a.Name + ".\n"}
			talk(t, a, h, m, agents.Server{Command: []string{program(t), "serve", "--config", h.config, "--view", "workshop"}}, false)
			if len(m.turns) != 2 {
				t.Fatalf("the model was asked %d times, want 2: %+v", len(m.turns), m.turns)
			}
			for _, name := range []string{"add_two", "files_list_directory", "read", "run_script", "read_output"} {
				if _, offered := m.turns[0].Tool(name); !offered {
					t.Errorf("%s is not offered: %v", name, m.turns[0].Tools)
				}
			}
			if _, offered := m.turns[0].Tool("retrieve_tools"); offered {
				t.Errorf("a view with all listed offers a search: %v", m.turns[0].Tools)
			}
			if got := m.turns[1].Results[0]; !strings.Contains(got, "Successfully wrote") {
				t.Errorf("leave_note answered the model with %s", got)
			}
			if got, err := os.ReadFile(m.path); err != nil || string(got) != m.content {
				t.Errorf("the file has %q, %v", got, err)
			}
		})
	}
}
