//go:build unix

package e2e_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	_ "modernc.org/sqlite"

	"toolfinch/internal/await"
	"toolfinch/internal/must"
)

// Search by meaning, through the whole program: with the real model, which these
// tests find where the user keeps it, and with an endpoint in openai_test.go.

// paraphrases share no word with the tool that they mean, nor one that index knows to
// be of the same sense.
var paraphrases = map[string]string{
	"shred a memorandum": "notes_delete",
	"scrap my reminder":  "notes_delete",
}

// userModels is the folder of the user's models, which has the default one.
func userModels(t *testing.T) string {
	t.Helper()
	if !hasModel() {
		missing(t, "the model is not on this machine: toolfinch model pull")
	}
	return os.Getenv("TOOLFINCH_TEST_MODELS")
}

func hasModel() bool {
	dir := os.Getenv("TOOLFINCH_TEST_MODELS")
	return dir != "" && isThere(filepath.Join(dir, "all-MiniLM-L6-v2", "manifest.json"))
}

// copyModel makes a folder of models whose one model is that of the user, but for
// the files in change, which are other bytes.
func copyModel(t *testing.T, change map[string][]byte) string {
	t.Helper()
	from := filepath.Join(userModels(t), "all-MiniLM-L6-v2")
	dir := t.TempDir()
	to := filepath.Join(dir, "all-MiniLM-L6-v2")
	err := filepath.WalkDir(from, func(path string, item fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if item.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		if content, ok := change[name]; ok {
			return os.WriteFile(target, content, 0o644)
		}
		return os.Symlink(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// builtIn are the servers of the demo, as upstreams that keep their files below
// home.
func builtIn(t *testing.T, home string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, name := range []string{"clock", "files", "math", "notes", "text"} {
		all[name] = map[string]any{"command": program(t), "args": []string{"demo-server", name, filepath.Join(home, name)}}
	}
	return all
}

const builtInTools = 31

// newPlainHouse is a house that needs no Node: with the demo's servers and, by
// name, more at a URL.
func newPlainHouse(t *testing.T, urls map[string]string, env ...string) house {
	t.Helper()
	home := t.TempDir()
	h := house{home: home, config: filepath.Join(home, "toolfinch.json")}
	h.env = append([]string{
		"HOME=" + home,
		"PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + home,
		"MCPPROXY_MODELS_DIR=" + filepath.Join(home, "models"),
		"MCPPROXY_ROUTING_TYPE=CALL_TOOL", // no answer waits for a new listing
		"MCPPROXY_QUERY_EMBED_TIMEOUT=30s",
		"GORACE=log_path=" + filepath.Join(home, "race"),
		"MCPPROXY_SHARED=false", // what a test starts is what serves it
	}, env...)
	h.leavesNothing(t)
	servers := builtIn(t, home)
	for name, url := range urls {
		servers[name] = map[string]any{"url": url, "changes": "allow"} // they list other tools while they are embedded
	}
	h.configure(t, servers)
	return h
}

// configure writes the configuration.
func (h house) configure(t *testing.T, servers any) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"data_dir": filepath.Join(h.home, "data"), "log_format": "json", "mcp_servers": servers})
	if err == nil {
		err = os.WriteFile(h.config, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// with is the house with more in its environment.
func (h house) with(env ...string) house {
	h.env = append(slices.Clone(h.env), env...)
	return h
}

// healthy fails the test unless the program says that it is.
func (l *life) healthy(t *testing.T) {
	t.Helper()
	response := must.Get(http.Get(strings.TrimSuffix(l.url, "/mcp") + "/healthz"))(t)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("/healthz answers %s", response.Status)
	}
}

// asker is a client with a session.
type asker struct{ *client.Client }

func (l *life) client(t *testing.T) asker {
	t.Helper()
	ctx := await.Context(t)
	c, err := client.NewStreamableHttpClient(l.url)
	if err == nil {
		l.leave = append(l.leave, c.Close)
		err = c.Start(ctx)
	}
	if err == nil {
		_, err = c.Initialize(ctx, mcp.InitializeRequest{Params: mcp.InitializeParams{
			ProtocolVersion: "2025-11-25", ClientInfo: mcp.Implementation{Name: "asker", Version: "1"},
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return asker{c}
}

// call calls a tool that must succeed, and returns its text.
func (c asker) call(t *testing.T, name string, arguments any) string {
	t.Helper()
	result, err := c.CallTool(await.Context(t), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: arguments}})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	raw, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), secretKey) {
		t.Errorf("the key is in an answer: %s", raw)
	}
	text := ""
	if len(result.Content) > 0 {
		if block, ok := result.Content[0].(mcp.TextContent); ok {
			text = block.Text
		}
	}
	if result.IsError {
		t.Fatalf("%s: %s", name, text)
	}
	return text
}

// answer is what retrieve_tools says.
type answer struct {
	Tools []struct {
		Name, Description string
		Score             float64
	}
	Index struct {
		Tools    int
		Ready    int `json:"servers_ready"`
		Search   string
		Embedded *int
		Reason   string
	}
}

// rank is the place of a tool in the answer, the first is 0.
func (a answer) rank(name string) int {
	for i, found := range a.Tools {
		if found.Name == name {
			return i
		}
	}
	return len(a.Tools)
}

// score is what a tool counts in the answer, 0 when it is not there.
func (a answer) score(name string) float64 {
	if i := a.rank(name); i < len(a.Tools) {
		return a.Tools[i].Score
	}
	return 0
}

// first is the name of the best hit.
func (a answer) first() string {
	if len(a.Tools) == 0 {
		return ""
	}
	return a.Tools[0].Name
}

// complete reports whether meaning counts for so many tools, and for all there are.
func (a answer) complete(tools int) bool {
	return a.Index.Search == "hybrid" && a.Index.Embedded == nil && a.Index.Tools == tools
}

func (c asker) ask(t *testing.T, query string) answer {
	t.Helper()
	var a answer
	must.Do(t, json.Unmarshal([]byte(c.call(t, "retrieve_tools", map[string]any{"query": query, "detail": "full"})), &a))
	return a
}

// askUntil asks until the answer is as it should be, and then again: what an
// answer says of the index may be newer than its hits.
func (c asker) askUntil(t *testing.T, query string, good func(answer) bool) answer {
	t.Helper()
	await.Nil(t, func() error {
		if a := c.ask(t, query); !good(a) {
			return fmt.Errorf("%q is answered with %+v", query, a)
		}
		return nil
	})
	return c.ask(t, query)
}

// askInTime asks until the machine was fast enough for the query's vector.
func (c asker) askInTime(t *testing.T, query string) answer {
	t.Helper()
	var a answer
	await.True(t, func() bool {
		a = c.ask(t, query)
		return !strings.Contains(a.Index.Reason, "in time")
	})
	return a
}

// vectors counts what the store has, by the kind of embedder that the space's
// name begins with. Each vector gets the next number when it is written, and
// loses it when it is written anew: written is how many were, ever.
func (h house) vectors(t *testing.T) (spaces map[string]int, written int) {
	t.Helper()
	db := h.db(t)
	rows, err := db.Query(`SELECT substr(name, 1, instr(name, ':') - 1), count(*), max(vectors.rowid)
		FROM vectors JOIN spaces ON spaces.id = space GROUP BY spaces.id`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	spaces = map[string]int{}
	for rows.Next() {
		var kind string
		var count, last int
		must.Do(t, rows.Scan(&kind, &count, &last))
		spaces[kind] += count
		written = max(written, last)
	}
	must.Do(t, rows.Err())
	return spaces, written
}

// onlyOnce fails the test unless the store has so many vectors by kind, each
// written once.
func (h house) onlyOnce(t *testing.T, want map[string]int) {
	t.Helper()
	got, written := h.vectors(t)
	sum := 0
	for _, count := range got {
		sum += count
	}
	if !maps.Equal(got, want) || written != sum {
		t.Errorf("the store has vectors %v and wrote %d in all; want %v, each once", got, written, want)
	}
}

// db is the store, to be read.
func (h house) db(t *testing.T) *sql.DB {
	t.Helper()
	db := must.Get(sql.Open("sqlite", "file:"+filepath.Join(h.home, "data", "toolfinch.db")+"?mode=ro&_pragma=busy_timeout(10000)"))(t)
	db.SetMaxIdleConns(0) // what is not read keeps nothing open
	t.Cleanup(func() { db.Close() })
	return db
}

// sound fails the test when the store was damaged, or given up as damaged.
func (h house) sound(t *testing.T) {
	t.Helper()
	var verdict string
	if err := h.db(t).QueryRow(`PRAGMA integrity_check`).Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("the store is not sound: %s %v", verdict, err)
	}
	if others, _ := filepath.Glob(filepath.Join(h.home, "data", "*.corrupt-*")); len(others) > 0 {
		t.Errorf("a store was given up: %v", others)
	}
}

// shop is an upstream whose one tool can change.
func newShop(t *testing.T) (url string, describe func(string)) {
	t.Helper()
	s := mcpserver.NewMCPServer("shop", "1", mcpserver.WithToolCapabilities(true))
	describe = func(description string) {
		s.AddTool(mcp.NewTool("work", mcp.WithDescription(description)), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("done"), nil
		})
	}
	front := httptest.NewServer(mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true)))
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections) // the proxy listens on one to the end
	return front.URL + "/mcp", describe
}

// Tools are embedded behind the back of searches, once: not again after a
// restart, and of a change only what has changed.
func TestToolsAreEmbeddedOnce(t *testing.T) {
	t.Parallel()
	shop, describe := newShop(t)
	describe("Paint a fence")
	h := newPlainHouse(t, map[string]string{"shop": shop}, "MCPPROXY_EMBEDDER=HF", "MCPPROXY_MODELS_DIR="+userModels(t))
	const all = builtInTools + 1

	l := h.start(t)
	c := l.client(t)
	c.askUntil(t, "paint a fence", func(a answer) bool { return a.complete(all) })
	for query, want := range paraphrases {
		if got := c.askInTime(t, query).first(); got != want {
			t.Errorf("%q finds %s first, want %s", query, got, want)
		}
	}
	if got := c.askInTime(t, "prime_factors").first(); got != "math_prime_factors" {
		t.Errorf("the name of a tool finds %s first", got)
	}
	h.onlyOnce(t, map[string]int{"hf": all})

	describe("Cook a soup")
	c.askUntil(t, "prepare a broth", func(a answer) bool {
		return a.complete(all) && a.first() == "shop_work" && a.Tools[0].Description == "Cook a soup"
	})
	h.onlyOnce(t, map[string]int{"hf": all + 1})
	l.stop(t)

	l = h.start(t)
	a := l.client(t).askUntil(t, "prepare a broth", func(a answer) bool { return a.Index.Search == "hybrid" })
	if a.first() != "shop_work" {
		t.Errorf("after a restart the broth is %+v", a.Tools)
	}
	l.client(t).askUntil(t, "prepare a broth", func(a answer) bool { return a.complete(all) && a.Index.Ready == 6 })
	h.onlyOnce(t, map[string]int{"hf": all + 1})
	l.stop(t)
	h.sound(t)
}

// Without a usable model toolfinch serves by words, and says what to do.
func TestModelIsMissingOrDamaged(t *testing.T) {
	t.Parallel()
	const hint = "toolfinch model pull"
	reasonGiven := func(a answer) bool {
		return a.Index.Tools == builtInTools && a.Index.Search == "words" && strings.Contains(a.Index.Reason, hint)
	}

	t.Run("AUTO missing", func(t *testing.T) {
		h := newPlainHouse(t, nil)
		l := h.start(t)
		l.log.wait(t, 0, hint)
		a := l.client(t).askUntil(t, "delete a note", func(a answer) bool { return a.Index.Ready == 5 })
		if a.Index.Search != "words" || a.Index.Reason != "" || a.first() != "notes_delete" {
			t.Errorf("the answer is %+v", a)
		}
		if text := l.log.String(); strings.Count(text, hint) != 1 || strings.Contains(text, `"WARN"`) {
			t.Errorf("the log is not one line with the hint and no warning:\n%s", text)
		}
	})
	for name, change := range map[string]map[string][]byte{
		"weights cut short": {"model.safetensors": make([]byte, 1000)},
	} {
		t.Run("HF "+name, func(t *testing.T) {
			models := copyModel(t, change)
			h := newPlainHouse(t, nil, "MCPPROXY_EMBEDDER=HF", "MCPPROXY_MODELS_DIR="+models)
			l := h.start(t)
			a := l.client(t).askUntil(t, "delete a note", reasonGiven)
			if a.first() != "notes_delete" || strings.Contains(a.Index.Reason, models) {
				t.Errorf("the answer is %+v", a)
			}
			l.healthy(t)
		})
	}
}

// Search and eval use what reindex has embedded, and embed nothing themselves.
func TestCommandsUseVectors(t *testing.T) {
	t.Parallel()
	h := newPlainHouse(t, nil)
	hybrid := h.with("MCPPROXY_EMBEDDER=HF", "MCPPROXY_MODELS_DIR="+userModels(t))
	run := func(h house, args ...string) string {
		t.Helper()
		out, err := h.output(t, args...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return string(out)
	}
	run(hybrid, "reindex")
	h.onlyOnce(t, map[string]int{"hf": builtInTools})

	var a answer
	out := run(hybrid, "search", "--json", "shred a memorandum")
	if err := json.Unmarshal([]byte(out), &a); err != nil || !a.complete(builtInTools) || a.first() != paraphrases["shred a memorandum"] {
		t.Errorf("search --json: %v in %s", err, out)
	}
	why := run(hybrid, "search", "--explain", "shred a memorandum")
	for _, want := range []string{"Ranked by words and vectors;", "1. notes.delete", "cosine with the query 0."} {
		if !strings.Contains(why, want) {
			t.Errorf("search --explain does not say %q:\n%s", want, why)
		}
	}

	var queries strings.Builder
	for query, want := range paraphrases {
		fmt.Fprintf(&queries, "{\"query\": %q, \"relevant\": [%q]}\n", query, strings.Replace(want, "_", ":", 1))
	}
	mine := filepath.Join(h.home, "mine.jsonl")
	must.Do(t, os.WriteFile(mine, []byte(queries.String()), 0o644))
	for _, test := range []struct {
		house house
		found float64
	}{{h, 0}, {hybrid, 1}} {
		var report struct {
			N        int
			Found    float64 `json:"recall@1"`
			Embedder string
		}
		out := run(test.house, "eval", "--queries", mine, "--json")
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.N != len(paraphrases) || report.Found != test.found {
			t.Errorf("eval: %+v, %v; want recall@1 %g of %d queries", report, err, test.found, len(paraphrases))
		}
		t.Logf("eval with %s: recall@1 %g", report.Embedder, report.Found)
	}
	h.onlyOnce(t, map[string]int{"hf": builtInTools})
}

// What is called after a query is remembered, where the owner wants that, and
// counts more after a query like it.
func TestLearningFromUse(t *testing.T) {
	t.Parallel()
	const query, similar, chosen = "show notes with a tag", "show my notes with that tag", "notes_list_tags"
	// use asks and calls, and returns how the chosen tool stood before and after.
	use := func(t *testing.T, h house, done func() bool) (before, after answer) {
		t.Helper()
		l := h.start(t)
		c := l.client(t)
		before = c.askUntil(t, similar, func(a answer) bool {
			return a.Index.Tools == builtInTools && a.Index.Ready == 5
		})
		if a := c.askInTime(t, query); a.rank(chosen) == 0 || a.rank(chosen) == len(a.Tools) {
			t.Fatalf("%s must be found, and not as the first: %+v", chosen, a.Tools)
		}
		c.call(t, "call_tool", map[string]any{"name": chosen, "arguments": map[string]any{}})
		await.True(t, done)
		after = c.askInTime(t, similar)
		l.stop(t)
		return before, after
	}
	learned := func(t *testing.T, h house, args ...string) string {
		t.Helper()
		out := must.Get(h.output(t, append([]string{"learned"}, args...)...))(t)
		return string(out)
	}

	t.Run("off by default", func(t *testing.T) {
		h := newPlainHouse(t, nil)
		before, after := use(t, h, func() bool { return true })
		if before.score(chosen) != after.score(chosen) {
			t.Errorf("%s counts %g before its use and %g after it", chosen, before.score(chosen), after.score(chosen))
		}
		if out := learned(t, h, "--json"); !strings.Contains(out, `"learned": []`) {
			t.Errorf("something was learned: %s", out)
		}
	})
	t.Run("on", func(t *testing.T) {
		h := newPlainHouse(t, nil, "MCPPROXY_LEARN=true")
		before, after := use(t, h, func() bool {
			var count int
			err := h.db(t).QueryRow(`SELECT count(*) FROM learned WHERE query = ?`, query).Scan(&count)
			return err == nil && count == 1
		})
		if out := learned(t, h); strings.Count(out, "\n") != 2 || !strings.Contains(out, "notes.list_tags") {
			t.Errorf("learned is not one row with notes.list_tags:\n%s", out)
		}
		restarted := h.start(t).client(t).askUntil(t, similar, func(a answer) bool { return a.Index.Search == before.Index.Search })
		for when, a := range map[string]answer{"its use": after, "a restart": restarted} {
			if a.rank(chosen) > before.rank(chosen) || a.score(chosen) <= before.score(chosen) {
				t.Errorf("%s stood in place %d with %g, and after %s in place %d with %g", chosen,
					before.rank(chosen)+1, before.score(chosen), when, a.rank(chosen)+1, a.score(chosen))
			}
		}
	})
}
